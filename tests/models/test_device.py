"""Devices: what is there, and what is said where it is not."""

import pytest
import torch

from rpg.config.errors import ConfigError
from rpg.config.run_spec import RunSpec
from rpg.evaluation.engines.factory import start_engine
from rpg.evaluation.engines.protocol import EngineError, Sampling
from rpg.models.device import configure_device, missing


def test_a_device_that_is_not_there_is_said_with_those_that_are(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    said = "'mps', but torch sees no Apple GPU (Metal) here; accepted on this machine: 'cpu' or 'cuda'"
    assert missing("mps") == said and missing("cpu") == missing("cuda") == ""
    with pytest.raises(ConfigError) as error:
        configure_device("mps")
    assert str(error.value) == f"backend.device: {said}"
    spec = RunSpec.model_validate({"backend": {"device": "mps"}})
    with pytest.raises(EngineError, match="no Apple GPU"):
        start_engine(spec.evaluation.engine, Sampling(), spec.backend.device)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    configure_device("mps")
    assert "no GPU here; accepted on this machine: 'cpu' or 'mps'" in missing("cuda")


def test_only_the_embedded_trainer_takes_it():
    assert RunSpec.model_validate({"backend": {"device": "mps"}}).backend.device == "mps"
    with pytest.raises(ValueError, match="'cpu' or 'cuda'"):
        RunSpec.model_validate({"backend": {"type": "verl", "device": "mps"}})
