"""Liger-Kernel's own kernels against ours: on a GPU, or on a CPU by Triton's interpreter (`TRITON_INTERPRET=1`)."""

import importlib.util
import os

import pytest
import torch

from rpg.models import chunked_log_prob, liger
from rpg.models.chunked_log_prob import chosen_and_entropy, chosen_log_prob

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
here = pytest.mark.skipif(
    importlib.util.find_spec("liger_kernel") is None or not (INTERPRETED or torch.cuda.is_available()),
    reason="needs liger-kernel, and a GPU or TRITON_INTERPRET=1",
)
Q, C, V, E = 41, 48, 67, 16


@pytest.fixture
def forced(monkeypatch):
    """As on a GPU, with logits in parts."""
    monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
    monkeypatch.setattr(chunked_log_prob, "_PART", 8 * V)
    monkeypatch.setattr(liger, "on_gpu", lambda hidden: True)


def inputs(dtype):
    g = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, E, generator=g).to(dtype) for n in (Q, V))
    position, token = (torch.randint(0, n, (C,), generator=g) for n in (Q, V))
    device = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
    return [one.to(device) for one in (hidden, weight, position, token, torch.randn(C, generator=g))]


def found(dtype):
    hidden, weight, position, token, slope = inputs(dtype)
    hidden.requires_grad_(), weight.requires_grad_()
    values = chosen_log_prob(hidden, weight, position, token, 1.0)
    values.backward(slope, retain_graph=True)
    first = hidden.grad.clone()
    hidden.grad = weight.grad = None
    values.backward(slope)  # nothing that the first pass needs was written over
    assert first.equal(hidden.grad)
    return values.detach(), hidden.grad, weight.grad


@here
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-6)])
def test_values_and_the_gradient_of_every_token_are_ours(forced, monkeypatch, dtype, close):
    """In bfloat16 its gradient is rounded twice where ours is once."""
    calls = []
    original = liger.chosen_log_prob
    monkeypatch.setattr(liger, "chosen_log_prob", lambda *args: calls.append(1) or original(*args))
    theirs = found(dtype)
    assert calls
    monkeypatch.setattr(liger, "on_gpu", lambda hidden: False)
    ours = found(dtype)
    for one, other in zip(theirs, ours, strict=True):
        assert one.dtype == other.dtype
        assert float((one - other).abs().max()) <= close * float(other.abs().max())


def test_what_it_cannot_do_is_ours(forced, monkeypatch):
    """Entropies, a temperature, tokens that are closed, many tokens for a position; and a version without what it needs."""
    monkeypatch.setattr(liger, "_cross_entropy", lambda: None)
    hidden, weight, position, token, _ = inputs(torch.float32)
    expected = chosen_log_prob(hidden, weight, position, token, 1.0)

    def never(*args, **options):
        raise AssertionError("it was asked")

    monkeypatch.setattr(liger, "_cross_entropy", lambda: never)
    with pytest.raises(AssertionError, match="it was asked"):
        chosen_log_prob(hidden, weight, position, token, 1.0)
    chosen_log_prob(hidden, weight, position, token, 0.7)
    closed = chunked_log_prob.Closed(hidden[:, 0] > 0, token[:1])
    chosen_log_prob(hidden, weight, position, token, 1.0, closed)
    assert torch.allclose(chosen_and_entropy(hidden, weight, position, token, 1.0)[0], expected)
    twice = chosen_log_prob(hidden, weight, position.repeat(2), token.repeat(2), 1.0)
    assert torch.allclose(twice, expected.repeat(2))
