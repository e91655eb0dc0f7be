"""verl's FSDP engine for the device cpu; importing this module registers it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CPUEngine(transformer_impl.FSDPEngineWithLMHead):
    """As on a GPU, except that a reference policy is not offloaded to pinned memory: pinning needs
    an accelerator."""

    def _build_fsdp_module(self, module: Any) -> Any:
        with patch.object(transformer_impl, "CPUOffloadPolicy", lambda **_: None):
            return super()._build_fsdp_module(module)


EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device="cpu")(
    transformer_impl.FSDPEngineWithValueHead
)
