"""The audit in words: ten planted mistakes, each named by what was planted, and the assertion for
anybody's tests."""

import functools
import json

import pytest
import torch

import rpg
from rpg.auditing import audit

BETA = 0.3


def per_token(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
    """RPG-URKL as the paper writes it: the slope of each token is right, whatever the drift."""
    w = (log_prob - old_log_prob).exp()
    d = log_prob - (old_log_prob if ref_log_prob is None else ref_log_prob)
    return -w * advantages + BETA * w * (d - 1)


def mean(values, mask):
    """Over the tokens of all responses."""
    return torch.where(mask, values, 0).sum() / mask.sum()


def right(**inputs):
    return mean(per_token(**inputs), inputs["response_mask"])


def rescaled(**inputs):
    return 1.02 * right(**inputs)


def beta_off(**inputs):
    without = per_token(**{**inputs, "ref_log_prob": inputs["log_prob"].detach()})
    more = per_token(**inputs) + 0.02 * (per_token(**inputs) - without)
    return mean(more, inputs["response_mask"])


def wrong_sign(**inputs):
    value = per_token(**inputs)
    w = (inputs["log_prob"] - inputs["old_log_prob"]).exp()
    return mean(torch.where(w > 1.05, -value, value), inputs["response_mask"])


def wrong_reward(**inputs):
    low = (inputs["log_prob"] - inputs["old_log_prob"]).exp() < 0.95
    return right(**{**inputs, "advantages": inputs["advantages"] * torch.where(low, -1, 1)})


def no_weight(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
    d = log_prob - (old_log_prob if ref_log_prob is None else ref_log_prob)
    return mean((BETA * d.detach() - advantages) * log_prob, response_mask)


def but_the_last(mask):
    return mask & (mask.flip(-1).cumsum(-1).flip(-1) > 1)


def last_token_dropped(**inputs):
    mask = inputs["response_mask"]
    return torch.where(but_the_last(mask), per_token(**inputs), 0).sum() / mask.sum()


def last_token_cut(**inputs):
    return mean(per_token(**inputs), but_the_last(inputs["response_mask"]))


def batch_mean(**inputs):
    centred = inputs["advantages"] - mean(inputs["advantages"], inputs["response_mask"])
    return right(**{**inputs, "advantages": centred})


def by_length(**inputs):
    mask = inputs["response_mask"]
    return (torch.where(mask, per_token(**inputs), 0).sum(-1) / mask.sum(-1)).mean()


def detached_k2(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
    d = log_prob - (old_log_prob if ref_log_prob is None else ref_log_prob)
    reward = -(log_prob - old_log_prob).exp() * advantages
    return mean(reward + BETA * (d**2 / 2).detach(), response_mask)


def half_detached(**inputs):
    return 0.5 * detached_k2(**inputs)


def not_a_number(**inputs):
    return (right(**inputs) - 100).log()


def nan_on_policy(**inputs):
    log_w = inputs["log_prob"] - inputs["old_log_prob"]
    return right(**inputs) + 0 * mean(log_w.abs().sqrt(), inputs["response_mask"])


def in_float32(**inputs):
    single = {
        name: x.float() for name, x in inputs.items() if x is not None and x.is_floating_point()
    }
    return right(**{**inputs, **single})


def summed(**inputs):
    return torch.where(inputs["response_mask"], per_token(**inputs), 0).sum()


def zero_on_policy(log_prob, old_log_prob, response_mask, **_):
    return mean((log_prob - old_log_prob).square(), response_mask)


def whitened(advantages, response_mask, **inputs):
    centred = advantages - mean(advantages, response_mask)
    scale = centred[response_mask].std()
    return right(advantages=centred / scale, response_mask=response_mask, **inputs)


def constant(advantages, **_):
    return advantages.mean()


def vector(**inputs):
    return per_token(**inputs).mean(-1)


def without_mask(**inputs):
    return per_token(**inputs).mean()


def masked_too_late(advantages, **inputs):
    """Padding enters through a statistic, not through its own gradient."""
    return right(advantages=advantages - advantages[:, -1:], **inputs)


def moved_by_one(advantages, **inputs):
    return right(advantages=advantages.roll(1, -1), **inputs)


def moved_back(advantages, response_mask, **inputs):
    return right(
        advantages=(advantages * response_mask).roll(-1, -1), response_mask=response_mask, **inputs
    )


def half_of_the_tokens(**inputs):
    """Unbiased: each token is kept with probability one half, and then counts twice."""
    kept = torch.rand(inputs["log_prob"].shape) < 0.5
    return mean(2 * kept * per_token(**inputs), inputs["response_mask"])


def biased_half(**inputs):
    kept = torch.rand(inputs["log_prob"].shape) < 0.5
    return mean(1.5 * kept * per_token(**inputs), inputs["response_mask"])


def one_token_in_twenty(**inputs):
    kept = torch.rand(inputs["log_prob"].shape) < 0.05
    return mean(20 * kept * per_token(**inputs), inputs["response_mask"])


def in_bfloat16(**inputs):
    half = {
        name: x.bfloat16() for name, x in inputs.items() if x is not None and x.is_floating_point()
    }
    return right(**{**inputs, **half})


@functools.cache
def sentence(loss):
    report = audit(loss, beta=BETA, divergence="rkl", per_token=loss is not by_length)
    assert json.loads(report.to_json())["losses"][0]["note"] == report.losses[0].note
    return report.losses[0]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            right,
            ["On- and off-policy: 1 of the reward's gradient − 0.3 of RKL's; nothing left over."],
        ),
        (
            rescaled,
            [
                "1.02 of the reward's gradient − 0.306 of RKL's",
                "direction is exact",
                "rescaled by 1.02",
            ],
        ),
        (
            beta_off,
            [
                "1 of the reward's gradient − 0.306 of RKL's",
                "weight of RKL is 2 % more than the beta of 0.3",
            ],
        ),
        (
            wrong_sign,
            [
                "On-policy: 1 of the reward's gradient − 0.3 of RKL's",
                "tokens with w > 1.05. Their sign is wrong.",
            ],
        ),
        (wrong_reward, ["tokens with w < 0.95. The sign of their reward is wrong."]),
        (no_weight, ["importance weight w = π/old is missing from every token"]),
        (last_token_dropped, ["the last token of each response. They have no gradient"]),
        (
            last_token_cut,
            [
                "the last token of each response. They have no gradient",
                "All others are rescaled by 1.5.",
            ],
        ),
        (
            batch_mean,
            [
                "responses of a batch affect each other",
                "In batches of 2: 0.5 of the reward's",
                "mean is subtracted",
            ],
        ),
        (by_length, ["divided by its length"]),
        (
            detached_k2,
            [
                "1 of the reward's gradient; nothing left over",
                "It contains no KL: the RKL",
                "detached",
            ],
        ),
        (half_detached, ["0.5 of the reward's gradient; nothing left over", "It contains no KL"]),
        (not_a_number, ["is NaN on finite inputs"]),
        (nan_on_policy, ["gradient of the loss is NaN on finite inputs (drift 0)"]),
        (
            in_float32,
            ["On- and off-policy: 1 of the reward's gradient − 0.3 of RKL's; nothing left over."],
        ),
        (
            summed,
            ["On- and off-policy: 81 of the reward's gradient − 24.3 of RKL's; nothing left over."],
        ),
        (
            zero_on_policy,
            [
                "On-policy: a gradient of zero; nothing left over. Off-policy: −",
                "does not contain the reward",
            ],
        ),
        (whitened, ["In batches of 2: no finite gradient (are all rewards of some batch equal?)"]),
        (constant, ["The loss is a constant"]),
        (vector, ["tensor of shape (27,); one number is expected"]),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_a_planted_mistake_is_named(loss, words):
    result = sentence(loss)
    said = result.diagnosis or result.note
    assert bool(result.exact_off_policy) == (loss in (right, in_float32, detached_k2))
    assert (result.batch == 2) == (loss in (batch_mean, whitened))
    for part in words:
        assert part in said
    assert "direction is exact" not in said or "contains no KL" not in said


def test_a_clip_is_found_where_it_cuts():
    def clipped(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
        w = (log_prob - old_log_prob).exp()
        return -torch.minimum(w * advantages, w.clamp(0.8, 1.2) * advantages).mean()

    said = audit(clipped).losses[0].diagnosis
    assert "a positive advantage and w > 1.2" in said
    assert "a negative advantage and w < 0.8" in said
    assert "They have no gradient" in said


def test_the_catalogue_is_diagnosed_as_it_is_known_to_be():
    """GRPO's k3 is the forward KL's gradient on-policy; a ratio of prefixes makes the reverse one
    exact over responses."""
    grpo = audit(rpg.algorithm("grpo", clip=None)).losses[0].diagnosis
    assert "− 0.3 of FKL's" in grpo
    assert "RKL was asked for; on-policy it follows FKL" in grpo
    assert "The KL lacks its importance weight" in grpo
    prefix = rpg.algorithm(
        "rpg-urkl", ratio="prefix", clip=None, loss_agg_mode="seq-mean-token-sum"
    )
    assert (
        "− 0.3 of RKL's (over whole responses); nothing left over"
        in audit(prefix).losses[0].diagnosis
    )
    assert "token" not in audit(rpg.algorithm("opd-jsd")).losses[0].diagnosis.replace(
        "token-level", ""
    )


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nan_on_policy, "is NaN"),
        (whitened, "no finite gradient"),
        (rpg.algorithm("rpg-urkl", beta=0.3), "17 % left"),
    ],
)
def test_assert_gradient_fails_for_nan_and_for_an_algorithm_that_clips(loss, words):
    with pytest.raises(AssertionError, match=words):
        rpg.testing.assert_gradient(loss, of="reward - 0.3 rkl", drifts=(0.2, 0.0))


def test_assert_gradient_holds_and_fails_with_the_diagnosis():
    rpg.testing.assert_gradient(right, of="reward - 0.3 rkl", within=1e-9)
    rpg.testing.assert_gradient(
        rpg.algorithm("rpg-ufkl", beta=0.2, clip=None), of="reward - .2*fkl"
    )
    rpg.testing.assert_gradient(batch_mean, of="0.5 reward - 0.3 rkl")
    rpg.testing.assert_gradient(no_weight, of="reward - 0.3 rkl", drifts=(0.0,))
    with pytest.raises(
        AssertionError, match=r"off the token-level gradient .*w = π/old is missing"
    ):
        rpg.testing.assert_gradient(no_weight, of="reward - 0.3 rkl")
    with pytest.raises(AssertionError, match=r"2 % more than the beta"):
        rpg.testing.assert_gradient(beta_off, of="reward - 0.3 rkl", within=1e-3)
    with pytest.raises(AssertionError, match="constant"):
        rpg.testing.assert_gradient(constant, of="reward")


@pytest.mark.parametrize(
    "of", ["", "reward - 0.3 rlk", "reward 0.3 rkl", "reward - 0.3 rkl +", "2"]
)
def test_an_objective_that_cannot_be_read_is_named(of):
    with pytest.raises(ValueError, match="accepted: numbers times reward, fkl"):
        rpg.testing.assert_gradient(right, of=of)


OF = "reward - 0.3 rkl"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (without_mask, r"ignores response_mask: \d+% of its gradient is that of padding"),
        (masked_too_late, "ignores response_mask: what stands in the padding changes the gradient"),
        (moved_by_one, "ignores response_mask: what stands in the padding changes"),
        (moved_back, "advantages are moved by 1: a token is weighted .* of the token after it"),
        (by_length, "divided by its length .* its objective is the expectation of R divided by"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_what_responses_of_equal_length_hide_fails_and_is_named(loss, words):
    with pytest.raises(AssertionError, match=words):
        rpg.testing.assert_gradient(loss, of=OF)


def test_advantages_moved_forward_within_a_response_are_named():
    """The first token has its own, so that no padding is read."""

    def forward(advantages, **inputs):
        before = torch.cat([advantages[:, :1], advantages[:, :-1]], -1)
        return right(advantages=before, **inputs)

    def forward_or_zero(advantages, **inputs):
        before = torch.nn.functional.pad(advantages[:, :-1], (1, 0))
        return right(advantages=before, **inputs)

    with pytest.raises(AssertionError, match="with padding, an end token and advantages"):
        rpg.testing.assert_gradient(forward, of=OF)
    with pytest.raises(AssertionError, match=r"moved by 1: .* of the token before it"):
        rpg.testing.assert_gradient(forward_or_zero, of=OF)


def test_the_audit_claims_no_objective_for_a_loss_that_ignores_the_mask():
    result = audit(without_mask, beta=BETA).losses[0]
    assert "ignores response_mask" in result.diagnosis
    assert not result.exact_off_policy
    assert not result.exact_on_policy


def test_sums_with_a_fixed_divisor_and_means_over_responses_pass():
    def fixed(**inputs):
        mask = inputs["response_mask"]
        return torch.where(mask, per_token(**inputs), 0).sum() / mask.numel()

    def of_responses(**inputs):
        mask = inputs["response_mask"]
        return torch.where(mask, per_token(**inputs), 0).sum(-1).mean()

    rpg.testing.assert_gradient(fixed, of=OF)
    rpg.testing.assert_gradient(of_responses, of=OF, per_token=False)


@pytest.mark.system
def test_a_loss_with_random_numbers_is_judged_within_its_error():
    torch.manual_seed(0)
    rpg.testing.assert_gradient(half_of_the_tokens, of=OF, drifts=(0.4,), seeds=(0,))
    with pytest.raises(AssertionError, match="draws random numbers: averaged over 1024 calls"):
        rpg.testing.assert_gradient(biased_half, of=OF, drifts=(0.0,), seeds=(0,))
    with pytest.raises(AssertionError, match="too noisy to be judged: after 1024 calls"):
        rpg.testing.assert_gradient(one_token_in_twenty, of=OF, drifts=(0.0,), seeds=(0,))
    result = audit(half_of_the_tokens, beta=BETA, drifts=(0.4,), seeds=(0,)).losses[0]
    assert "affect each other" not in result.diagnosis
    assert result.batch == 1
    assert "draws random numbers" in result.diagnosis
    bias = result.point(0.4).bias["token-level E[R] − β KL(π‖ref)"]
    assert bias < 0.1


def test_rounding_to_bfloat16_is_not_taken_for_coupling():
    result = audit(in_bfloat16, beta=BETA).losses[0]
    assert "computes in bfloat16" in result.diagnosis
    assert result.batch == 1
    assert "affect each other" not in result.diagnosis
    rpg.testing.assert_gradient(in_bfloat16, of=OF, within=0.03)
    with pytest.raises(AssertionError, match="computes in bfloat16: every number is rounded"):
        rpg.testing.assert_gradient(in_bfloat16, of=OF)
