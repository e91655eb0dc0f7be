"""Samples of another policy than the one that trains: an earlier one, a rounded one, and what
corrects for it."""

import itertools

import pytest
import torch

from rpg.backends.local.sampler import rounded
from rpg.config.errors import ConfigError
from rpg.config.load import resolve
from rpg.models.micro_batches import score
from tests.local.test_trainer import LIMITS, make, plain, trained, weights


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_step_samples_from_the_policy_of_so_many_rollouts_before(home, staleness):
    """Its log-probabilities are the old ones; the policies are told apart by their weights."""
    trainer = make(
        home, rollout={"staleness": staleness}, training={"optimizer": {"learning_rate": 1e-3}}
    )
    before = []
    sampled = []
    roll = trainer.roller.roll
    make_experience = trainer._experience

    def watched(policy, step):
        before.append(weights(trainer))
        sampled.append(torch.cat([p.detach().flatten() for p in policy.model.parameters()]))
        return roll(policy, step)

    def scored(graded, sampler):
        experience = make_experience(graded, sampler)
        theirs = score(sampler, graded.samples.batch, 1.0, LIMITS)
        assert torch.allclose(experience.old_log_prob, theirs, atol=1e-5)
        return experience

    trainer.roller.roll = watched
    trainer._experience = scored
    rows = [trainer.step(step) for step in range(1, 6)]
    for step in range(5):
        assert sampled[step].equal(before[max(0, step - staleness)]), step
    if staleness:
        assert not sampled[4].equal(before[4])
        assert [row["sampler_age"] for row in rows] == [min(step, staleness) for step in range(5)]
        assert rows[4]["kl_sampler_to_policy"] > 10 * rows[0]["kl_sampler_to_policy"]
    else:
        assert "sampler_age" not in rows[0]


VARIANTS = {
    "on-policy": {},
    "staleness 1": {"rollout": {"staleness": 1}},
    "staleness 2": {"rollout": {"staleness": 2}},
    "bfloat16": {"rollout": {"sampler": {"dtype": "bfloat16"}}},
    "int8": {"rollout": {"sampler": {"dtype": "int8"}}},
} | {
    f"staleness 2, {label}": {
        "rollout": {"staleness": 2},
        "algorithm": {"name": "rpg-urkl", "rollout_correction": how},
    }
    for label, how in {
        "ignored": "ignore",
        "truncated, token": {"type": "truncate", "cap": 1.01},
        "truncated, sequence": {"type": "truncate", "level": "sequence", "cap": 1.01},
        "masked, token": {"type": "mask", "low": 0.9, "high": 1.1},
        "masked, sequence": {"type": "mask", "level": "sequence", "low": 0.9, "high": 1.1},
    }.items()
}


def test_each_variant_trains_another_policy(home):
    shared = {"algorithm": "rpg-urkl", "training": {"optimizer": {"learning_rate": 1e-3}}}
    ends = {
        name: trained(home, steps=3, **{**shared, **change})[0] for name, change in VARIANTS.items()
    }
    pairs = itertools.combinations(ends, 2)
    assert [(a, b) for a, b in pairs if torch.allclose(ends[a], ends[b], atol=1e-7)] == []


def test_a_renewed_reference_is_the_policy_and_not_its_stale_sampler(home):
    algorithm = {"name": "rpg-urkl", "beta": 0.1, "reference": {"type": "every_k", "k": 1}}
    trainer = make(
        home, algorithm=algorithm, rollout={"staleness": 2}, training={"mini_batch_prompts": 8}
    )
    rows = [plain(trainer.step(step)) for step in range(1, 5)]
    for row in rows[2:]:  # one update per rollout: the policy is still its own reference
        assert row["kl_policy_to_ref"] < 1e-9 < row["kl_policy_to_old"]


def test_rounding_is_to_the_nearest_of_so_many_values():
    weight = torch.randn(5, 900, generator=torch.Generator().manual_seed(0))
    weight[0] = -weight[0].abs()  # the largest magnitude of a row may be a negative number's
    eight = rounded(weight, "int8")
    scale = weight.abs().amax(-1) / 127
    assert ((eight - weight).abs() <= 0.5001 * scale[:, None]).all()
    assert max(len(row.unique()) for row in eight) <= 255
    assert rounded(torch.zeros(1, 3), "int8").equal(torch.zeros(1, 3))
    assert rounded(weight, "bfloat16").equal(weight.to(torch.bfloat16).float())
    assert rounded(weight, "same") is weight
    assert rounded(weight[0], "int8").equal(weight[0])


def test_verl_refuses_a_rounded_sampler_in_a_sentence():
    words = (
        r"rollout\.sampler\.dtype int8: not supported by the sampler of backend verl.*or "
        r"backend\.type local"
    )
    with pytest.raises(ConfigError, match=words):
        resolve({"rollout": {"sampler": {"dtype": "int8"}}, "backend": {"type": "verl"}}, "run")


@pytest.mark.parametrize(
    "how",
    [
        {"type": "truncate", "cap": 1.01},
        {"type": "mask", "low": 0.9, "high": 1.1, "level": "sequence"},
    ],
)
def test_what_the_weights_of_the_samples_do_is_measured(home, how):
    algorithm = {"name": "rpg-urkl", "rollout_correction": how}
    changes = {"training": {"optimizer": {"learning_rate": 1e-3}}, "rollout": {"staleness": 1}}
    trainer = make(home, algorithm=algorithm, **changes)
    rows = [trainer.step(step) for step in (1, 2, 3)]
    assert (
        rows[0]["rollout_weight_mean"]
        == pytest.approx(1, abs=1e-4)
        == rows[0]["rollout_weight_ess"]
    )
    assert rows[0]["rollout_weight_bounded"] == 0, "the first rollout is the policy's own"
    assert 0 < rows[2]["rollout_weight_bounded"] < 1
    assert rows[2]["rollout_weight_ess"] < 1
