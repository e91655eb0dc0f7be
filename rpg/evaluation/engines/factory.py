"""Starting the engine that a specification names, in this process or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rpg.config.evaluation import (
    ENGINES,
    EngineSpec,
    HuggingFaceEngineSpec,
    LocalEngineSpec,
    OnRay,
    Place,
    VllmEngineSpec,
)
from rpg.config.section import registered
from rpg.evaluation.engines.huggingface import HuggingFaceEngine
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.protocol import Engine, EngineError, Sampling
from rpg.evaluation.engines.ray import RayEngine
from rpg.evaluation.engines.vllm import VllmEngine
from rpg.models.device import missing


def start_engine(
    spec: EngineSpec,
    sampling: Sampling,
    device: str = "cpu",
    bfloat16: bool = False,
    place: Place | None = None,
    say: Callable[[str], None] = print,
) -> Engine:
    """An engine of the kind that `spec` names, where `place` says; its model comes with `load`.

    On a Ray cluster the place decides about the device. `say` reports what the cluster does. Raises EngineError: the
    engine's package is not installed, there is no such device, or the cluster cannot be used.
    """
    if isinstance(place, OnRay):
        return RayEngine(partial(engine_in_process, spec, sampling, bfloat16), sampling, place, say)
    return engine_in_process(spec, sampling, bfloat16, device)


def engine_in_process(spec: EngineSpec, sampling: Sampling, bfloat16: bool, device: str) -> Engine:
    """The same, in this process."""
    engine = _ENGINES[type(spec)]
    if isinstance(spec, VllmEngineSpec):
        return VllmEngine(sampling, spec, bfloat16)  # it chooses the device itself
    if reason := missing(device):
        raise EngineError(f"device: {reason}")
    return engine(sampling, device, bfloat16, spec.rows)


_ENGINES: dict[type, Callable[..., Engine]] = {
    LocalEngineSpec: LocalEngine,
    HuggingFaceEngineSpec: HuggingFaceEngine,
    VllmEngineSpec: VllmEngine,
}
registered("engine", ENGINES.values(), _ENGINES, "rpg/evaluation/engines/factory.py")
