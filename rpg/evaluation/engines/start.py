"""Which engine a specification means, and where it runs."""

from __future__ import annotations

from collections.abc import Callable

from rpg.config.evaluation import EngineSpec, OnRay, Place
from rpg.evaluation.engines.here import engine_here
from rpg.evaluation.engines.protocol import Engine, Sampling


def start_engine(
    spec: EngineSpec,
    sampling: Sampling,
    device: str = "cpu",
    bfloat16: bool = False,
    place: Place | None = None,
    say: Callable[[str], None] = print,
) -> Engine:
    """An engine of the kind that `spec` names, in this process or where `place` says; its model comes with `load`.

    On a Ray cluster the place decides about the device. `say` gets lines about what the cluster does.

    Raises:
        EngineError: the engine's package is not installed, or the cluster cannot be had.
    """
    if isinstance(place, OnRay):
        from rpg.evaluation.engines.ray import RayEngine

        return RayEngine(sampling, spec, place, bfloat16, say)
    return engine_here(spec, sampling, device, bfloat16)
