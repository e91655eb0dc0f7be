"""The entries of the catalogue, those of entries.yaml and what the RPG paper makes of each
divergence; and looking one up by name and preset, with overrides. Errors name the accepted values.
"""

from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any

from rpg.catalogue.components import DistributionKL, Estimator, ObjectiveKL
from rpg.catalogue.divergences import DIVERGENCES, Divergence, read
from rpg.catalogue.entry import Algorithm, AlgorithmError, override


@cache
def _entries() -> dict[tuple[str, str | None], Algorithm]:
    """(name, preset) -> entry, in the order of the documentation."""
    listed = [_with_rows(**entry) for entry in read("entries.yaml")]
    kinds = product((False, True), DIVERGENCES.values())
    rpg = (entry for reinforce, divergence in kinds for entry in _rpg(divergence, reinforce))
    return {(entry.name, entry.preset): entry for entry in (*rpg, *listed)}


def _with_rows(display_name: str, paper_tables: Iterable[str] = (), **settings: Any) -> Algorithm:
    rows = tuple(f"{table}: {display_name}" for table in paper_tables)
    return Algorithm(display_name=display_name, paper_rows=rows, **settings)


def _rpg(divergence: Divergence, reinforce: bool) -> Iterator[Algorithm]:
    """The paper's loss (arXiv 2505.17508, its Appendix H), and what is released under its name if
    that is another."""
    name = ("RPG-REINFORCE-" if reinforce else "RPG-") + divergence.name.upper()
    has_released = bool(divergence.paper_tables)
    style = "reinforce" if reinforce else "differentiable"
    objective = {"type": "objective", "divergence": divergence.name, "style": style}
    kl: dict[str, Any] = {"kl": objective, "beta": 1e-4}
    clip = {"low": 0.2, "high": 0.28, "c": 10.0}
    entry = partial(
        _with_rows,
        name=name.lower(),
        display_name=name,
        citation=divergence.citation,
        paper_tables=divergence.paper_tables,
        advantage={"type": "group", "std": False},
        dynamic_sampling=True,
        overlong={"buffer_fraction": 0.25, "factor": 1.0},
    )
    yield entry(
        preset="paper" if has_released else None,
        description=f"Exact gradient under {divergence.words}, "
        + (
            "REINFORCE style with RPG-Style Clip."
            if reinforce
            else "fully differentiable, dual clip."
        ),
        formula=f"−sg({divergence.weight}) log π" if reinforce else f"−wR {divergence.term}",
        objective=f"E_π[R] − β {divergence.penalty}, clipped",
        surrogate="rpg",
        clip=clip if reinforce or divergence.advantage_slope else clip | {"gradient": "detached"},
        **kl,
    )
    released = partial(entry, preset="released", surrogate="ppo_clip", clip=clip)
    if has_released and reinforce:
        yield released(
            description="What the released rf_clip_ppo scripts run: dual-clip PPO; the KL is never "
            "added.",
            formula="−min(wR, clip(w)R), dual clip",
            objective="E_π[R], clipped; no KL",
        )
    elif has_released:
        yield released(
            description=f"Dual-clip PPO on the raw advantage, plus {divergence.words}, unclipped.",
            formula=f"−min(wR, clip(w)R) {divergence.term}",
            objective=f"E_π[R] − β {divergence.penalty}, reward term clipped",
            **kl,
        )


def algorithms(preset: str = "paper") -> dict[str, Algorithm]:
    """The catalogue: {name: Algorithm}, in the order of the documentation."""
    names = dict.fromkeys(name for name, _ in _entries())
    return {name: algorithm(name, preset) for name in names}


def algorithm(name: str, preset: str = "paper", **overrides: Any) -> Algorithm:
    """The catalogue entry `name`, with keyword overrides; nested dicts are merged into nested
    settings.

    Where the paper and its released code differ, `preset` chooses; where they agree it has no
    effect. Raises AlgorithmError for an unknown name, preset, field or value.
    """
    if preset not in ("paper", "released"):
        raise AlgorithmError("preset", preset, ("paper", "released"))
    entries_of = _entries()
    base = (
        entries_of.get((name, preset))
        or entries_of.get((name, None))
        or entries_of.get((name, "paper"))
    )
    if base is None:
        raise AlgorithmError("algorithm", name, tuple(dict.fromkeys(n for n, _ in entries_of)))
    return override(base, **overrides) if overrides else base


ESTIMATED: dict[Estimator, str] = {"k1": "rkl", "k2": "rkl", "k3": "rkl"}
"""The divergence that each estimator estimates (Schulman 2020): KL(policy || reference)."""


def divergence_of(algo: Algorithm) -> str:
    """The KL that a loss is meant to have: a name of DIVERGENCES that is its own `normalised`,
    `jsd`, or `none`. Raises AlgorithmError for an estimator that ESTIMATED does not name."""
    kl = algo.kl
    if kl.type == "none" or not algo.beta:
        return "none"
    if isinstance(kl, DistributionKL):
        return kl.divergence
    if isinstance(kl, ObjectiveKL):
        return normalised(kl.divergence)
    if kl.estimator not in ESTIMATED:
        why = f"rpg/catalogue/lookup.py does not say what estimator {kl.estimator} estimates"
        raise AlgorithmError("kl.estimator", kl.estimator, tuple(ESTIMATED), why)
    return ESTIMATED[kl.estimator]


def normalised(divergence: str) -> str:
    """What a divergence is for policies that sum to one; `none` stays. Raises AlgorithmError for an
    unknown name."""
    if divergence == "none":
        return divergence
    if divergence not in DIVERGENCES:
        raise AlgorithmError("divergence", divergence, tuple(DIVERGENCES))
    return DIVERGENCES[divergence].normalised


def exact_loss(divergence: str, beta: float, **overrides: Any) -> Algorithm:
    """The unclipped RPG loss of a divergence (or of `none`), of several the least noisy;
    `overrides` of the rest."""
    less_noisy = (
        d.name for d in DIVERGENCES.values() if d.normalised == divergence and d.unnormalised
    )
    if divergence == "none":
        return algorithm("rpg-urkl", kl="none", clip=None, **overrides)
    return algorithm(f"rpg-{next(less_noisy, divergence)}", beta=beta, clip=None, **overrides)
