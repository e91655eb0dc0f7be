"""One thread, as in a training; the sizes of models that the lean implementation treats
differently."""

import pytest
import torch

from rpg.models import lean, lean_decoding


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(params=["small", "large", "packed"])
def size(request, monkeypatch):
    """A small model's projections are joined, a large one's are not; for many steps its weights are
    packed."""
    if request.param != "small":
        monkeypatch.setattr(lean, "_SMALL", 0)
    if request.param == "packed":
        monkeypatch.setattr(lean_decoding, "_PACKED_STEPS", 1)
