"""Models with low-rank adapters: the lean pass and transformers agree, and merged they are ordinary
models."""

import copy
import sys
from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, FalconConfig, Llama4TextConfig, Qwen3MoeConfig

from rpg.config.model import Lora
from rpg.models import generic_model, lean
from rpg.models.four_bit import pack_base
from rpg.models.lean_decoding import LeanEngine
from rpg.models.lora import adapt, adapters, merged
from rpg.models.model_loading import ModelError
from rpg.planning.model_shapes import Shape
from tests.models.expected import expected_log_probs, gpt2, log_probs, sampled
from tests.models.test_lean import CASES, FAMILIES, batch, model

half_dense = partial(
    model, family=Qwen3MoeConfig, mlp_only_layers=[0], num_experts=2, num_experts_per_tok=1
)
FALCON = FalconConfig(vocab_size=19, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
falcon = partial(AutoModelForCausalLM.from_config, FALCON)
llama4 = partial(model, family=Llama4TextConfig, num_local_experts=2, intermediate_size_mlp=48)
ALL = Lora(rank=3, alpha=6)
SOME = Lora(rank=2, alpha=3, targets=("q_proj", "down_proj"))


def with_adapters(lm, lora, seed=0):
    adapt(lm, lora, seed)
    for number, (name, value) in enumerate(adapters(lm).items()):
        if "lora_B" in name:  # zeros would hide adapters that are left out
            value.normal_(std=0.2, generator=torch.Generator().manual_seed(number))
    return lm


@pytest.mark.parametrize("lora", [ALL, SOME], ids=["all", "some"])
@pytest.mark.parametrize("family", ["qwen3", "llama, biases"])
def test_values_gradients_and_samples_are_those_of_transformers(family, lora, size):
    plain = model(**FAMILIES[family])
    lm = with_adapters(copy.deepcopy(plain), lora)
    rows = batch(**CASES["long"])
    assert lean.supports(lm)
    ours = log_probs(lean, lm, rows, 0.7)
    full = expected_log_probs(lm, rows, 0.7)
    assert torch.allclose(ours, full, atol=2e-5)
    assert not torch.allclose(ours, log_probs(lean, plain, rows, 0.7), atol=1e-2)
    trained = [p for p in lm.parameters() if p.requires_grad]
    assert len(trained) == len(adapters(lm)) > 0
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad((full * weight).sum(), trained)
    for found, right in zip(
        torch.autograd.grad((ours * weight).sum(), trained), expected, strict=True
    ):
        assert (found - right).abs().max() < 1e-5 * right.abs().max() + 1e-6
    samples = [
        sampled(way(lm), [[1, 5, 6], [1, 7]]) for way in (LeanEngine, generic_model.CacheEngine)
    ]
    assert samples[0].batch.tokens.equal(samples[1].batch.tokens)
    assert torch.allclose(samples[0].log_prob, samples[1].log_prob, atol=2e-5)


@pytest.mark.parametrize("make", [model, gpt2, half_dense, falcon, llama4])
def test_merged_it_is_an_ordinary_model_that_computes_the_same(make):
    plain = make()
    rows = batch(**CASES["long"])
    lm = with_adapters(copy.deepcopy(plain), ALL)
    assert merged(lm).keys() == plain.state_dict().keys()
    plain.load_state_dict(merged(lm))
    expected = expected_log_probs(lm, rows, 1.0)
    assert torch.allclose(expected_log_probs(plain, rows, 1.0), expected, atol=2e-5)


def test_they_begin_at_the_model_itself_and_are_those_of_the_seed():
    plain = model()
    rows = batch()
    one, same, other = (copy.deepcopy(plain) for _ in range(3))
    for lm, seed in ((one, 1), (same, 1), (other, 2)):
        adapt(lm, ALL, seed)
    assert log_probs(lean, one, rows, 1.0).equal(log_probs(lean, other, rows, 1.0))
    assert torch.allclose(
        log_probs(lean, one, rows, 1.0), log_probs(lean, plain, rows, 1.0), atol=1e-6
    )
    assert all(value.equal(adapters(same)[name]) for name, value in adapters(one).items())
    assert any(not value.equal(adapters(other)[name]) for name, value in adapters(one).items())
    other.load_state_dict(adapters(one), strict=False)
    assert all(value.equal(adapters(other)[name]) for name, value in adapters(one).items())


@pytest.mark.parametrize("target", ["q_porj", "embed_tokens", "lm_head", "mlp"])
def test_a_target_that_is_no_linear_map_is_named_with_those_that_are(target):
    with pytest.raises(
        ModelError, match=f"model.lora.targets: '{target}'.*down_proj, gate_proj, k_proj"
    ):
        adapt(model(), Lora(targets=("q_proj", target)), 0)


@pytest.mark.parametrize("lora", [ALL, SOME], ids=["all", "some"])
def test_the_estimate_knows_how_many_numbers_they_are(lora):
    lm = with_adapters(model(), lora)
    foretold = Shape(2, 32, 4, 2, 8, 48, 19).adapter_parameters(lora)
    assert sum(value.numel() for value in adapters(lm).values()) == foretold


def test_a_base_of_4_bits_without_bitsandbytes_is_refused_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    lm = with_adapters(model(), ALL)
    with pytest.raises(ModelError, match=r"model\.lora\.base: nf4 needs .*quantized.*base: same"):
        pack_base(lm)
