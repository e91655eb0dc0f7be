"""Every KL to a teacher, against sums over all responses of small policies that share no code with
the losses.

A policy is a table of log-probabilities by prefix; three tokens, responses of two. Reward zero;
three policies: pi is trained, old sampled, teacher is the reference.
"""

import itertools

import pytest
import torch

import rpg
from tests.losses import oracle

V = 3
T = 2
RESPONSES = torch.tensor(list(itertools.product(range(V), repeat=T)))
STATES = torch.stack([torch.zeros(len(RESPONSES), dtype=torch.long), 1 + RESPONSES[:, 0]], 1)
MODEL = {"type": "model"}


class Language:
    """Logits of pi (a leaf); `policies`: log-probabilities of pi, old and teacher, a row for each
    prefix; `sampled`: those of the tokens of all responses.
    """

    def __init__(self, seed, moved):
        g = torch.Generator().manual_seed(seed)
        old, away, teacher = torch.randn(3, 1 + V, V, generator=g, dtype=torch.float64)
        self.logits = (old + moved * away).requires_grad_()
        self.policies = [logits.log_softmax(-1) for logits in (self.logits, old, teacher)]
        self.sampled = [log_probs[STATES, RESPONSES] for log_probs in self.policies]

    def gradient(self, value):
        return oracle.gradient(value, self.logits)

    def over_prefixes(self, term):
        """Sum over the prefixes that old visits of its probability times term(log pi, log old, log
        ref)."""
        visited = [1.0, *self.policies[1][0].exp()]
        return sum(p * term(*rows) for p, *rows in zip(visited, *self.policies, strict=True))

    def over_responses(self, term):
        """Sum over responses of term(log pi, log old, log ref) of the response."""
        return term(*(log_probs.sum(-1) for log_probs in self.sampled)).sum()

    def loss(self, algo, token_kl=None):
        """The expectation under old of the loss, advantages included."""
        pi, old, ref = self.sampled
        n = len(RESPONSES)
        given = {"old_log_prob": old, "ref_log_prob": ref, "response_mask": torch.ones(n, T)}
        advantages = torch.zeros(n, T, dtype=torch.float64)
        if algo.kl.type == "reward":
            group = torch.zeros(n, dtype=torch.long)
            advantages = rpg.advantages(algo, rewards=advantages[:, 0], group=group, **given)
        weights = (n * old.sum(-1).exp())[:, None].expand(n, T)
        if token_kl is not None:
            token_kl = weights * token_kl  # an expectation over prefixes, like all else
        given |= {"advantages": advantages, "rollout_weights": weights, "token_kl": token_kl}
        return rpg.policy_loss(algo, log_prob=pi, **given).loss


def close(found, meant):
    assert meant.norm() > 1e-3
    assert (found - meant).norm() < 1e-10 * meant.norm()


def k(name, d):
    return {"k1": d, "k2": d * d / 2, "k3": (-d).exp() - 1 + d}[name]


@pytest.fixture(params=[0.0, 0.6], ids=["on-policy", "off-policy"])
def language(request):
    return Language(1, request.param)


def entry(name, **changes):
    settings = {
        "beta": 0.7,
        "reference": MODEL,
        "loss_agg_mode": "seq-mean-token-sum",
        "clip": None,
    }
    return rpg.algorithm(name, **settings | changes)


@pytest.mark.parametrize("ratio", ["token", "prefix", "sequence"])
@pytest.mark.parametrize("style", ["", "reinforce-"])
@pytest.mark.parametrize("divergence", ["fkl", "rkl", "ufkl", "urkl"])
def test_the_loss_follows_the_teachers_kl_itself(language, divergence, style, ratio):
    """The KL itself: of every next token over old's prefixes, or of whole responses."""
    without = {"rewarded": False, "dynamic_sampling": False, "overlong": None}
    algo = entry(f"rpg-{style}{divergence}", ratio=ratio, **without)
    forward = lambda p, _o, q: q.exp() * (q - p)  # noqa: E731
    reverse = lambda p, _o, q: p.exp() * (p - q)  # noqa: E731
    term = forward if divergence.endswith("fkl") else reverse
    by_token = language.over_prefixes(lambda *x: term(*x).sum())
    meant = by_token if ratio == "token" else language.over_responses(term)
    close(language.gradient(language.loss(algo)), 0.7 * language.gradient(meant))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_an_estimator_in_the_loss_follows_the_kl_that_is_documented(language, estimator, weighted):
    """The derivative of the expectation under old, of w k or of k; with a ratio k1 and k3 are the
    reverse KL, and without one, on-policy, k1 is nothing, k2 the reverse and k3 the forward KL."""
    kl = {"type": "loss", "estimator": estimator, "weighted": weighted}
    algo = entry("reinforce", kl=kl, rewarded=False)
    found = language.gradient(language.loss(algo))
    meant = language.over_prefixes(
        lambda p, o, q: ((p if weighted else o).exp() * k(estimator, p - q)).sum()
    )
    meant = 0.7 * language.gradient(meant)
    on_policy = torch.equal(*language.sampled[:2])
    if estimator == "k1" and not weighted and on_policy:
        assert found.norm() < 1e-15
        assert meant.norm() < 1e-15
        return
    close(found, meant)
    reverse = 0.7 * language.gradient(
        language.over_prefixes(lambda p, _o, q: (p.exp() * (p - q)).sum())
    )
    forward = 0.7 * language.gradient(
        language.over_prefixes(lambda p, _o, q: (q.exp() * (q - p)).sum())
    )
    if (weighted and estimator != "k2") or (on_policy and not weighted and estimator == "k2"):
        close(found, reverse)
    if on_policy and not weighted and estimator == "k3":
        close(found, forward)


@pytest.mark.parametrize(
    "advantage", ["none", {"type": "batch", "std": False}], ids=["response", "to go"]
)
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_an_estimator_in_the_reward_follows_its_expectation_on_policy(estimator, advantage):
    """On-policy, which is where a policy gradient without a ratio is exact: E_pi of the sum of
    k(old, teacher)."""
    language = Language(2, 0.0)
    algo = entry("rloo", kl={"estimator": estimator}, advantage=advantage, rewarded=False)
    pi, old, ref = language.sampled
    meant = (pi.sum(-1).exp() * k(estimator, old - ref).sum(-1)).sum()
    close(language.gradient(language.loss(algo)), 0.7 * language.gradient(meant))
    if estimator == "k1":  # and that is the reverse KL of responses
        reverse = language.over_responses(lambda p, _o, q: p.exp() * (p - q))
        close(language.gradient(meant), language.gradient(reverse))


def by_definition(kl, p, q):
    """From probabilities (..., V), summed; all tokens beyond the teacher's top k are one
    outcome."""
    if kl.top_k and kl.top_k < q.shape[-1]:
        top = q.topk(kl.top_k).indices
        p, q = (x.gather(-1, top) for x in (p, q))
        p, q = (torch.cat([x, 1 - x.sum(-1, keepdim=True)], -1) for x in (p, q))
    m = kl.mix * q + (1 - kl.mix) * p
    of = lambda a, b: (a * (a / b).log()).sum()  # noqa: E731
    values = {"rkl": of(p, q), "fkl": of(q, p), "jsd": kl.mix * of(q, m) + (1 - kl.mix) * of(p, m)}
    return values[kl.divergence]


@pytest.mark.parametrize("top_k", [None, 1, 2])
@pytest.mark.parametrize(
    ("divergence", "mix"), [("rkl", 0.5), ("fkl", 0.5), ("jsd", 0.5), ("jsd", 0.1)]
)
def test_a_kl_of_whole_distributions_is_exact_at_any_drift(language, divergence, mix, top_k):
    """Exact at any drift without a ratio. Beyond the top k everything is one outcome, which gives a
    lower bound."""
    kl = {"type": "distribution", "divergence": divergence, "mix": mix}
    algo, complete = (entry("opd-rkl", kl=kl | {"top_k": k}) for k in (top_k, None))

    def exact(algo):
        return language.over_prefixes(lambda p, _o, q: by_definition(algo.kl, p.exp(), q.exp()))

    meant = exact(algo)
    whole = exact(complete)
    ours = language.over_prefixes(lambda p, _o, q: rpg.distribution_kl(algo.kl, p, q))
    torch.testing.assert_close(ours, meant)
    assert (
        meant < whole - 1e-4 if top_k == 1 else torch.isclose(meant, whole)
    )  # of 3 tokens 2 leave out one
    token_kl = rpg.distribution_kl(algo.kl, language.policies[0], language.policies[2])[STATES]
    close(language.gradient(language.loss(algo, token_kl)), 0.7 * language.gradient(meant))


def test_minillm_is_the_reverse_kl_of_responses_up_to_whitening():
    language = Language(3, 0.0)
    algo = entry("minillm", advantage={"type": "batch", "std": False})
    close(
        language.gradient(language.loss(algo)),
        0.7 * language.gradient(language.over_responses(lambda p, _o, q: p.exp() * (p - q))),
    )


def test_rewards_are_not_trained_on():
    for name in ("opd", "minillm"):
        algo = entry(name)
        rows = {"old_log_prob": torch.zeros(4, 2), "ref_log_prob": torch.zeros(4, 2)}
        given = {
            "group": torch.zeros(4, dtype=torch.long),
            "response_mask": torch.ones(4, 2),
            **rows,
        }
        with_rewards = rpg.advantages(algo, rewards=torch.tensor([1.0, 0, 0, 5]), **given)
        assert torch.equal(with_rewards, rpg.advantages(algo, rewards=torch.zeros(4), **given))
    with pytest.raises(
        ValueError, match=r"token_kl: gkd has kl distribution .* pass rpg.distribution_kl"
    ):
        rpg.policy_loss(
            rpg.algorithm("gkd"),
            log_prob=rows["old_log_prob"],
            advantages=rows["old_log_prob"],
            response_mask=torch.ones(4, 2),
            **rows,
        )
