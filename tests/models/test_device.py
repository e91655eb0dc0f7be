"""Devices: what is said where there is none."""

import pytest
import torch

from rpg.config.errors import ConfigError
from rpg.config.run_spec import RunSpec
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.engines.protocol import EngineError
from rpg.models.device import configure_device
from rpg.models.truncated_sampling import Sampling


def test_a_device_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = "'cuda', but torch sees no GPU here; accepted on this machine: 'cpu'"
    with pytest.raises(ConfigError, match=f"backend.device: {said}"):
        configure_device("cuda")
    with pytest.raises(EngineError, match=said):
        Drawing(RunSpec().evaluation.engine, None, Sampling(), 0, "cuda", False).start()
