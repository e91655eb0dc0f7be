"""The lean pass against transformers', for every family: values, gradients, decoding."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from rpg.models import generic_model, lean, packing
from rpg.models.decoding import Batch
from rpg.models.lean_decoding import LeanEngine
from rpg.models.packing import Packing
from rpg.models.policy import Policy
from tests.models.expected import expected_log_probs, log_probs, sampled


def model(seed=0, family: type[PreTrainedConfig] = Qwen3Config, **changes):
    sizes = {"vocab_size": 19, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
    }
    others = {
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "eos_token_id": 2,
    }
    config = family(**sizes | heads | others | changes)
    torch.manual_seed(seed)
    made = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in made.named_parameters():
        if "norm" in name:  # ones would hide a norm weight that is left out
            parameter.data.uniform_(0.5, 1.5)
        if "bias" in name:  # and zeros a bias
            parameter.data.normal_(std=0.3)
    return made


def batch(seed=0, prompts=4, rows=20, width=7, vocabulary=3):
    """Responses over few tokens, so that many are equal or begin alike; lengths from 1."""
    g = torch.Generator().manual_seed(seed)
    r = lambda low, high, *shape: torch.randint(low, high, shape, generator=g)  # noqa: E731
    lengths = r(1, width + 1, rows)
    tokens = r(3, 3 + vocabulary, rows, width) * (torch.arange(width) < lengths[:, None])
    tokens = tokens[:, : int(lengths.max())]
    sizes = r(1, 9, prompts).tolist()
    return Batch([r(0, 19, n).tolist() for n in sizes], r(0, prompts, rows), tokens, lengths)


CASES = {
    "few tokens": {},
    "many tokens": {"vocabulary": 16},
    "one row": {"prompts": 1, "rows": 1},
    "one token each": {"width": 1},
    "one prompt": {"prompts": 1, "rows": 30, "vocabulary": 1},
    "long": {"prompts": 3, "rows": 12, "width": 30, "vocabulary": 2},
}


def rope(kind, **settings):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **settings}}


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
FAMILIES = {
    "qwen3": {},
    "qwen3, untied": {"tie_word_embeddings": False},
    "qwen3, biases": {"attention_bias": True},
    "qwen2": {"family": Qwen2Config},
    "mistral": {"family": MistralConfig, "sliding_window": None, "head_dim": 16},
    "mistral, a window no one leaves": {"family": MistralConfig, "sliding_window": 64},
    "llama": {"family": LlamaConfig, "num_key_value_heads": 1},
    "llama, biases": {"family": LlamaConfig, "attention_bias": True, "mlp_bias": True},
    "llama, linear": {"family": LlamaConfig, **rope("linear", factor=2.0)},
    "llama, llama3": {"family": LlamaConfig, **rope("llama3", factor=8.0, **LLAMA3)},
    "llama, yarn": {
        "family": LlamaConfig,
        **rope("yarn", factor=4.0, original_max_position_embeddings=16),
    },
}


def same_values_and_gradients(lm, rows, temperature):
    assert lean.supports(lm)
    ours = log_probs(lean, lm, rows, temperature)
    full = expected_log_probs(lm, rows, temperature)
    assert ours.shape == rows.tokens.shape
    assert torch.allclose(ours, full, atol=2e-5)
    assert bool((ours[~rows.mask] == 0).all())
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    (full * weight).sum().backward()
    expected = {name: p.grad.clone() for name, p in lm.named_parameters()}
    lm.zero_grad()
    (ours * weight).sum().backward()
    for name, parameter in lm.named_parameters():
        scale = expected[name].abs().max()
        assert scale > 0, name
        assert (parameter.grad - expected[name]).abs().max() < 1e-5 * scale + 1e-6, name


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_transformers(case, temperature):
    same_values_and_gradients(model(), batch(**CASES[case]), temperature)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_that_of_transformers(family, size):
    same_values_and_gradients(model(**FAMILIES[family]), batch(**CASES["long"]), 0.7)


def drawn(engine):
    """Four responses to each of four prompts, the same ones from engines that are right."""
    return sampled(engine, [[1, 5, 6], [1, 7], [1, 5, 9, 9, 4, 3], [1]])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_decodes_as_transformers_does(family, size):
    lm = model(**FAMILIES[family])
    found = [drawn(engine(lm)) for engine in (LeanEngine, generic_model.CacheEngine)]
    assert found[0].batch.tokens.equal(found[1].batch.tokens)
    assert torch.allclose(found[0].log_prob, found[1].log_prob, atol=2e-5)
    assert torch.allclose(found[0].entropy, found[1].entropy, atol=2e-5)


@pytest.mark.parametrize("family", ["qwen3", "llama, biases"])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_bfloat16_errs_as_little_as_transformers_does(family, weights, size):
    """Against float32; with weights in float32 only the products are bfloat16."""
    lm = model(**FAMILIES[family], initializer_range=0.1)
    rows = batch(**CASES["many tokens"])
    lm = lm.to(torch.bfloat16).to(weights)
    exact = expected_log_probs(lm.float(), rows, 1.0)
    lm = lm.to(weights)
    with torch.autocast("cpu", torch.bfloat16, enabled=weights == torch.float32):
        ours = log_probs(lean, lm, rows, 1.0)
        full = expected_log_probs(lm, rows, 1.0)
    errors = [(found.float() - exact)[rows.mask].square().mean().sqrt() for found in (ours, full)]
    assert 0 < errors[0] < 1.5 * errors[1] < 0.1
    ours.sum().backward()
    assert all(p.grad.dtype == p.dtype and bool(p.grad.isfinite().all()) for p in lm.parameters())


@pytest.mark.parametrize("family", ["qwen3", "llama, biases"])
def test_bfloat16_weights_decode_as_they_are_scored(family, size):
    lm = model(**FAMILIES[family], initializer_range=0.1).to(torch.bfloat16)
    errors = []
    for engine in (LeanEngine, generic_model.CacheEngine):
        samples = drawn(engine(lm))
        exact = expected_log_probs(lm.float(), samples.batch, 0.7)
        errors.append((samples.log_prob - exact)[samples.batch.mask].square().mean().sqrt())
        lm = lm.to(torch.bfloat16)
    assert 0 < errors[0] < 1.5 * errors[1] < 0.1


def test_blocks_of_any_size_give_the_same(monkeypatch):
    lm = model()
    rows = batch(rows=40, vocabulary=16)
    with torch.no_grad():
        whole = log_probs(lean, lm, rows, 1.0)
        count = len(Packing.of(rows).blocks)
        monkeypatch.setattr(packing, "_CELLS", 100)
        assert len(Packing.of(rows).blocks) > 2 * count
        assert torch.allclose(log_probs(lean, lm, rows, 1.0), whole, atol=1e-5)


@pytest.mark.parametrize("ahead", [0, 3, 30])
@pytest.mark.parametrize("prompts", [1, 3])
def test_tiles_of_long_sequences_give_the_same(monkeypatch, ahead, prompts):
    monkeypatch.setattr(packing, "_TILE", 4)
    monkeypatch.setattr(packing, "_AHEAD", ahead)
    rows = batch(prompts=prompts, rows=12, width=30, vocabulary=2)
    seen = [block.keys.shape[1] for block in Packing.of(rows).blocks]
    assert len(seen) > 8
    assert min(seen) < max(seen) / 2
    same_values_and_gradients(model(), rows, 1.0)


def test_rows_of_a_prompt_that_part_a_little_apart_have_one_mask(monkeypatch):
    monkeypatch.setattr(packing, "_TILE", 4)
    rows = batch(prompts=1, rows=6, width=30, vocabulary=2)
    whole = torch.full_like(rows.lengths, rows.tokens.shape[1])
    rows = Batch(rows.prompts, rows.prompt_of, rows.tokens.clamp(min=3), whole)
    for ahead, alike in ((0, False), (16, True)):
        monkeypatch.setattr(packing, "_AHEAD", ahead)
        masks = [len(block.mask) for block in Packing.of(rows).blocks if len(block.queries) > 1]
        assert masks
        assert all(count == 1 for count in masks) == alike
        same_values_and_gradients(model(), rows, 1.0)


def test_what_is_common_is_packed_once():
    prompts = [[5, 6, 7], [8]]
    responses = [[3, 4, 4, 2], [3, 4, 5, 2], [3, 4, 4, 6], [3, 2], [9, 2], [9, 2]]
    tokens = torch.tensor([r + [0] * (4 - len(r)) for r in responses])
    rows = Batch(
        prompts, torch.tensor([0, 0, 0, 0, 1, 1]), tokens, torch.tensor([4, 4, 4, 2, 2, 2])
    )
    pack = Packing.of(rows)
    # prompts 3 + 1; then 3, 4, 4 (twice) and the 5 that parts from them; 9 once.
    assert sorted(pack.ids.tolist()) == sorted([5, 6, 7, 8, 3, 4, 4, 5, 9])
    assert len(pack.predictors) == 7  # the last tokens of both prompts, 3, 4, 4, 5 and 9
    assert len(pack.predictor_of) == int(rows.lengths.sum())


@pytest.mark.parametrize("ends", [[[3, 4], [5], [3, 4, 6, 7]], [[], [5], [3]], [[1], [], []]])
def test_what_all_prompts_begin_with_is_packed_once(ends):
    stem = list(range(3, 15))
    rows = batch(prompts=3, rows=12)
    rows = Batch([stem + end for end in ends], rows.prompt_of, rows.tokens, rows.lengths)
    assert Packing.of(rows).ids.tolist().count(stem[-1]) == 1
    same_values_and_gradients(model(), rows, 1.0)
    same_values_and_gradients(model(), rows.rows(torch.arange(1)), 1.0)


def test_only_what_it_computes_exactly_is_supported():
    assert not lean.supports(model(hidden_act="gelu"))
    assert not lean.supports(model().double())
    assert not lean.supports(model(**rope("dynamic", factor=2.0)))
    assert not lean.supports(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    "settings",
    [
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        {"family": MistralConfig, "sliding_window": 8},
    ],
)
def test_beyond_a_sliding_window_transformers_computes(settings):
    lm = model(**settings)
    policy = None
    assert lean.supports(lm)
    assert lean.longest(lm) == 8
    policy = Policy.__new__(Policy)
    policy.model = lm
    policy.lean = True
    policy.bfloat16 = False
    for width in (3, 30):
        rows = batch(prompts=2, rows=6, width=width)
        found = policy.log_probs(rows, 1.0)
        full = expected_log_probs(lm, rows, 1.0)
        assert torch.allclose(found, full, atol=2e-5)
