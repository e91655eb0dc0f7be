"""Sampling: the right distribution, log-probabilities of it, and samples that depend on nothing
else."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import AutoConfig, LlamaConfig, MistralConfig, Qwen3_5TextConfig, Qwen3NextConfig

from rpg.models import generic_model, lean, lean_caches, lean_decoding
from rpg.models.decoding import Batch, Samples, SamplingPlan, Scored, draw, joined
from rpg.models.lean_decoding import LeanEngine
from rpg.models.micro_batches import Limits, score
from rpg.models.model_loading import ModelError
from rpg.models.seeds import uniforms
from tests.models.expected import expected_log_probs, gpt2, log_probs, sampled
from tests.models.test_lean import model

PROMPTS = [[1, 5, 6], [1, 7], [1, 5, 9, 9, 4, 3], [1]]


llama = partial(model, family=LlamaConfig, num_key_value_heads=1)
windowed = partial(model, family=MistralConfig, sliding_window=6)
kinds = ["linear_attention", "full_attention"]
heads = ("linear_num_key_heads", "linear_num_value_heads")
sizes = dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", *heads), 4)
hybrid = partial(model, family=Qwen3_5TextConfig, layer_types=kinds, **sizes)
MODELS = {"qwen3": model, "llama": llama, "gpt2": gpt2, "hybrid": hybrid}


def sample(engine, u, group_size=8, prompts=PROMPTS, temperature=1.0, limit=10):
    return sampled(
        engine, prompts, group_size, limit, stop=(2, 11), temperature=temperature, uniforms=u
    )


def random_numbers(rows=32, limit=10):
    return uniforms(rows, limit, "test")


def assert_alike(found, expected):
    assert found.batch.tokens.equal(expected.batch.tokens)
    assert found.batch.lengths.equal(expected.batch.lengths)
    assert torch.allclose(found.log_prob, expected.log_prob, atol=2e-5)
    assert torch.allclose(found.entropy, expected.entropy, atol=2e-5)
    assert found.truncated.equal(expected.truncated)


@pytest.mark.parametrize("kind", [model, llama])
@pytest.mark.parametrize("rows", [1, 32])
def test_a_large_model_s_steps_are_transformers_too(kind, rows, monkeypatch):
    """Prompts read once for their rows, and both orders of the weights; many columns are several
    pieces."""
    monkeypatch.setattr(lean, "_SMALL", 0)
    monkeypatch.setattr(lean_decoding, "_WIDE", 20)
    lm = kind()
    engine = LeanEngine(lm, rows)
    u = random_numbers(limit=20)
    found = sample(engine, u, limit=20)
    assert bool(engine.layers[0].down.pieces) == (rows == 32)
    assert_alike(found, sample(generic_model.CacheEngine(lm), u, limit=20))


@pytest.mark.parametrize("kind", MODELS)
def test_greedy_is_the_model_s_own_greedy_generation(kind):
    lm = MODELS[kind]()
    found = sample(generic_model.CacheEngine(lm), None, group_size=1)
    for row, prompt in enumerate(PROMPTS):
        out = lm.generate(
            torch.tensor([prompt]),
            do_sample=False,
            max_new_tokens=10,
            eos_token_id=[2, 11],
            pad_token_id=0,
        )[0, len(prompt) :]
        assert found.batch.tokens[row, : found.batch.lengths[row]].tolist() == out.tolist()


@pytest.mark.parametrize("family", [Qwen3NextConfig, Qwen3_5TextConfig])
def test_a_model_with_states_alone_is_refused_in_a_sentence(family):
    lm = model(family=family, layer_types=["linear_attention"] * 2, **sizes)

    with pytest.raises(ModelError, match="linear attention in every layer cannot be sampled"):
        sample(generic_model.CacheEngine(lm), None, group_size=1)


def test_a_response_ends_at_an_end_token_or_is_marked_as_cut_off():
    found = sample(LeanEngine(model()), random_numbers())
    rows = found.batch.tokens.tolist()
    lengths = found.batch.lengths.tolist()
    assert len(set(lengths)) > 2
    for ids, length, cut in zip(rows, lengths, found.truncated.tolist(), strict=True):
        assert not {2, 11} & set(ids[: length - 1])
        assert cut == (ids[length - 1] not in (2, 11))
        assert not cut or length == 10
        assert not any(ids[length:])


@pytest.mark.parametrize("engine", [LeanEngine, generic_model.CacheEngine])
def test_a_sample_depends_on_its_own_numbers_only(engine):
    lm = model()
    u = random_numbers()
    together = sample(engine(lm), u)
    for p, prompt in enumerate(PROMPTS):
        for k in (0, 5):
            alone = sample(engine(lm), u[p * 8 + k : p * 8 + k + 1], group_size=1, prompts=[prompt])
            n = int(alone.batch.lengths[0])
            row = p * 8 + k
            assert together.batch.lengths[row] == n
            assert together.batch.tokens[row, :n].equal(alone.batch.tokens[0])
            assert torch.allclose(together.log_prob[row, :n], alone.log_prob[0], atol=2e-5)


def test_first_token_has_the_model_s_distribution():
    lm = model()
    count = 20_000
    u = uniforms(count, 1, "distribution")
    found = sample(LeanEngine(lm), u, group_size=count, prompts=[[1, 5, 6]], limit=1)
    with torch.no_grad():
        p = lm(torch.tensor([[1, 5, 6]])).logits[0, -1].softmax(-1)
    observed = torch.bincount(found.batch.tokens[:, 0], minlength=19)
    expected = p * count
    big = expected > 5
    chi2 = (((observed - expected) ** 2) / expected)[big].sum()
    assert chi2 < 50  # 18 degrees of freedom: 42.3 is exceeded once in a thousand
    assert found.entropy[0, 0] == pytest.approx(float(-(p * p.log()).sum()), abs=1e-4)


def test_impossible_tokens_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(4, -1)
    edge = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    u = torch.stack([torch.tensor(0.0), torch.tensor(0.5), edge, torch.tensor(0.49)])
    token, log_prob, entropy = draw(logits, u, 1.0)
    assert token.tolist() == [1, 3, 3, 1]
    assert torch.allclose(log_prob, torch.full((4,), 0.5).log())
    assert torch.allclose(entropy, torch.full((4,), 2.0).log())


@pytest.mark.parametrize("greedy", [False, True])
def test_several_draws_from_one_row_are_draws_from_its_copies(greedy):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 7, generator=generator)
    row_of = torch.tensor([0, 0, 2])
    u = None if greedy else torch.rand(3, generator=generator)
    for drawn, copied in zip(
        draw(logits, u, 0.7, row_of), draw(logits[row_of], u, 0.7), strict=True
    ):
        assert torch.allclose(drawn.double(), copied.double())


def test_finished_responses_are_counted():
    told = []
    tell = lambda *counts: told.append(counts)  # noqa: E731
    drawn = sampled(LeanEngine(model()), PROMPTS, 8, 10, stop=(2, 11), tell=tell)
    lengths = drawn.batch.lengths[~drawn.truncated]
    assert told == [(int((lengths <= t).sum()), t) for t in range(1, told[-1][1] + 1)]


@pytest.mark.parametrize("family", ["mamba", "minimax", "recurrent_gemma"])
def test_a_model_with_a_cache_of_its_own_is_refused(family):
    with pytest.raises(ModelError, match="ForCausalLM has no cache to sample with"):
        sample(generic_model.CacheEngine(model(family=partial(AutoConfig.for_model, family))), None)


@pytest.mark.parametrize("kind", [gpt2, llama, windowed, hybrid])
@pytest.mark.parametrize("width", [1, 9])
def test_a_prompt_that_is_computed_once_changes_nothing(kind, width):
    """Values and gradients of the general path, beside each response with its own prompt."""
    lm = kind()
    prompt_of = torch.tensor([0, 0, 1, 1, 2, 2, 3])
    lengths = (torch.arange(7) % width) + 1
    tokens = torch.randint(
        0, 19, (7, int(lengths.max())), generator=torch.Generator().manual_seed(0)
    )
    rows = Batch(PROMPTS, prompt_of, tokens, lengths)
    found = []
    for forward in (partial(log_probs, generic_model), expected_log_probs):
        lm.zero_grad()
        values = forward(lm, rows, 0.7)
        values.square().sum().backward()
        found.append((values.detach(), [p.grad.clone() for p in lm.parameters()]))
    (values, grads), (full, expected) = found
    assert torch.allclose(values, full, atol=2e-5)
    for grad, other in zip(grads, expected, strict=True):
        assert (grad - other).abs().max() < 2e-5 * other.abs().max() + 1e-6


@pytest.mark.parametrize("small", [0, 10**9])
def test_a_cache_that_grows_draws_the_same_tokens(small, monkeypatch):
    monkeypatch.setattr(lean, "_SMALL", small)
    monkeypatch.setattr(lean_caches, "_ROOM", 2)
    grown = sample(LeanEngine(model()), random_numbers())
    u = random_numbers()
    monkeypatch.setattr(lean_caches, "_ROOM", 100)
    whole = sample(LeanEngine(model()), u)
    assert whole.batch.tokens.equal(grown.batch.tokens)
    assert whole.log_prob.equal(grown.log_prob)
    assert whole.batch.lengths.max() > 5


def test_scoring_in_parts_is_scoring(policy):
    plan = SamplingPlan(group_size=4, max_new_tokens=6, uniforms=uniforms(8, 6, "x"))
    g = policy.sample([[1, 5, 6], [1, 7]], plan)
    whole = score(policy, g.batch, 1.0, Limits(100, 1000, 1000))
    assert torch.allclose(whole, score(policy, g.batch, 1.0, Limits(3, 1000, 1000)), atol=1e-5)
    assert torch.allclose(whole, score(policy, g.batch, 1.0, Limits(100, 10, 10)), atol=1e-5)
    assert torch.allclose(whole, g.log_prob, atol=1e-5)


def test_parts_of_conversations_keep_what_was_heard():
    """Tokens of an environment are no tokens of the policy, in whichever part they stand."""
    parts = []
    for width, heard in ((3, [False, True, False]), (4, [True, False, False, False])):
        tokens = torch.arange(1, width + 1)[None]
        batch = Batch([[1]], torch.tensor([0]), tokens, torch.tensor([width]), None, None)
        batch = replace(batch, heard=torch.tensor([heard]))
        numbers = torch.zeros(1, width)
        parts.append(Samples(batch, numbers, numbers, torch.tensor([False])))
    together = joined(parts).batch
    assert together.mask.tolist() == [[True, False, True, False], [False, True, True, True]]
    assert together.within.tolist() == [[True, True, True, False], [True] * 4]


def test_the_vocabulary_is_that_of_the_output_layer_or_of_the_logits():
    log_prob = torch.zeros(1, 3)
    assert Scored(log_prob, states=torch.zeros(3, 7)).vocabulary == 7
    assert Scored(log_prob, states=torch.zeros(3, 7), weight=torch.zeros(11, 7)).vocabulary == 11


def test_wrong_shapes_are_said():
    with pytest.raises(ValueError, match=r"uniforms: shape \(3, 10\), accepted: \(32, 10\)"):
        sample(LeanEngine(model()), random_numbers()[:3])
    with pytest.raises(ValueError, match="nothing to generate"):
        sample(LeanEngine(model()), None, prompts=[])
