"""Truncated sampling: what is drawn, with which log-probability, and which objective is then
trained."""

import functools

import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

import rpg
from rpg.models import chunked_log_prob, generic_model
from rpg.models import lean as lean_pass
from rpg.models.decoding import Batch
from rpg.models.lean_decoding import LeanEngine
from rpg.models.tokenizer import Stopper, build_tokenizer
from rpg.models.truncated_sampling import (
    Lists,
    Restriction,
    Sampling,
    concatenated,
    evaluation_restriction,
    restriction_of,
)
from tests.models.expected import log_probs, sampled
from tests.models.test_lean import model
from tests.tiny import make_spec

PROMPTS = [[1, 5, 6], [1, 7], [1, 5, 9, 9, 4, 3]]
ENDS = (2, 11)
RESTRICTIONS = {
    "top_k": Restriction(top_k=3),
    "top_p": Restriction(top_p=0.7),
    "min_p": Restriction(min_p=0.2),
    "all": Restriction(top_k=6, top_p=0.9, min_p=0.05, min_tokens=3),
    "min_tokens": Restriction(min_tokens=4),
}
PASSES = {"lean": (LeanEngine, lean_pass), "general": (generic_model.CacheEngine, generic_model)}


def sample(
    lm, restriction, engine=LeanEngine, temperature=0.8, group_size=4, limit=6, stopper=None
):
    how = {"stop": ENDS, "temperature": temperature, "restriction": restriction, "stopper": stopper}
    return sampled(engine(lm), PROMPTS, group_size, limit, **how)


def logits_behind(lm, ids):
    with torch.no_grad():
        return lm(torch.tensor([ids])).logits[0, -1]


def left(logits, restriction, position):
    """The tokens that can be drawn, by definition: a loop over tokens in order of probability."""
    p = logits.softmax(-1).tolist()
    if position < restriction.min_tokens:
        p = [0.0 if token in ENDS else value for token, value in enumerate(p)]
    order = sorted(range(len(p)), key=lambda token: -p[token])
    kept = [t for t in order if p[t] > 0 and p[t] >= restriction.min_p * p[order[0]]]
    kept = kept[: restriction.top_k]
    nucleus = []
    mass = 0.0
    whole = sum(p[t] for t in kept)
    for token in kept:
        if restriction.top_p < 1 and mass >= restriction.top_p * whole:
            break
        nucleus.append(token)
        mass += p[token]
    return sorted(nucleus)


def enumerated(sampler, policy, batch, restriction, temperature):
    """log p(token) / p(tokens the sampler left), one forward pass per token; and the entropies."""
    found = torch.zeros(batch.tokens.shape)
    entropy = torch.zeros(batch.tokens.shape)
    behind = functools.cache(lambda one, ids: logits_behind(one, ids) / temperature)
    for row, length in enumerate(batch.lengths.tolist()):
        ids = tuple(batch.prompts[batch.prompt_of[row]])
        for t, token in enumerate(batch.tokens[row, :length].tolist()):
            kept = left(behind(sampler, ids), restriction, t)
            log_p = behind(policy, ids)[kept].log_softmax(-1)
            found[row, t] = log_p[kept.index(token)]
            entropy[row, t] = -(log_p.exp() * log_p).sum()
            ids = (*ids, token)
    return found, entropy


@pytest.mark.parametrize("name", RESTRICTIONS)
@pytest.mark.parametrize("way", PASSES)
def test_log_probabilities_are_those_of_the_distribution_that_was_sampled(name, way):
    """Of the sampler as it drew, of the same policy in training (ratio 1), and of a policy that has
    moved."""
    engine, forward = PASSES[way]
    lm = model()
    moved = model(seed=1)
    restriction = RESTRICTIONS[name]
    drawn = sample(lm, restriction, engine)
    expected, entropy = enumerated(lm, lm, drawn.batch, restriction, 0.8)
    assert torch.allclose(drawn.log_prob, expected, atol=2e-5)
    assert torch.allclose(drawn.entropy, entropy, atol=2e-5)
    again = log_probs(forward, lm, drawn.batch, 0.8)
    assert torch.allclose((again - drawn.log_prob).exp(), torch.ones(()), atol=5e-5)
    rescored = forward.scored(moved, drawn.batch, 0.8, entropy=True)
    now = rescored.log_prob
    now_entropy = rescored.entropy
    other, other_entropy = enumerated(lm, moved, drawn.batch, restriction, 0.8)
    assert torch.allclose(now, other, atol=5e-5)
    assert torch.allclose(now_entropy, other_entropy, atol=5e-5)
    assert (now - drawn.log_prob).abs().max() > 0.1, (
        "it has to have moved for this test to say anything"
    )
    whole = Batch(
        drawn.batch.prompts, drawn.batch.prompt_of, drawn.batch.tokens, drawn.batch.lengths
    )
    assert (log_probs(forward, moved, whole, 0.8) - now).abs().max() > 0.01


@pytest.mark.parametrize("name", ["all", "min_tokens"])
def test_large_vocabularies_in_parts_and_gradients(name, monkeypatch):
    drawn = sample(model(), RESTRICTIONS[name])
    found = []
    for plain in (True, False):
        for forward in (lean_pass, generic_model):
            if not plain:
                monkeypatch.setattr(chunked_log_prob, "_PLAIN", 0)
                monkeypatch.setattr(chunked_log_prob, "_PART", 19 * 5)
                monkeypatch.setattr(chunked_log_prob, "_KEPT", 0)
            lm = model(seed=1)
            rescored = forward.scored(lm, drawn.batch, 0.8, entropy=True)
            values = rescored.log_prob
            entropy = rescored.entropy
            (values.square().sum() + 3 * entropy.square().sum()).backward()
            found.append((values.detach(), entropy.detach(), [p.grad for p in lm.parameters()]))
    for values, entropy, grads in found[1:]:
        assert torch.allclose(values, found[0][0], atol=2e-5)
        assert torch.allclose(entropy, found[0][1], atol=2e-5)
        for grad, first in zip(grads, found[0][2], strict=True):
            assert (grad - first).abs().max() < 5e-5 * first.abs().max() + 1e-6


def test_each_option_leaves_what_transformers_leaves():
    logits = 3 * torch.randn(40, 50, generator=torch.Generator().manual_seed(0))
    for ours, theirs in (
        (Restriction(top_k=7), TopKLogitsWarper(7)),
        (Restriction(top_p=0.8), TopPLogitsWarper(0.8)),
        (Restriction(top_p=1e-6), TopPLogitsWarper(1e-6)),
        (Restriction(min_p=0.1), MinPLogitsWarper(0.1)),
    ):
        assert ours.kept(logits).equal(theirs(None, logits) > -torch.inf)
    both = Restriction(top_k=7, top_p=0.8)
    theirs = TopPLogitsWarper(0.8)(None, TopKLogitsWarper(7)(None, logits))
    assert both.kept(logits).equal(theirs > -torch.inf)


def test_without_settings_the_model_s_own_distribution_is_drawn_from():
    plain = Sampling()
    assert plain.temperature == 1
    assert plain.restriction == Restriction()


def test_an_evaluation_truncates_as_it_says_and_ends_as_the_rollout_does():
    assert Restriction(min_p=0.1).truncates
    assert Restriction(top_p=0.9).truncates
    assert not Restriction().truncates
    spec = make_spec(
        rollout={"top_k": 5, "min_response_tokens": 2}, evaluation={"top_p": 0.9, "min_p": 0.1}
    )
    assert restriction_of(spec.rollout) == Restriction(top_k=5, min_tokens=2)
    assert evaluation_restriction(spec) == Restriction(top_p=0.9, min_p=0.1, min_tokens=2)


def test_parts_of_a_batch_keep_their_tokens():
    """Rows, micro-batches and joined rollouts: log-probabilities stay those of the whole."""
    lm = model()
    moved = model(seed=1)
    drawn = sample(lm, RESTRICTIONS["all"])
    whole = log_probs(lean_pass, moved, drawn.batch, 0.8)
    for rows in (torch.tensor([3, 10, 4]), torch.arange(11, 2, -1)):
        part = drawn.batch.rows(rows)
        found = log_probs(lean_pass, moved, part, 0.8)
        assert torch.allclose(found, whole[rows, : found.shape[1]], atol=1e-5)
    shorter = drawn.batch.lengths.argsort()[:3]
    first = drawn.batch.rows(shorter)
    second = drawn.batch
    width = second.tokens.shape[1]
    widened = torch.nn.functional.pad(first.tokens, (0, width - first.tokens.shape[1]))
    both = Batch(
        first.prompts + second.prompts,
        torch.cat([first.prompt_of, second.prompt_of + len(first.prompts)]),
        torch.cat([widened, second.tokens]),
        torch.cat([first.lengths, second.lengths]),
        concatenated([first.support, second.support], width),
    )
    found = log_probs(lean_pass, moved, both, 0.8)
    assert torch.allclose(found, torch.cat([whole[shorter], whole]), atol=1e-5)


# --- the objective: all responses of two tokens, by enumeration


def every_response(sampler, restriction, prompt, temperature=1.0):
    """All responses of two tokens that the sampler can draw, as a batch; nothing ends one."""
    first = left(logits_behind(sampler, prompt) / temperature, restriction, 0)
    seconds = {
        a: left(logits_behind(sampler, [*prompt, a]) / temperature, restriction, 1) for a in first
    }
    responses = [(a, b) for a in first for b in seconds[a]]
    kept = torch.zeros(1 + len(first), 19, dtype=torch.bool)
    for row, tokens in enumerate((first, *seconds.values())):
        kept[row, tokens] = True
    rows = torch.arange(len(responses))
    lists = Lists(torch.zeros(len(responses), 2, dtype=torch.long))
    lists.add(rows, 0, kept[:1], torch.zeros(len(responses), dtype=torch.long))
    lists.add(rows, 1, kept[1:], torch.tensor([first.index(a) for a, _ in responses]))
    return Batch(
        [prompt], torch.zeros_like(rows), torch.tensor(responses), rows * 0 + 2, lists.support(2)
    )


def gradient(value, lm):
    parts = torch.autograd.grad(value, list(lm.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in parts])


REWARD = torch.randn(19, 19, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("loss", ["plain", "kl"])
def test_the_surrogate_gradient_is_that_of_the_truncated_objective(moved, loss):
    """E over what the sampler draws of the loss's gradient, against the exact gradient of E_q[R] -
    beta KL(q || ref), where q is the policy in training among the tokens that the sampler left.
    """
    restriction = Restriction(top_k=4, top_p=0.9)
    prompt = [1, 5, 6]
    sampler = model()
    reference = model(seed=2)
    lm = model(seed=1) if moved else model()
    batch = every_response(sampler, restriction, prompt)
    with torch.no_grad():
        old, ref = (log_probs(lean_pass, one, batch, 1.0) for one in (sampler, reference))
    q_old = old.sum(-1).exp()
    assert q_old.sum() == pytest.approx(1, abs=1e-5)
    assert 4 <= len(batch) <= 16
    rewards = REWARD[batch.tokens[:, 0], batch.tokens[:, 1]]
    beta = 0.0 if loss == "plain" else 0.4

    log_prob = log_probs(lean_pass, lm, batch, 1.0)
    algo = rpg.algorithm(
        "rpg-rkl",
        beta=beta,
        clip=None,
        ratio="sequence",
        loss_agg_mode="seq-mean-token-sum",
        reference={"type": "fixed"},
    )
    given = {"log_prob": log_prob, "old_log_prob": old, "ref_log_prob": ref}
    given |= {
        "advantages": rewards[:, None].expand(-1, 2),
        "response_mask": torch.ones(len(batch), 2),
    }
    given["rollout_weights"] = (
        len(batch) * q_old[:, None]
    )  # turns the mean over rows into an expectation
    out = rpg.policy_loss(algo, **given)
    q = log_prob.sum(-1).exp()
    objective = (q * (rewards - beta * (log_prob.sum(-1) - ref.sum(-1)))).sum()
    found = gradient(-out.loss, lm)
    exact = gradient(objective, lm)
    assert (found - exact).norm() < 2e-4 * exact.norm()
    assert exact.norm() > 1e-3
    if (
        loss == "plain" and not moved
    ):  # with log-probabilities of the whole vocabulary it is another gradient
        whole = Batch(batch.prompts, batch.prompt_of, batch.tokens, batch.lengths)
        biased = (q_old * log_probs(lean_pass, lm, whole, 1.0).sum(-1) * rewards).sum()
        assert (gradient(biased, lm) - exact).norm() > 0.05 * exact.norm()


def test_the_sets_are_constant_so_their_gradient_is_none():
    """On-policy, the gradient is that of the truncated policy's own expected reward: by finite
    differences, with the tokens that are left chosen anew at every point.
    """
    restriction = Restriction(top_k=4, top_p=0.9)
    prompt = [1, 5, 6]
    lm = model()

    def value():
        batch = every_response(lm, restriction, prompt)
        q = log_probs(lean_pass, lm, batch, 1.0).sum(-1).exp()
        return (q * REWARD[batch.tokens[:, 0], batch.tokens[:, 1]]).sum()

    exact = gradient(value(), lm)
    parameters = torch.nn.utils.parameters_to_vector(lm.parameters()).detach()
    direction = exact / exact.norm()
    with torch.no_grad():
        sides = []
        for sign in (1, -1):
            torch.nn.utils.vector_to_parameters(
                parameters + sign * 1e-4 * direction, lm.parameters()
            )
            sides.append(float(value()))
    slope = (sides[0] - sides[1]) / 2e-4
    assert slope == pytest.approx(float(exact.norm()), rel=0.01)


# --- shortest length and stop texts


@pytest.mark.parametrize("way", PASSES)
def test_no_end_comes_before_the_shortest_length(way):
    engine, _ = PASSES[way]
    free = sample(model(), Restriction(), engine, group_size=40)
    assert int(free.batch.lengths.min()) < 4
    restricted = sample(model(), RESTRICTIONS["min_tokens"], engine, group_size=40)
    assert int(restricted.batch.lengths.min()) >= 5  # four tokens, and the one that ends it
    early = restricted.batch.tokens[:, :4]
    assert not bool(torch.isin(early, torch.tensor(ENDS)).any())


TOKENIZER = build_tokenizer("abcdefghijklmno")  # 19 tokens, as the model has
TEXTS = [TOKENIZER.decode([i]) for i in range(19)]


@pytest.mark.parametrize("least", [0, 3])
def test_a_response_ends_with_the_token_that_completes_a_stop_text(least):
    lm = model()
    free = sample(lm, Restriction(min_tokens=least), group_size=12, limit=10)
    rows = zip(free.batch.tokens.tolist(), free.batch.lengths.tolist(), strict=True)
    seen = ["".join(TEXTS[token] for token in row[:length]) for row, length in rows]
    pairs = [text[i : i + 2] for text in seen for i in range(len(text) - 1) if text.isalpha()]
    stops = tuple(sorted(set(pairs), key=pairs.count)[-2:])
    restriction = Restriction(min_tokens=least, stop=stops)
    stopper = Stopper(TOKENIZER, stops)
    cut = sample(lm, restriction, group_size=12, limit=10, stopper=stopper)
    shorter = 0
    for row, text in enumerate(seen):
        ends = [i + len(s) for s in stops for i in range(len(text)) if text.startswith(s, i)]
        ends = [end for end in ends if end >= max(least, 1)]
        expected = min(ends, default=None)
        n = int(cut.batch.lengths[row])
        assert "".join(TEXTS[t] for t in cut.batch.tokens[row, :n].tolist()) == text[:expected]
        shorter += n < int(free.batch.lengths[row])
        if expected is not None:
            assert not cut.truncated[row]
    assert 2 <= shorter < len(seen)
    again = log_probs(lean_pass, lm, cut.batch, 0.8)
    assert torch.allclose(again, cut.log_prob, atol=2e-5)


def test_a_stop_text_may_be_of_several_bytes_or_a_special_token():
    tokenizer = build_tokenizer("ab\n中")
    encode = lambda text: tokenizer(text)["input_ids"]  # noqa: E731
    stopper = Stopper(tokenizer, ["中a", "<eos>", "\n\n"])
    texts = ["中a", "a中", "b<eos>", "a\n\n", "a\n", "中ab", "\n\nab"]
    assert stopper([encode(t) for t in texts]) == [True, False, True, True, False, False, False]


def test_all_options_together_draw_what_can_be_drawn():
    """The empirical distribution of the second token, given the first, is the truncated one."""
    lm = model()
    restriction = Restriction(top_k=5, top_p=0.85)
    how = {"key": "distribution", "stop": ENDS, "temperature": 1.0, "restriction": restriction}
    drawn = sampled(LeanEngine(lm), [[1, 5, 6]], 20_000, 1, **how)
    kept = left(logits_behind(lm, [1, 5, 6]), restriction, 0)
    expected = logits_behind(lm, [1, 5, 6])[kept].softmax(-1) * 20_000
    observed = torch.bincount(drawn.batch.tokens[:, 0], minlength=19)
    assert set(observed.nonzero()[:, 0].tolist()) == set(kept)
    distance = float(((observed[kept] - expected) ** 2 / expected).sum())
    assert distance < 18.5  # 4 degrees of freedom: 1 in 1,000
