"""Saturating curves of accuracy over compute, with intervals over seeds, and refusals:
docs/studies.md.

    A(C) = start + (asymptote - start) / (1 + (midpoint / C) ** slope)

as in Khatri et al. 2025, "The Art of Scaling Reinforcement Learning Compute for LLMs" (arXiv
2510.13786), eq. 1, fitted to all seeds by least squares. The intervals are Student's over the
seeds' own Gauss-Newton steps from it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from rpg.stats.estimates import t_quantile
from rpg.stats.verdicts import MINIMUM_SEEDS

FIRST_HALF = 5
"""Least number of checkpoints in the first half of the budget, the start included: they must
predict the second."""
REACHED = 0.8
REACHED_AT_LEAST = 0.4
"""Share of its rise that a curve must have reached at the end of the budget, and the least of that
share's interval."""
TOLERATED = 0.05
"""Largest error in accuracy with which the first half of the budget may predict the second."""
RISES = 0.01
"""Level of the test that accuracy is higher in the last third of the checkpoints than in the first.
"""

_GRID = 16, 10  # midpoints and slopes from which the search begins
_SLOPES = 0.2, 12.0


class Bounds(NamedTuple):
    """A value with its 95 % interval over seeds, NaN where there is none."""

    value: float
    low: float
    high: float


class ComputeFit(NamedTuple):
    """A variant's curve. With a `refusal` (a sentence) it has no asymptote, midpoint and slope, and
    ends at the budget."""

    seeds: int
    budget: float
    refusal: str
    held_out: float
    """Root mean square error of the seeds' mean in the second half of the budget, predicted from
    the first; NaN: no fit."""
    parameters: np.ndarray
    """(4,): start, rise, logarithms of midpoint and slope; NaN: no fit."""
    deviations: np.ndarray
    """(seeds, 4): of the seeds, to first order; NaN: too few."""

    def at(self, compute: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Accuracy at `compute` (any shape), low and high of its pointwise 95 % interval."""
        amount = np.asarray(compute, float)
        value = curve(self.parameters, amount)
        half = _half(np.moveaxis(_slopes(self.parameters, amount) @ self.deviations.T, -1, 0))
        return value, value - half, value + half

    @property
    def asymptote(self) -> Bounds:
        return self._bounds(np.array([1, 1, 0, 0]))

    @property
    def midpoint(self) -> Bounds:
        return Bounds(*np.exp(self._bounds(np.array([0, 0, 1, 0]))))

    @property
    def slope(self) -> Bounds:
        return Bounds(*np.exp(self._bounds(np.array([0, 0, 0, 1]))))

    def reached(self) -> Bounds:
        """Share of the rise at the end of the budget."""
        *_, midpoint, slope = self.parameters
        end = np.exp(slope) * (np.log(self.budget) - midpoint)
        half = _half(self.deviations @ [0, 0, -np.exp(slope), end])
        return Bounds(*map(float, special.expit([end, end - half, end + half])))

    def _bounds(self, direction: np.ndarray) -> Bounds:
        if self.refusal:
            return Bounds(np.nan, np.nan, np.nan)
        value = float(self.parameters @ direction)
        half = float(_half(self.deviations @ direction))
        return Bounds(value, value - half, value + half)


def curve(parameters: np.ndarray, compute: np.ndarray) -> np.ndarray:
    start, rise, *_ = parameters
    return np.asarray(start + rise * special.expit(_logit(parameters, compute)))


def fit(compute: ArrayLike, accuracy: ArrayLike) -> ComputeFit:
    """The curve of one variant from arrays (seeds, checkpoints), compute ascending. ValueError:
    shapes differ, or a value is not finite."""
    x = np.asarray(compute, float)
    y = np.asarray(accuracy, float)
    if x.shape != y.shape or x.ndim != 2 or not x.size or not np.isfinite([x, y]).all():
        raise ValueError("expected finite arrays (seeds, checkpoints) of one shape")
    seeds, checkpoints = x.shape
    budget = float(x[:, -1].mean())
    in_first_half = x.mean(axis=0) <= budget / 2
    first = int(in_first_half.sum())
    fitted = ComputeFit(
        seeds=seeds,
        budget=budget,
        refusal="",
        held_out=np.nan,
        parameters=np.full(4, np.nan),
        deviations=np.full((seeds, 4), np.nan),
    )
    if not FIRST_HALF <= first < checkpoints:
        refusal = (
            f"{first} of {checkpoints} checkpoints lie in the first half of the budget; "
            f"a fit takes at least {FIRST_HALF} there"
        )
        return fitted._replace(refusal=refusal)
    fitted = fitted._replace(parameters=_least_squares(x, y))
    if seeds < MINIMUM_SEEDS:
        refusal = f"intervals take {MINIMUM_SEEDS} seeds, and there are {seeds}"
        return fitted._replace(refusal=refusal)
    fitted = fitted._replace(
        deviations=_gauss_newton(fitted.parameters, x, y), held_out=_held_out(x, y, first)
    )
    return fitted._replace(refusal=_refusal(fitted, y))


def _held_out(x: np.ndarray, y: np.ndarray, first: int) -> float:
    """Root mean square error of the seeds' mean after the `first` checkpoints, predicted from
    them."""
    parameters = _least_squares(x[:, :first], y[:, :first])
    predicted = curve(parameters, x[:, first:])
    errors = (y[:, first:] - predicted).mean(axis=0)
    return float(np.sqrt((errors**2).mean()))


def _refusal(fitted: ComputeFit, y: np.ndarray) -> str:
    third = y.shape[1] // 3
    gains = y[:, -third:].mean(axis=1) - y[:, :third].mean(axis=1)
    needed = (
        special.stdtrit(fitted.seeds - 1, 1 - RISES) * gains.std(ddof=1) / np.sqrt(fitted.seeds)
    )
    if gains.mean() <= needed:
        return (
            f"accuracy does not clearly rise ({100 * gains.mean():+.1f} points from the first "
            "third of the checkpoints to the last)"
        )
    reached = fitted.reached()
    rise_at_least = fitted.parameters[1] - _half(fitted.deviations[:, 1])
    if reached.value < REACHED or reached.low < REACHED_AT_LEAST or rise_at_least <= 0:
        return (
            "no saturation is in sight: at the end of the budget the curve has made "
            f"{100 * reached.value:.0f} % of its rise, and "
            f"could have made as little as {100 * reached.low:.0f} % ({100 * REACHED:.0f} % and "
            f"{100 * REACHED_AT_LEAST:.0f} % are needed)"
        )
    if fitted.held_out > TOLERATED:
        error = f"{fitted.held_out:.3f} (at most {TOLERATED} is accepted)"
        return f"the first half of the budget predicts the second with an error of {error}"
    return ""


def _logit(parameters: Sequence[Any] | np.ndarray, compute: np.ndarray) -> np.ndarray:
    *_, midpoint, slope = parameters
    with np.errstate(divide="ignore"):  # nothing spent: at the start
        return np.asarray(np.exp(slope) * (np.log(compute) - midpoint))


def _slopes(parameters: np.ndarray, compute: np.ndarray) -> np.ndarray:
    """Derivatives (..., 4) of the curve by its parameters."""
    logit = _logit(parameters, compute)
    share = special.expit(logit)
    steep = parameters[1] * share * (1 - share)
    parts = (
        np.ones_like(share),
        share,
        -np.exp(parameters[3]) * steep,
        steep * np.where(steep == 0, 0, logit),
    )
    return np.stack(parts, axis=-1)


def _least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Parameters (4,) of one curve through all points, from the best of a grid."""
    x = x.ravel()
    y = y.ravel()
    near = np.log(x[x > 0].min())
    far = np.log(x.max())
    low = [-1, -3, near - 3, np.log(_SLOPES[0])]
    high = [2, 3, far + 3, np.log(_SLOPES[1])]
    inside = np.clip(_best_of_grid(x, y, near, far), np.add(low, 1e-6), np.subtract(high, 1e-6))
    solution = optimize.least_squares(
        lambda parameters: curve(parameters, x) - y,
        inside,
        jac=lambda parameters: _slopes(parameters, x),
        bounds=(low, high),
        x_scale=[0.1, 0.3, 0.5, 0.5],
        # Along a flat valley, where the curve is refused anyway, the search would go on for
        # seconds.
        max_nfev=100,
    )
    return np.asarray(solution.x)


def _best_of_grid(x: np.ndarray, y: np.ndarray, near: float, far: float) -> np.ndarray:
    """Parameters (4,) of the best curve whose midpoint and slope are on a grid: given these, it is
    a linear regression. near, far: logarithms of the least and the most compute."""
    midpoints = np.linspace(near - 1, far + 1.5, _GRID[0])
    slopes = np.linspace(np.log(0.3), np.log(8), _GRID[1])
    grid = np.meshgrid(midpoints, slopes, indexing="ij")
    places = np.stack(grid).reshape(2, -1, 1)  # each pair of a midpoint and a slope
    share = special.expit(_logit((0, 0, *places), x))

    # The regression of y on each curve's share of the rise.
    centred = share - share.mean(axis=1, keepdims=True)
    wanted = y - y.mean()
    squares = np.maximum((centred**2).sum(axis=1), 1e-9)
    rises = centred @ wanted / squares
    residuals = wanted - rises[:, None] * centred
    best = (residuals**2).sum(axis=1).argmin()

    start = y.mean() - rises[best] * share[best].mean()
    midpoint, slope = places[:, best, 0]
    return np.array([start, rises[best], midpoint, slope])


def _gauss_newton(parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One step (seeds, 4) of each seed from the common curve; the steps add up to zero."""
    slopes = _slopes(parameters, x)
    normal = np.einsum("sci,scj->ij", slopes, slopes) / len(x) + 1e-12 * np.eye(4)
    scores = np.einsum("sci,sc->si", slopes, y - curve(parameters, x))
    return np.asarray(np.linalg.solve(normal, scores.T).T)


def _half(deviations: np.ndarray) -> np.ndarray:
    """Half of Student's 95 % interval of a mean over the first axis."""
    seeds = len(deviations)
    return np.asarray(t_quantile(seeds - 1) * deviations.std(axis=0, ddof=1) / np.sqrt(seeds))
