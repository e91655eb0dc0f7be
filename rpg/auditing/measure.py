"""Subject -> result: which objective a loss follows, how far off it is, and how noisy."""

from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import inf, isfinite
from typing import Any, Self

from torch import Tensor

from rpg.auditing.moments import LossFunction, is_coupled, relative
from rpg.auditing.objectives import DIVERGENCE_NAMES, LEVELS, Objective, gradients
from rpg.auditing.subjects import Scene, Subject
from rpg.auditing.worlds import World, world

EXACT = 1e-10  # relative; float64 leaves about 1e-15
PEER_EXACT = 1e-7  # verl adds 1e-8 to denominators
NEGLIGIBLE = 1e-6  # somebody's own loss may compute in float32
RANDOM_CALLS = 1024
"""Over which the gradient of a loss that draws random numbers is averaged."""
OBJECTIVES = [Objective(level, divergence) for level in LEVELS for divergence in DIVERGENCE_NAMES]
BY_NAME = {str(objective): objective for objective in OBJECTIVES}


@dataclass(frozen=True)
class Settings:
    """The worlds a loss is audited in; a figure is the worst (bias) or mean (variance, KL) over
    `seeds`."""

    vocabulary: int = 3
    length: int = 3
    seeds: tuple[int, ...] = (0, 1)
    drifts: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.8)
    beta: float = 0.3
    batch: int = 1
    """Responses per batch; more than one for a loss whose responses affect each other: all batches
    are enumerated."""

    @property
    def shown_drift(self) -> float:
        """The drift that tables show: the measured one that is closest to 0.4."""
        return min(self.drifts, key=lambda drift: (abs(drift - 0.4), drift))

    def coupled(self) -> Self:
        """All batches of two from a world of eight responses, at two drifts."""
        drifts = tuple({0.0: 0, self.shown_drift: 0})
        return replace(self, vocabulary=2, length=3, batch=2, drifts=drifts, seeds=self.seeds[:1])

    def world(self, seed: int) -> World:
        return world(self.vocabulary, self.length, seed)

    def scenes(self, subject: Subject) -> list[Scene]:
        """At every drift in the world of every seed."""
        places = map(self.world, self.seeds)
        return [Scene.of(subject, place, drift) for place in places for drift in self.drifts]


@dataclass(frozen=True)
class Point:
    """One loss at one drift: biases by objective, and the noise of a single sample."""

    drift: float
    clipped: bool
    reference: str  # old, or third: a policy of its own
    kl: float  # KL(old || pi) per response, nats
    bias: dict[str, float]  # objective -> |E[step] - gradient| / |gradient|
    variance: float  # trace of the covariance of one response's gradient
    noise: float  # sqrt(variance) / |E[step]|


@dataclass(frozen=True)
class Result:
    """Everything measured about one loss."""

    name: str
    source: str
    beta: float
    divergence: str
    exact_on_policy: tuple[str, ...] = ()
    exact_off_policy: tuple[str, ...] = ()  # whatever the drift and the reference, without clipping
    points: tuple[Point, ...] = field(default=(), repr=False)
    note: str = ""  # why there are no figures
    # more than one: responses affect each other, and all batches of this size were enumerated
    batch: int = 1
    diagnosis: str = ""  # what the gradient is made of, in sentences

    @property
    def tolerance(self) -> float:
        """The relative bias below which the loss counts as exact."""
        return {"rpg": EXACT, "callable": NEGLIGIBLE}.get(self.source, PEER_EXACT)

    def point(self, drift: float, clipped: bool = False, reference: str = "third") -> Point | None:
        """The measurement at one drift, or None."""
        key = (drift, clipped, reference)
        return next((p for p in self.points if (p.drift, p.clipped, p.reference) == key), None)

    def unclipped(self) -> list[Point]:
        """The measurements without a clip, with a reference of its own."""
        return [p for p in self.points if not p.clipped and p.reference == "third"]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per loss, drift, clipping, reference and objective; infinite figures are
        None."""
        shared = {"loss": self.name, "source": self.source, "beta": self.beta}
        rows = []
        for point in self.points:
            flat = {k: v for k, v in asdict(point).items() if k != "bias"}
            for objective, bias in point.bias.items():
                row = shared | flat
                row["level"] = BY_NAME[objective].level
                row["divergence"] = BY_NAME[objective].divergence
                row["bias"] = bias
                row["exact"] = bias <= self.tolerance
                infinite = [k for k, v in row.items() if isinstance(v, float) and not isfinite(v)]
                rows.append(row | dict.fromkeys(infinite))
        return rows


@lru_cache(maxsize=4096)
def exact_gradients(
    w: World, drift: float, third: bool, beta: float, rewarded: bool
) -> dict[str, Tensor]:
    """objective -> its gradient, (S * V,); shared by all subjects. Not `rewarded`: of -beta D."""
    ref = w.ref if third else w.old
    exact = dict[str, Tensor]()
    for level in LEVELS:
        parts = gradients(w, w.policy(drift), ref, level)
        for name in DIVERGENCE_NAMES:
            kl = 0.0 if name == "none" else beta * parts[name]
            exact[str(Objective(level, name))] = rewarded * parts["reward"] - kl
    return exact


def _point(
    subject: Subject, settings: Settings, loss: LossFunction, reference: str, drift: float
) -> Point:
    third = reference == "third"
    size = 0.0
    variance = 0.0
    kl = 0.0
    biases: dict[str, list[float]] = {}
    for place in map(settings.world, settings.seeds):
        scene = Scene.of(subject, place, drift, third)
        moments = scene.moments(loss, settings.batch)
        size = size + moments.mean.norm().item() ** 2
        variance = variance + moments.variance
        away = (place.log_probs(place.old) - place.log_probs(scene.logits)).sum(-1)
        kl += (place.sampled() @ away).item()
        gradients_of = exact_gradients(place, drift, third, subject.beta, subject.rewarded)
        for name, exact in gradients_of.items():
            biases.setdefault(name, []).append(relative(moments.mean, exact))
    bias = {name: max(values) for name, values in biases.items()}
    worlds = len(settings.seeds)
    noise = (variance / size) ** 0.5 if size > 0 else inf
    return Point(
        drift, loss is subject.clipped, reference, kl / worlds, bias, variance / worlds, noise
    )


def measure(subject: Subject, settings: Settings = Settings()) -> Result:
    """Audit one subject. Where the responses of a batch affect each other, all batches of two are
    enumerated."""
    base = Result(
        subject.name, subject.source, subject.beta, subject.divergence, batch=settings.batch
    )
    try:
        ends = replace(
            settings, seeds=settings.seeds[:1], drifts=(settings.drifts[0], settings.drifts[-1])
        )
        pairs = product(subject.losses, ends.scenes(subject))  # without the clip and with it
        if settings.batch == 1 and any(is_coupled(loss, scene.inputs) for loss, scene in pairs):
            return measure(subject, settings.coupled())
        points = []
        for reference, drift in product(("third", "old"), settings.drifts):
            for loss in subject.losses:
                points.append(_point(subject, settings, loss, reference, drift))
    except Exception as error:  # (whatever the code of another project raises)
        if subject.source in ("rpg", "callable"):
            raise
        # the audit of the others goes on
        return replace(base, note=f"{type(error).__name__}: {error}".splitlines()[0])

    def exact(chosen: list[Point]) -> tuple[str, ...]:
        # without a KL the objectives with and without one are the same: the plain name is enough
        if not chosen:
            return ()
        names = [str(o) for o in OBJECTIVES if subject.beta or o.divergence == "none"]
        return tuple(n for n in names if all(p.bias[n] <= base.tolerance for p in chosen))

    bare = [p for p in points if not p.clipped]
    on_policy = exact([p for p in bare if p.drift == 0 and p.reference == "third"])
    off_policy = exact([p for p in bare if p.drift > 0])
    return replace(
        base, exact_on_policy=on_policy, exact_off_policy=off_policy, points=tuple(points)
    )
