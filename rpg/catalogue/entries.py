"""The entries of the catalogue: those of entries.yaml, and what the RPG paper makes of each divergence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rpg.catalogue.divergences import DIVERGENCES, Divergence, read
from rpg.catalogue.entry import Algorithm


def entries() -> Iterator[Algorithm]:
    """Every (name, preset) of the catalogue, in the order of the documentation."""
    for reinforce in (False, True):
        for divergence in DIVERGENCES.values():
            yield from _rpg(divergence, reinforce)
    for entry in read("entries.yaml"):
        yield _with_rows(**entry)


def _with_rows(display_name: str, paper_tables: tuple[str, ...] = (), **settings: Any) -> Algorithm:
    rows = tuple(f"{table}: {display_name}" for table in paper_tables)
    return Algorithm(display_name=display_name, paper_rows=rows, **settings)


def _rpg(divergence: Divergence, reinforce: bool) -> Iterator[Algorithm]:
    """The paper's loss (arXiv 2505.17508, its Appendix H), and what is released under its name if that is another."""
    name = ("RPG-REINFORCE-" if reinforce else "RPG-") + divergence.name.upper()
    has_released = bool(divergence.paper_tables)
    kl = {"type": "objective", "divergence": divergence.name}
    clip = {"low": 0.2, "high": 0.28, "c": 10.0}
    common: dict[str, Any] = {
        "name": name.lower(),
        "display_name": name,
        "citation": divergence.citation,
        "paper_tables": divergence.paper_tables,
        "advantage": {"type": "group", "std": False},
        "dynamic_sampling": True,
        "overlong": {"buffer_fraction": 0.25, "factor": 1.0},
    }
    yield _with_rows(
        **common,
        preset="paper" if has_released else None,
        description=f"Exact gradient under {divergence.words}, "
        + ("REINFORCE style with RPG-Style Clip." if reinforce else "fully differentiable, dual clip."),
        formula=f"−sg({divergence.weight}) log π" if reinforce else f"−wR {divergence.term}",
        objective=f"E_π[R] − β {divergence.penalty}, clipped",
        surrogate="rpg",
        kl=kl | {"style": "reinforce" if reinforce else "differentiable"},
        beta=1e-4,
        clip=clip if reinforce or divergence.advantage_slope else clip | {"gradient": "detached"},
    )
    if not has_released:
        return
    released = {**common, "preset": "released", "surrogate": "ppo_clip", "clip": clip}
    if reinforce:
        yield _with_rows(
            **released,
            description="What the released rf_clip_ppo scripts run: dual-clip PPO; the KL is never added.",
            formula="−min(wR, clip(w)R), dual clip",
            objective="E_π[R], clipped; no KL",
        )
    else:
        yield _with_rows(
            **released,
            description=f"Dual-clip PPO on the raw advantage, plus {divergence.words}, unclipped.",
            formula=f"−min(wR, clip(w)R) {divergence.term}",
            objective=f"E_π[R] − β {divergence.penalty}, reward term clipped",
            kl=kl | {"style": "differentiable"},
            beta=1e-4,
        )
