"""When the reference is renewed, and what its KL does to a training."""

from rpg.models.initial_policy import initial_policy
from tests.local.test_trainer import make, trained
from tests.tiny import make_spec


def ages(home, reference, **changes):
    algorithm = {"name": "rpg-reinforce-urkl", "beta": 0.1, "dynamic_sampling": False}
    trainer = make(home, algorithm={**algorithm, "reference": reference}, **changes)
    return [trainer.step(s) for s in range(1, 6)], trainer


def test_references_are_renewed_at_every_rollout_every_k_optimizer_steps_or_never(home):
    rows, trainer = ages(home, "old")
    assert [r["reference_age"] for r in rows] == [0] * 5
    assert trainer.reference.policy is None
    rows, _ = ages(home, {"type": "every_k", "k": 5})  # two per rollout
    assert [r["reference_age"] for r in rows] == [0, 2, 4, 0, 2]
    assert [int(r["kl_ref_to_policy"] > r["kl_old_to_policy"] * 1.01) for r in rows] == [
        0,
        1,
        1,
        0,
        1,
    ]
    rows, trainer = ages(home, "fixed")
    assert [r["reference_age"] for r in rows] == [0, 2, 4, 6, 8]
    initial = initial_policy(make_spec(), home)
    kept = trainer.reference.policy.model.parameters()
    assert all(a.equal(b) for a, b in zip(kept, initial.model.parameters(), strict=True))


def test_reference_kl_above_is_renewed_when_the_average_is_exceeded(home):
    rows, _ = ages(home, {"type": "kl_above", "kappa": 1e9})
    assert [r["reference_age"] for r in rows] == [0, 2, 4, 6, 8]
    rows, _ = ages(home, {"type": "kl_above", "kappa": 1e-12, "decay": 0.0})
    assert [r["reference_age"] for r in rows] == [0] * 5
    average = 0.0
    seen = []
    expected = []
    one_update = {"mini_batch_prompts": 8}  # per rollout: its KL is in the metrics
    reference = {"type": "kl_above", "kappa": 5e-4, "decay": 0.5}
    rows, trainer = ages(home, reference, training=one_update)
    rows += [trainer.step(step) for step in (6, 7, 8)]
    age = 0
    for row in rows:
        if average > 5e-4:
            average = 0.0
            age = 0
        seen.append(row["reference_age"])
        expected.append(age)
        average = 0.5 * average + 0.5 * row["kl_policy_to_ref"]
        age += 1
    assert seen == expected
    assert 1 < seen.count(0) < 8


def test_a_kl_in_the_reward_changes_training(home):
    """A beta that counts must move the weights elsewhere. One in the loss:
    test_token_records.py."""
    kl = {"name": "reinforce-pp", "reference": "fixed", "dynamic_sampling": False}
    ends = [trained(home, algorithm={**kl, "beta": beta})[0] for beta in (1.0, 0.0)]
    assert not ends[0].equal(ends[1])
