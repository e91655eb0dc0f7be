"""Layers computed again in the backward pass: the same gradients to the bit, and less kept."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
)

from benchmarks.activations import Tokenizer, peak
from rpg.models import activation_offload, lean
from rpg.models.activation_offload import offloaded
from rpg.models.gradient_checkpointing import layers_recomputed
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from tests.models.expected import gpt2
from tests.models.test_lean import FAMILIES, batch, model


def neox():
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=19, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=64, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


def policy_of(lm, **how):
    return Policy(lm, Tokenizer(), **how)


def one_prompt_each():
    rows = batch(prompts=6, rows=6)
    rows.prompt_of.copy_(torch.arange(6))
    return rows


def gradients(policy, rows, recompute, outer=None, again=False):
    policy.model.zero_grad()
    policy.recompute = recompute
    if outer is None:
        log_prob = policy.log_probs(rows, 0.9)
    else:
        with outer:
            log_prob = policy.log_probs(rows, 0.9)
    slope = log_prob.detach().sin()
    found = {}
    if again:  # as where the exact gradient is looked at: twice through one graph
        parameters = list(policy.model.parameters())
        twice = torch.autograd.grad(log_prob, parameters, slope.cos(), retain_graph=True, allow_unused=True)
        found = {f"{i}": g for i, g in enumerate(twice) if g is not None}
    log_prob.backward(slope)
    found |= {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}
    return {"log_prob": log_prob.detach(), **found}


def same(policy, rows, **how):
    expected, found = gradients(policy, rows, False), gradients(policy, rows, True, **how)
    assert expected.keys() <= found.keys()
    assert [name for name, value in expected.items() if not found[name].equal(value)] == []
    return expected, found


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("small", [True, False])
def test_lean_gradients_are_the_same_to_the_bit(family, small, bfloat16, monkeypatch):
    if not small:
        monkeypatch.setattr(lean, "_SMALL", 0)
    policy = policy_of(model(**FAMILIES[family]), bfloat16=bfloat16)
    assert policy.lean
    same(policy, batch())


OTHERS = {
    "gpt2": gpt2,
    "gpt-neox": neox,
    "qwen3": model,
    "qwen2": lambda: model(family=Qwen2Config),
    "llama": lambda: model(family=LlamaConfig),
    "mistral, a window that is left": lambda: model(family=MistralConfig, sliding_window=5),
}


@pytest.mark.parametrize("rows", [batch, one_prompt_each], ids=["shared prompts", "a prompt each"])
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_gradients_of_transformers_models_are_the_same_to_the_bit(name, bfloat16, rows):
    lm = OTHERS[name]()
    policy = policy_of(lm, bfloat16=bfloat16, lean=False)
    same(policy, rows())
    assert not any("forward" in vars(module) for module in lm.modules()), "layers are as they were"


@pytest.mark.parametrize("name", ["lean", "gpt2"])
def test_with_a_graph_that_is_used_twice_and_with_offload(name, tmp_path, monkeypatch):
    monkeypatch.setattr(activation_offload, "SMALLEST", 1)
    policy = policy_of(model() if name == "lean" else gpt2())
    expected = gradients(policy, batch(), False, again=True)
    for outer in (None, offloaded(policy.model, tmp_path)):
        found = gradients(policy, batch(), True, outer, again=True)
        assert all(found[key].equal(value) for key, value in expected.items())


@pytest.mark.parametrize("name", ["lean", "gpt2", "qwen3"])
def test_the_most_memory_of_forward_and_backward_pass_is_less(name):
    """Of many layers each adds what it keeps: all that its backward pass needs, or its input (and keys and values)."""

    def most(layers, recompute):
        lm = gpt2(layers) if name == "gpt2" else model(num_hidden_layers=layers)
        policy, rows = policy_of(lm, lean=name == "lean"), batch(prompts=3, rows=30, width=30)
        return peak(policy, rows, recompute)

    everything, inputs = (most(8, again) - most(2, again) for again in (False, True))
    assert inputs < everything / (8 if name == "lean" else 4)


def test_nothing_is_done_where_no_gradient_is_wanted():
    policy = policy_of(gpt2())
    with torch.no_grad():
        before = policy.log_probs(batch(), 1.0)
        policy.recompute = True
        assert policy.log_probs(batch(), 1.0).equal(before)


def test_a_model_that_does_not_mark_its_layers_is_refused():
    with (
        pytest.raises(
            ModelError, match=r"backend.gradient_checkpointing: Linear does not mark .* backend.offload"
        ),
        layers_recomputed(torch.nn.Linear(2, 2)),
    ):
        pass
