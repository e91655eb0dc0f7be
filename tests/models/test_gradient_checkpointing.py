"""Layers computed again in the backward pass: the same gradients to the bit, and less kept."""

import contextlib

import pytest
import torch
from torch.autograd.graph import save_on_cpu

from benchmarks.activations import Tokenizer, peak
from rpg.models import lean
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from tests.models.expected import gpt2
from tests.models.test_lean import FAMILIES, batch, model


def policy_of(lm, **how):
    return Policy(lm, Tokenizer(), **how)


def gradients(policy, rows, recompute, outer=None, again=False):
    policy.model.zero_grad()
    policy.recompute = recompute
    with outer or contextlib.nullcontext():
        log_prob = policy.log_probs(rows, 0.9)
    slope = log_prob.detach().sin()
    found = {}
    if again:  # as where the exact gradient is looked at: twice through one graph
        parameters = list(policy.model.parameters())
        twice = torch.autograd.grad(
            log_prob, parameters, slope.cos(), retain_graph=True, allow_unused=True
        )
        found = {f"{i}": g for i, g in enumerate(twice) if g is not None}
    log_prob.backward(slope)
    found |= {
        name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None
    }
    return {"log_prob": log_prob.detach(), **found}


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("small", [True, False])
def test_lean_gradients_are_the_same_to_the_bit(family, small, bfloat16, monkeypatch):
    if not small:
        monkeypatch.setattr(lean, "_SMALL", 0)
    policy = policy_of(model(**FAMILIES[family]), bfloat16=bfloat16)
    assert policy.lean
    expected = gradients(policy, batch(), False)
    found = gradients(policy, batch(), True)
    assert [name for name, value in expected.items() if not found[name].equal(value)] == []


def test_with_a_graph_that_is_used_twice_and_with_offload():
    policy = policy_of(model())
    expected = gradients(policy, batch(), False, again=True)
    for outer in (None, save_on_cpu()):
        found = gradients(policy, batch(), True, outer, again=True)
        assert all(found[key].equal(value) for key, value in expected.items())


def test_the_most_memory_of_forward_and_backward_pass_is_less():
    """Of many layers each adds what it keeps: all that its backward pass needs, or its input."""

    def most(layers, recompute):
        policy = policy_of(model(num_hidden_layers=layers))
        rows = batch(prompts=3, rows=30, width=30)
        return peak(policy, rows, recompute)

    everything, inputs = (most(8, again) - most(2, again) for again in (False, True))
    assert inputs < everything / 8


def test_a_model_without_layers_of_ours_is_refused():
    policy = policy_of(gpt2())
    policy.recompute = True
    words = r"gradient_checkpointing: .* not those of GPT2LMHead.* backend.offload"
    with pytest.raises(ModelError, match=words):
        policy.log_probs(batch(), 1.0)
