"""Log-probabilities computed in parts are those computed at once, and so are their gradients."""

import pytest
import torch

from rpg.models import chunked_log_prob
from rpg.models.chunked_log_prob import chosen_log_prob, log_prob_of_logits

Q = 23
E = 8
V = 50
C = 40


def inputs(dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, E, generator=g).to(dtype).requires_grad_() for n in (Q, V))
    position = torch.randint(0, Q, (C,), generator=g)
    token = torch.randint(0, V, (C,), generator=g)
    position[1], token[1] = position[0], token[0]  # equal responses
    return hidden, weight, position, token, torch.randn(C, generator=g)


def found(inputs, temperature):
    hidden, weight, position, token, slope = inputs
    hidden.grad = weight.grad = None
    values, _ = chosen_log_prob(hidden, weight, position, token, temperature)
    (values * slope).sum().backward()
    return values.detach(), hidden.grad, weight.grad


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("rows", [1, 5, Q])
@pytest.mark.parametrize("kept", [0, 2 * 5 * V, Q * V])
def test_log_probabilities_in_parts_equal_those_at_once(monkeypatch, rows, kept, temperature):
    whole = found(inputs(), temperature)
    monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
    monkeypatch.setattr(chunked_log_prob, "_PART", rows * V)
    monkeypatch.setattr(chunked_log_prob, "_KEPT", kept)
    for part, expected in zip(found(inputs(), temperature), whole, strict=True):
        assert torch.allclose(part, expected, rtol=1e-5, atol=1e-5)


def test_bfloat16_is_summed_in_float32(monkeypatch):
    whole = found(inputs(torch.bfloat16), 1.0)
    monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
    parts = found(inputs(torch.bfloat16), 1.0)
    assert parts[0].dtype == torch.float32
    for part, expected in zip(parts, whole, strict=True):
        assert part.dtype == expected.dtype
        assert torch.allclose(part, expected, rtol=0.02, atol=0.02)
    with torch.autocast("cpu", torch.bfloat16):
        cast = found(inputs(), 1.0)
    assert cast[1].dtype == torch.float32
    assert torch.allclose(cast[0], whole[0], atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_in_parts_are_the_whole(monkeypatch, dtype):
    monkeypatch.setattr(chunked_log_prob, "_PART", 5 * V)
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(Q, V, generator=g).to(dtype)
    labels = torch.randint(0, V, (Q,), generator=g)
    leaf = logits.clone().requires_grad_()
    slope = torch.randn(Q, generator=g)
    (expected := leaf.float().log_softmax(-1)[torch.arange(Q), labels]).backward(slope)
    other = logits.clone().requires_grad_()
    values = log_prob_of_logits(other * 1, labels)
    values.backward(slope)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(other.grad, leaf.grad)


def test_nothing_is_kept_without_a_gradient(monkeypatch):
    monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
    *rest, _ = inputs()
    expected, _ = chosen_log_prob(*rest, 1.0)
    with torch.no_grad():
        values, _ = chosen_log_prob(*rest, 1.0)
    assert not values.requires_grad
    assert values.equal(expected.detach())
    frozen = [rest[0], rest[1].detach(), *rest[2:]]
    chosen_log_prob(*frozen, 1.0)[0].sum().backward()
    assert rest[0].grad is not None


@pytest.mark.parametrize("kept", [0, Q * V])
def test_a_second_backward_pass_gives_the_same(monkeypatch, kept):
    """As `training.fidelity_every` makes one, and the audit of a checkpoint's gradients."""
    monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
    monkeypatch.setattr(chunked_log_prob, "_PART", 5 * V)
    monkeypatch.setattr(chunked_log_prob, "_KEPT", kept)
    hidden, weight, position, token, slope = inputs()
    values, _ = chosen_log_prob(hidden, weight, position, token, 1.0)
    passes = [
        torch.autograd.grad(values, (hidden, weight), slope, retain_graph=True) for _ in range(2)
    ]
    assert all(one.equal(other) for one, other in zip(*passes, strict=True))


def test_a_bfloat16_weight_s_gradient_is_summed_over_chunks_in_float32(monkeypatch):
    """600 equal terms: in bfloat16 the sum stops growing at 256 times a term."""
    count = 600
    hidden = torch.ones(count, E, dtype=torch.bfloat16)
    weight = torch.zeros(V, E, dtype=torch.bfloat16, requires_grad=True)
    index = torch.arange(count)
    monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
    monkeypatch.setattr(chunked_log_prob, "_PART", V)
    values, _ = chosen_log_prob(hidden, weight, index, torch.zeros_like(index), 1.0)
    values.sum().backward()
    assert weight.grad[0].tolist() == pytest.approx([count * (1 - 1 / V)] * E, rel=2**-8)
    assert weight.grad[1].tolist() == pytest.approx([-count / V] * E, rel=2**-6)


def test_many_chunks_in_bfloat16_give_the_gradient_of_one_float32_product(monkeypatch):
    """1,500 chunks of a position each; slopes of one sign, so that the sum grows as it would with
    advantages of one sign."""
    count = 1500
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(count, E, generator=generator).abs().bfloat16()
    weight = (0.3 * torch.randn(V, E, generator=generator)).bfloat16().requires_grad_()
    token = torch.randint(0, V, (count,), generator=generator)
    slope = torch.rand(count, generator=generator)
    log_p = torch.log_softmax((hidden @ weight.detach().t()).float(), -1)
    by_logit = slope[:, None] * (torch.nn.functional.one_hot(token, V) - log_p.exp())
    expected = by_logit.bfloat16().float().t() @ hidden.float()
    monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
    monkeypatch.setattr(chunked_log_prob, "_PART", V)
    values, _ = chosen_log_prob(hidden, weight, torch.arange(count), token, 1.0)
    (values * slope).sum().backward()
    apart = (weight.grad.float() - expected).norm() / expected.norm()
    assert apart < 2**-8, "no further than the gradient's own type rounds it"
