"""What other trainers ship, too: the same slopes as their own functions, response by response, and
the same numbers."""

import pytest
import torch

import rpg
from rpg.auditing import peers, pinned
from rpg.auditing.measure import Settings
from rpg.auditing.moments import batch_slopes
from rpg.auditing.subjects import Scene, from_algorithm
from rpg.losses.policy_loss import rollout_weights

TWO = {"low": 0.2, "high": 0.2, "c": None}
OPSM = {"by": "response", "low": 1e-4, "high": None}
BOUND = {"low": 1.0, "high": 2.0, "c": None}  # verl's clip_ratio_c is 3


@pytest.fixture(scope="module")
def shipped():
    subjects = {(s.source.split()[0], s.name): s for s in peers.installed(0.3, all_shipped=True)[0]}
    for trainer in pinned.trainers().values():
        for name, algo in trainer.losses.items():
            subjects[trainer.name, name] = pinned.subject(name, trainer.name, algo, 0.3)
    return subjects


@pytest.mark.parametrize(
    ("name", "changes", "theirs"),
    [
        ("gmpo", {"clip": TWO}, ("verl", "geo_mean")),
        ("sapo", {}, ("verl", "sapo")),
        ("gspo", {"clip": TWO}, ("verl", "gspo")),
        ("dppo-tv", {"clip": BOUND}, ("verl", "dppo_tv")),
        ("dppo-kl", {"clip": BOUND}, ("verl", "dppo_kl")),
        ("dro", {"drift_penalty": 0.15}, ("verl", "dro")),
        ("prime-rl", {}, ("prime-rl", "default")),
        ("ipo", {}, ("prime-rl", "ipo")),
        ("vespo", {}, ("trl", "vespo")),
        ("grpo", {"kl": "none", "clip": TWO, "mask": OPSM}, ("slime", "grpo, use_opsm")),
    ],
)
def test_the_loss_is_theirs(shipped, name, changes, theirs):
    if theirs not in shipped:
        pytest.skip(f"{theirs[0]} is not installed: compared with its own function")
    other = shipped[theirs]
    mine = from_algorithm(rpg.algorithm(name, **changes))
    place = Settings().world(0)
    for drift in (0.0, 0.8):
        inputs = Scene.of(mine, place, drift).inputs
        slopes = batch_slopes(mine.losses[-1], inputs)
        expected = batch_slopes(other.losses[-1], inputs)
        assert slopes.any()
        torch.testing.assert_close(slopes, expected, rtol=1e-5, atol=1e-7)

        is_cut = bool(drift and mine.clipped)  # something is clipped or masked there
        if is_cut:
            unclipped = batch_slopes(mine.loss, inputs)
            assert not torch.equal(slopes, unclipped)


@pytest.fixture
def core():
    return pytest.importorskip(
        "verl.trainer.ppo.core_algos", reason="compared with verl's own functions"
    )


MASK = (torch.arange(5) < torch.tensor([[5], [2], [3], [1]])).float()
GROUP = torch.tensor([0, 0, 1, 1])


def at_end(rewards):
    return torch.zeros(MASK.shape).scatter(
        1, MASK.sum(-1, keepdim=True).long() - 1, rewards[:, None]
    )


def test_opos_baseline_is_verls(core):
    rewards = torch.tensor([1.0, 0.0, -1.0, 1.0])
    theirs = core.compute_opo_outcome_advantage(at_end(rewards), MASK, GROUP.numpy())[0]
    mine = rpg.advantages(rpg.algorithm("opo"), rewards=rewards, group=GROUP, response_mask=MASK)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("std", [False, True])
def test_the_best_of_a_group_is_verls(core, std):
    rewards = torch.tensor([1.0, 0.5, -1.0, 1.0, 1.0])  # the best twice in the second group
    group = torch.tensor([0, 0, 0, 1, 1])
    mask = torch.ones(5, 1)
    settings = {"norm_adv_by_std_in_grpo": std}
    theirs = core.compute_grpo_passk_outcome_advantage(
        rewards[:, None], mask, group.numpy(), config=settings
    )[0]
    algo = rpg.algorithm("grpo-passk", advantage={"std": std})
    torch.testing.assert_close(
        rpg.advantages(algo, rewards=rewards, group=group, response_mask=mask), theirs
    )


MODES = [("token", "k1"), ("token", "k2"), ("token", "k3"), ("all", "k2"), ("all", "k3")]
MODES += [(level, by) for level in ("sum", "mean") for by in ("k1", "k2", "k3")]


@pytest.mark.parametrize(("level", "by"), MODES)
def test_what_is_rejected_is_what_verl_rejects(level, by):
    reason = "compared with verl's own function"
    helper = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper", reason=reason)
    old, sampler = 0.5 * torch.randn(2, 400, 5, generator=torch.Generator().manual_seed(0))
    mask = MASK.repeat(100, 1)
    name = f"{ {'token': 'token', 'all': 'seq_max'}.get(level, f'seq_{level}') }_{by}"
    high = {"k1": 1.6, "k2": 0.3, "k3": 0.3}[by]
    limits = f"{1 / high}_{1 / 0.7}" if by == "k1" else high  # verl's k1 bounds sampler / old
    theirs = helper.compute_rollout_rejection_mask(old - sampler, mask, name, limits)[0]
    setting = {"type": "reject", "level": level, "by": by, "low": 0.7, "high": high}
    mine = rollout_weights(
        rpg.algorithm("grpo", rollout_correction=setting).rollout_correction,
        old_log_prob=old,
        sampler_log_prob=sampler,
        response_mask=mask,
    )
    assert 0 < theirs.sum() < mask.sum()
    torch.testing.assert_close(mine * mask, theirs)
