from itertools import product

import pytest
import torch

import rpg
from rpg.losses.advantages import positive_lm_weights
from rpg.losses.aggregation import aggregate
from tests.losses import oracle


def advantages(name, rewards, group, mask=None, **kwargs):
    algo = name if isinstance(name, rpg.Algorithm) else rpg.algorithm(name)
    rewards = torch.tensor(rewards, dtype=torch.float64)
    mask = torch.ones(len(rewards), 3) if mask is None else torch.tensor(mask)
    if (
        algo.needs_reference or algo.advantage.type == "target"
    ) and not kwargs:  # where nothing is said, the policy has not moved: no KL
        kwargs = dict.fromkeys(("old_log_prob", "ref_log_prob"), torch.zeros(mask.shape))
    return rpg.advantages(
        algo, rewards=rewards, group=torch.tensor(group), response_mask=mask, **kwargs
    )


@pytest.mark.parametrize(
    ("name", "rewards", "group", "lengths", "expected"),
    [
        # mean 0.5, unbiased std 0.577350; to standard deviations 1e-6 is added
        (
            "grpo",
            [1, 0, 0, 1],
            [7, 7, 7, 7],
            [3] * 4,
            [0.8660239, -0.8660239, -0.8660239, 0.8660239],
        ),
        # groups need not be contiguous nor of equal size; equal rewards and a group of one have
        # none
        (
            "grpo",
            [1, 5, 0, 5, 9, 0.5],
            [3, 1, 3, 1, 8, 3],
            [3] * 6,
            [0.999998, 0, -0.999998, 0, 0, 0],
        ),
        # others' means: 4, 3.5, 1.5
        ("rloo", [1, 2, 6], [0, 0, 0], [3] * 3, [-3, -1.5, 4.5]),
        # rescaled by the share of groups with a signal: 0.5 * 4 / 2
        ("gpg", [1, 0, 1, 1], [0, 0, 1, 1], [3] * 4, [1, -1, 0, 0]),
        # the baseline is weighted by length, 3/4; alone, or beside an empty response, a reward is
        # its own
        ("opo", [1, 0, 7], [0, 0, 1], [3, 1, 2], [0.25, -0.75, 0]),
        ("opo", [1, 0], [0, 0], [1, 0], [0, 0]),
        # whitened over tokens: mean 0.75, unbiased std 0.5
        ("reinforce-pp", [1, 0], [0, 1], [3, 1], [0.499999, -1.499997]),
        # centred by group 0.5 -0.5 1 -1, three tokens each: unbiased std sqrt(7.5 / 11)
        (
            "reinforce-pp-baseline",
            [1, 0, 3, 1],
            [0, 0, 1, 1],
            [3] * 4,
            [0.6055294, -0.6055294, 1.2110587, -1.2110587],
        ),
    ],
)
def test_advantages_by_hand(name, rewards, group, lengths, expected):
    mask = torch.arange(3) < torch.tensor(lengths)[:, None]
    meant = torch.tensor(expected, dtype=torch.float64)[:, None] * mask
    torch.testing.assert_close(
        advantages(name, rewards, group, mask.tolist()), meant, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    "name", ["grpo", "dr-grpo", "rloo", "gpg", "rpg-urkl", "reinforce-pp", "reinforce"]
)
def test_equal_rewards_give_exactly_zero(name):
    a = advantages(name, [0.1] * 3, [0, 0, 0])  # the mean of three 0.1 is not 0.1 in binary
    assert (a == 0).all()


def test_the_best_of_a_group_is_exact_for_the_best_reward():
    """All groups of three of four responses: the average of the sum of A log pi has the gradient of
    E[best reward]."""
    rewards = torch.tensor([0.3, -1.0, 1.0, 0.9], dtype=torch.float64)
    logits = torch.tensor([0.2, 1.0, -0.4, 0.7], dtype=torch.float64, requires_grad=True)
    groups = torch.cartesian_prod(*[torch.arange(4)] * 3)  # (64, 3)
    log_pi = logits.log_softmax(-1)[groups]
    chance = log_pi.sum(-1).exp()
    group = torch.arange(64).repeat_interleave(3).tolist()
    a = advantages("grpo-passk", rewards[groups].flatten().tolist(), group)[:, 0].view(64, 3)
    followed = (chance.detach() * (a * log_pi).sum(-1)).sum()
    found = oracle.gradient(followed, logits)
    meant = oracle.gradient((chance * rewards[groups].amax(-1)).sum(), logits)
    assert meant.norm() > 0.01
    assert (found - meant).norm() < 1e-10 * meant.norm()


def test_kl_in_the_reward_is_a_return_to_go():
    """Penalties 0.1 k1 with k1 = (1, 2, 3) leave to come 0.6, 0.5, 0.3."""
    algo = rpg.algorithm("reinforce-pp", beta=0.1, advantage={"std": False})
    old = torch.tensor([[0.0, 0.0, 0.0]] * 2)
    ref = torch.tensor([[-1.0, -2.0, -3.0], [0.0, 0.0, 0.0]])
    a = advantages(algo, [1.0, 1.0], [0, 0], old_log_prob=old, ref_log_prob=ref)
    raw = torch.tensor([[0.4, 0.5, 0.7], [1.0, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(a, raw - raw.mean())


def test_gae_with_a_critic():
    algo = rpg.algorithm("ppo", advantage={"type": "gae", "gamma": 0.9, "lam": 0.5}, kl="none")
    values = torch.tensor([[0.5, 0.2, 7.0]])
    a = advantages(algo, [1.0], [0], [[1, 1, 0]], values=values)
    # deltas: 0 + .9*.2 - .5 = -.32; 1 - .2 = .8
    assert a[0].tolist() == pytest.approx([-0.32 + 0.45 * 0.8, 0.8, 0.0])
    with pytest.raises(ValueError, match="values: advantage type gae needs"):
        advantages(algo, [1.0], [0])
    with pytest.raises(ValueError, match=r"values: shape \(1, 1\)"):
        advantages(algo, [1.0], [0], values=values[:, :1])


def test_masked_garbage_and_inputs_stay_out():
    algo = rpg.algorithm("reinforce-pp", beta=0.1)
    nan = float("nan")
    old = torch.tensor([[0.0, nan, nan], [0.0, -1.0, float("-inf")]])
    keep = old.clone()
    a = advantages(
        algo, [1.0, 0.0], [0, 0], [[1, 0, 0], [1, 1, 0]], old_log_prob=old, ref_log_prob=old * 2
    )
    assert a.isfinite().all()
    assert (a[0, 1:] == 0).all()
    assert a[1, 2] == 0
    torch.testing.assert_close(old, keep, equal_nan=True)


def test_empty_responses_and_empty_batch():
    for name in rpg.algorithms():
        assert (advantages(name, [1.0, 0.0], [0, 0], [[0, 0, 0], [0, 0, 0]]) == 0).all()
        none = dict.fromkeys(("response_mask", "old_log_prob", "ref_log_prob"), torch.zeros(0, 4))
        none |= {"rewards": torch.zeros(0), "group": torch.zeros(0, dtype=torch.long)}
        assert rpg.advantages(rpg.algorithm(name), **none).shape == (0, 4)


def test_errors_name_the_input_and_what_is_wrong():
    with pytest.raises(ValueError, match="group: shape"):
        advantages("grpo", [1.0, 0.0], [0])
    with pytest.raises(FloatingPointError, match=r"rewards\[1\] is nan"):
        advantages("grpo", [1.0, float("nan")], [0, 0])
    with pytest.raises(ValueError, match="old_log_prob"):
        advantages("reinforce-pp", [1.0], [0], ref_log_prob=torch.zeros(1, 3))


@pytest.mark.parametrize("name", ["rloo", "reinforce-pp"])
def test_a_reference_of_its_own_cannot_be_forgotten(name):
    """It would leave the KL out of the reward without a word."""
    algo = rpg.algorithm(name)
    one = torch.ones(2, 3)
    given = {"rewards": one[:, 0], "group": torch.zeros(2, dtype=torch.long), "response_mask": one}
    assert algo.kl.type == "reward"
    assert algo.needs_reference
    with pytest.raises(
        ValueError, match=f"ref_log_prob: {name} has its KL to another reference policy"
    ):
        rpg.advantages(algo, **given)
    rpg.advantages(rpg.algorithm(name, reference="old"), **given)


def test_on_policy_the_likelihood_of_right_responses_follows_the_probability_of_one():
    """All nine responses of two of three tokens, each as often among 16 as its probability says."""
    share = torch.tensor([[1, 2, 1], [2, 1, 1], [1, 1, 2], [2, 1, 1]], dtype=torch.float64) / 4
    logits = share.log().requires_grad_()
    tokens = torch.stack(
        [logits.log_softmax(-1)[[0, 1 + a], [a, b]] for a, b in product(range(3), repeat=2)]
    )
    drawn = torch.arange(9).repeat_interleave((16 * tokens.sum(-1).exp()).round().long())
    right = torch.tensor([1, 0, 0, 0, 1, 1, 0, 0, 1], dtype=torch.bool)
    mask = torch.ones(16, 2)
    weights = positive_lm_weights(rpg.algorithm("ppo", positive_lm_loss=0.3), right[drawn], mask)
    loss = -aggregate(tokens[drawn] * weights, mask, "token-mean")
    accuracy = tokens.sum(-1).exp()[right].sum()
    ours, meant = (
        torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (loss, -0.3 * accuracy)
    )
    torch.testing.assert_close(ours, meant / (2 * accuracy.detach()), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_an_advantage_over_the_mean_is_maximum_likelihood_up_to_the_groups_size(size):
    """All groups of responses of which two of four are right. The average of A log pi, a mean over
    the group, has the gradient of the sum over k < size of -(1 - p)^k / k, which tends to log p."""
    rewards = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    logits = torch.tensor([-1.2, 1.0, -0.4, 0.7], dtype=torch.float64, requires_grad=True)
    groups = torch.cartesian_prod(*[torch.arange(4)] * size)
    log_pi = logits.log_softmax(-1)[groups]
    chance = log_pi.sum(-1).exp().detach()

    group = torch.arange(len(groups)).repeat_interleave(size).tolist()
    of_responses = advantages("maxrl", rewards[groups].flatten().tolist(), group)[:, 0]
    a = of_responses.view(-1, size)
    of_groups = (a * log_pi).mean(-1)
    found = oracle.gradient((chance * of_groups).sum(), logits)

    p = logits.softmax(-1)[rewards > 0].sum()
    series = -sum((1 - p) ** k / k for k in range(1, size))
    meant = oracle.gradient(series, logits)
    assert meant.norm() > 0.01
    assert (found - meant).norm() < 1e-7 * meant.norm()


def test_an_advantage_over_the_mean_by_hand():
    """Rewards of 0 and 1: (R - mean) / mean, zero where nothing was right."""
    algo = rpg.algorithm("maxrl", advantage={"floor": 0.0})
    a = advantages(algo, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0], [0] * 4 + [1] * 2 + [2] * 2)
    assert a[:, 0].tolist() == pytest.approx([3.0, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_step_towards_a_target_is_the_cross_entropys_gradient(temperature):
    """As tpo_target and its loss in JeanKaddour/tpo at 73473b9e, for all groups of three of four
    responses, at a policy that has moved since the target was made."""
    rewards = torch.tensor([1.0, -1.0, 0.25, -1.0], dtype=torch.float64)
    old = torch.tensor([-0.3, 0.8, -1.1, 0.2], dtype=torch.float64).log_softmax(-1)
    logits = torch.tensor([0.4, 0.1, -0.6, 0.9], dtype=torch.float64, requires_grad=True)
    groups = torch.cartesian_prod(*[torch.arange(4)] * 3)
    now = logits.log_softmax(-1)[groups]

    score = rewards[groups] - rewards[groups].mean(-1, keepdim=True)
    deviation = score.std(-1, keepdim=True, unbiased=False)
    score = torch.where(deviation > 1e-6, score / deviation, score)
    target = (old[groups].log_softmax(-1) + score / temperature).softmax(-1)
    cross_entropy = -(target * now.log_softmax(-1)).sum(-1).mean()

    algo = rpg.algorithm("tpo", advantage={"temperature": temperature})
    rows = {"old_log_prob": old[groups].view(-1, 1), "log_prob": now.detach().view(-1, 1)}
    a = rpg.advantages(
        algo,
        rewards=rewards[groups].flatten(),
        group=torch.arange(len(groups)).repeat_interleave(3),
        response_mask=torch.ones(3 * len(groups), 1),
        **rows,
    )
    loss = rpg.policy_loss(
        algo,
        log_prob=now.reshape(-1, 1),
        old_log_prob=rows["old_log_prob"],
        advantages=a,
        response_mask=torch.ones(3 * len(groups), 1),
    ).loss
    meant = oracle.gradient(cross_entropy, logits)
    assert meant.norm() > 0.01
    torch.testing.assert_close(oracle.gradient(loss, logits), meant, rtol=1e-6, atol=1e-9)


def test_a_target_of_equal_rewards_holds_the_policy_where_it_was():
    """Before the first update nothing is left to do; after it, the step goes back."""
    old = torch.tensor([[-1.0], [-2.0]], dtype=torch.float64)
    still = advantages("tpo", [1.0, 1.0], [0, 0], [[1], [1]], old_log_prob=old)
    moved = torch.tensor([[-0.5], [-2.0]], dtype=torch.float64)
    after = advantages("tpo", [1.0, 1.0], [0, 0], [[1], [1]], old_log_prob=old, log_prob=moved)
    assert still.tolist() == [[0.0], [0.0]]
    assert after[0].item() < 0 < after[1].item()


def test_what_is_masked_is_no_part_of_a_targets_probabilities():
    """A response of one token and one of two, whatever stands behind the shorter one."""
    mask = [[1, 0], [1, 1]]
    results = []
    for padding in (-0.1, -7.0):
        old = torch.tensor([[-1.0, padding], [-0.4, -0.9]], dtype=torch.float64)
        results.append(advantages("tpo", [1.0, 0.0], [0, 0], mask, old_log_prob=old)[:, 0])
    p_old = torch.tensor([-1.0, -1.3], dtype=torch.float64)
    standardised = torch.tensor([1.0, -1.0], dtype=torch.float64)
    expected = 2 * ((p_old + standardised).softmax(-1) - p_old.softmax(-1))
    for found in results:
        torch.testing.assert_close(found, expected)


def test_a_target_is_not_multiplied_by_a_ratio():
    with pytest.raises(rpg.AlgorithmError, match=r"advantage target .* policy_gradient only"):
        rpg.algorithm("grpo", advantage="target")
