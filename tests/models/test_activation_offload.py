"""What the backward pass needs, kept in a file meanwhile: the same gradients to the bit."""

import gc
import os
from pathlib import Path

import pytest
import torch

from rpg.models import activation_offload
from rpg.models.activation_offload import offloaded
from rpg.models.decoding import Batch
from rpg.models.policy import Policy


def gradients(policy, batch, folder=None):
    policy.model.zero_grad()
    if folder is None:
        log_prob = policy.log_probs(batch, 1.0)
    else:
        with offloaded(policy.model, folder):
            log_prob = policy.log_probs(batch, 1.0)
    (log_prob * log_prob.detach().sin()).sum().backward()
    return {name: p.grad.clone() for name, p in policy.model.named_parameters()}


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 20, (24, 12), generator=draw)
    lengths = torch.randint(1, 13, (24,), generator=draw)
    tokens = torch.where(torch.arange(12) < lengths[:, None], tokens, 0)
    return Batch([[5, 6, 7], [8, 9], [4]], torch.arange(24) // 8, tokens, lengths)


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("smallest", [1, activation_offload.SMALLEST])
def test_gradients_are_the_same_to_the_bit(policy, batch, tmp_path, monkeypatch, lean, bfloat16, smallest):
    monkeypatch.setattr(activation_offload, "SMALLEST", smallest)
    policy = Policy(policy.model, policy.tokenizer, bfloat16=bfloat16, lean=lean)
    expected = gradients(policy, batch)
    found = gradients(policy, batch, tmp_path)
    assert all(found[name].equal(value) for name, value in expected.items())
    assert list(tmp_path.iterdir()) == [], "the file has no name"


def test_the_file_is_gone_with_what_needed_it(policy, batch, tmp_path):
    for _ in range(3):
        gradients(policy, batch, tmp_path)
    gc.collect()
    opened = [os.path.realpath(link) for link in Path("/proc/self/fd").glob("*")]  # none without /proc
    assert not [path for path in opened if path.startswith(str(tmp_path))]


def test_a_tensor_comes_back_with_its_strides_and_alignment(tmp_path):
    keep = activation_offload._to_file(tmp_path)
    whole = torch.arange(6000, dtype=torch.float32).reshape(50, 120)
    for tensor in (whole, whole.t(), whole[:, 30:60], whole[1:, 3:].t(), whole.bfloat16()[:, 1:], whole > 7):
        back = keep(tensor)()
        assert back.equal(tensor) and back.stride() == tensor.stride() and back.dtype == tensor.dtype
        assert back.data_ptr() % 64 == tensor.data_ptr() % 64
