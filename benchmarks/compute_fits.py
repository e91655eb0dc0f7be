"""How often the intervals of a compute fit cover planted curves, and how often it refuses what does
not saturate.

    # every cell, 1,000 studies each: about ten minutes
    python -m benchmarks.compute_fits
    python -m benchmarks.compute_fits --studies 200 --only late

A study has 21 checkpoints with one answer to each of 192 problems. The parameters of its seeds are
normal around those planted (midpoint and slope in logarithms). `wide`: seeds differ twice as much;
`wandering`: accuracies of a seed wander as well, as a random walk. Coverage is that of the fits
that are not refused. The exit code is 1 if a coverage lies outside of 93 to 97 %, or fewer than 98
% of the curves without saturation are refused, by more than the error of the simulation (binomial
test at 5 %, Bonferroni over the cells).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from rpg.stats import saturating_curves

BUDGET, CHECKPOINTS, PROBLEMS = 3e5, 21, 192
SEEDS = 3, 5, 10
FAR = 3.0  # budgets at which the curve is looked at beyond its end
SPREADS = np.array([0.01, 0.03, 0.15, 0.1])
"""Standard deviations over seeds of start, rise, and the logarithms of midpoint and slope."""
COVERED, REFUSED = (0.93, 0.97), 0.98


class Planted(NamedTuple):
    """Accuracies at the start and far beyond the budget, the midpoint in budgets, the slope; and
    how seeds differ."""

    start: float
    asymptote: float
    midpoint: float
    slope: float
    spread: float = 1.0
    wanders: float = 0.0

    def parameters(self) -> np.ndarray:
        rise = self.asymptote - self.start
        return np.array([self.start, rise, np.log(self.midpoint * BUDGET), np.log(self.slope)])


CURVES = {
    "early": Planted(0.1, 0.8, 0.15, 2.5),
    "middle": Planted(0.2, 0.7, 0.2, 1.5),
    "late": Planted(0.3, 0.6, 0.3, 2.0),
    "gradual": Planted(0.1, 0.9, 0.1, 1.0),
    "wide": Planted(0.2, 0.7, 0.2, 1.5, spread=2.0),
    "wandering": Planted(0.2, 0.7, 0.2, 1.5, wanders=0.01),
}
WITHOUT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "line": lambda share: 0.2 + 0.5 * share,
    "gentle line": lambda share: 0.2 + 0.2 * share,
    "line in log compute": lambda share: 0.2 + 0.5 * np.log1p(20 * share) / np.log(21),
    "square root": lambda share: 0.2 + 0.5 * np.sqrt(share),
    "accelerating": lambda share: 0.2 + 0.5 * share**2,
    "midpoint at the end": lambda share: (
        0.2 + 0.6 * special.expit(2 * np.log(np.maximum(share, 1e-9)))
    ),
    "up and down": lambda share: 0.2 + 1.6 * share * (1 - share),
    "flat": lambda share: 0.4 + 0 * share,
}


def measured(
    rng: np.random.Generator,
    truth: Callable[[np.ndarray], np.ndarray],
    seeds: int,
    wanders: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute and measured accuracy (seeds, checkpoints); seeds draw longer and shorter
    responses."""
    compute = np.linspace(0, BUDGET, CHECKPOINTS) * np.exp(rng.normal(0, 0.05, (seeds, 1)))
    chance = truth(compute) + wanders * rng.normal(size=compute.shape).cumsum(axis=1)
    return compute, rng.binomial(PROBLEMS, np.clip(chance, 0.001, 0.999)) / PROBLEMS


def study(rng: np.random.Generator, planted: Planted, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    each = planted.parameters() + planted.spread * SPREADS * rng.normal(size=(seeds, 4))

    def truth(compute: np.ndarray) -> np.ndarray:
        return np.stack(
            [
                saturating_curves.curve(own, amount)
                for own, amount in zip(each, compute, strict=True)
            ]
        )

    return measured(rng, truth, seeds, planted.wanders)


def without_saturation(
    rng: np.random.Generator, name: str, seeds: int
) -> tuple[np.ndarray, np.ndarray]:
    shift = rng.normal(0, 0.02, (seeds, 1))
    return measured(
        rng, lambda compute: WITHOUT[name](compute / BUDGET) + shift * (compute > 0), seeds
    )


def covered(fit: saturating_curves.ComputeFit, planted: Planted) -> list[bool]:
    """Whether asymptote, midpoint, slope, and the accuracy at FAR budgets lie in their
    intervals."""
    truth = planted.parameters()
    wanted = [planted.asymptote, planted.midpoint * BUDGET, planted.slope]
    inside = [
        low <= value <= high
        for value, (_, low, high) in zip(
            wanted, (fit.asymptote, fit.midpoint, fit.slope), strict=True
        )
    ]
    _, low, high = fit.at(FAR * BUDGET)
    return [*inside, bool(low <= saturating_curves.curve(truth, np.array(FAR * BUDGET)) <= high)]


def coverage(planted: Planted, seeds: int, studies: int) -> tuple[np.ndarray, float]:
    """(given fits, 4) whether covered, and the median width of the asymptote's interval."""
    rng = np.random.default_rng([seeds, studies])
    fits = [saturating_curves.fit(*study(rng, planted, seeds)) for _ in range(studies)]
    given = [fit for fit in fits if not fit.refusal]
    widths = [fit.asymptote.high - fit.asymptote.low for fit in given]
    return np.array([covered(fit, planted) for fit in given]).reshape(-1, 4), float(
        np.median(widths)
    )


def refused(name: str, seeds: int, studies: int) -> int:
    rng = np.random.default_rng([seeds, studies])
    return sum(
        bool(saturating_curves.fit(*without_saturation(rng, name, seeds)).refusal)
        for _ in range(studies)
    )


def outside(hits: int, trials: int, low: float, high: float, cells: int) -> bool:
    error = 0.05 / cells
    return bool(
        stats.binom.cdf(hits, trials, low) < error or stats.binom.sf(hits - 1, trials, high) < error
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--only", choices=[*CURVES, *WITHOUT])
    options = parser.parse_args()
    curves = [name for name in CURVES if options.only in (None, name)]
    others = [name for name in WITHOUT if options.only in (None, name)]
    wrong = []
    if curves:
        print(
            "| curve | seeds | given | asymptote | midpoint | slope | at 3 budgets | width "
            "of asymptote |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in curves:
        for seeds in SEEDS:
            hits, width = coverage(CURVES[name], seeds, options.studies)
            shares = " | ".join(f"{share:.1%}" for share in hits.mean(axis=0))
            print(
                f"| {name} | {seeds} | {len(hits) / options.studies:.1%} | {shares} | "
                f"{width:.3f} |",
                flush=True,
            )
            cells = 4 * len(CURVES) * len(SEEDS)
            if any(outside(int(count), len(hits), *COVERED, cells) for count in hits.sum(axis=0)):
                wrong.append(f"{name}, {seeds} seeds")
    if others:
        print(
            "\n| without saturation | "
            + " | ".join(f"refused, {seeds} seeds" for seeds in SEEDS)
            + " |"
        )
        print("|---|" + "--:|" * len(SEEDS))
    for name in others:
        counts = [refused(name, seeds, options.studies) for seeds in SEEDS]
        print(
            f"| {name} | "
            + " | ".join(f"{count / options.studies:.1%}" for count in counts)
            + " |",
            flush=True,
        )
        cells = len(WITHOUT) * len(SEEDS)
        wrong += [name for count in counts if outside(count, options.studies, REFUSED, 1.0, cells)]
    print(f"\nOutside: {'; '.join(wrong) or 'none'}.")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
