"""The engines of this process, one function per kind; each imports what only it needs."""

from __future__ import annotations

from typing import Any

from rpg.config.evaluation import ENGINES, EngineSpec, HuggingFaceEngineSpec, LocalEngineSpec, VllmEngineSpec
from rpg.config.section import registered
from rpg.evaluation.engines.protocol import Engine, EngineError, Sampling


def engine_here(spec: EngineSpec, sampling: Sampling, device: str = "cpu", bfloat16: bool = False) -> Engine:
    """An engine of the kind that `spec` names, in this process; its model comes with `load`.

    Raises:
        EngineError: the engine's package is not installed, or there is no such device.
    """
    return _STARTS[type(spec)](spec, sampling, device, bfloat16)


def _local(spec: LocalEngineSpec, sampling: Sampling, device: str, bfloat16: bool) -> Engine:
    from rpg.evaluation.engines.local import LocalEngine

    _check(device)
    return LocalEngine(sampling, device, bfloat16, spec.rows)


def _huggingface(spec: HuggingFaceEngineSpec, sampling: Sampling, device: str, bfloat16: bool) -> Engine:
    from rpg.evaluation.engines.huggingface import HuggingFaceEngine

    _check(device)
    return HuggingFaceEngine(sampling, device, bfloat16, spec.rows)


def _vllm(spec: VllmEngineSpec, sampling: Sampling, device: str, bfloat16: bool) -> Engine:
    from rpg.evaluation.engines.vllm import VllmEngine

    return VllmEngine(sampling, spec, bfloat16)  # it finds the device by itself


_STARTS: dict[type, Any] = {
    LocalEngineSpec: _local,
    HuggingFaceEngineSpec: _huggingface,
    VllmEngineSpec: _vllm,
}
registered("engine", ENGINES.values(), _STARTS, "rpg/evaluation/engines/here.py")


def _check(device: str) -> None:
    from rpg.models.device import missing

    if why := missing(device):
        raise EngineError(f"device: {why}")
