"""Rewards that a grader, a reward model, or a wrong verifier gives."""

import pytest
import torch

from tests.local.test_trainer import make, plain, trained, weights
from tests.models.test_reward_models import classifier

GRADED = """
def score(responses, prompts, answer):
    letters = [len(set(r)) / 10 for r in responses]
    return {"letters": letters, "even": [None if len(r) % 2 else 1.0 for r in responses]}
"""


def graded(tmp_path, *more):
    (tmp_path / "mine.py").write_text(GRADED)
    function = {
        "type": "python",
        "function": "mine:score",
        "beside": str(tmp_path),
        "weights": {"even": 0.0},
    }
    return [function, *more]


def test_a_graded_reward_trains_and_each_part_is_a_metric(home, tmp_path):
    reward = graded(tmp_path, {"type": "correctness", "weight": 0.5, "wrong": 0.0})
    trainer = make(home, reward=reward, algorithm={"name": "grpo", "dynamic_sampling": True})
    rollout = trainer.roller.roll(trainer.policy, 1)
    first = rollout.first
    texts = trainer.policy.text(first.samples.batch)
    graded_texts = zip(texts, first.correct.tolist(), strict=True)
    expected = [len(set(text)) / 10 + 0.5 * right for text, right in graded_texts]
    assert torch.allclose(first.rewards, torch.tensor(expected), atol=1e-6)
    means = first.part_means()
    assert set(means) == {"reward_score_letters", "reward_score_even", "reward_correctness"}
    assert means["reward_score_even"] == 1.0  # of those to which it applies
    assert means["reward_correctness"] == pytest.approx(float(first.correct.float().mean()))
    # Groups that are all wrong are kept where their rewards differ, and none whose rewards are
    # equal.
    kept = rollout.kept.rewards.view(-1, 8)
    assert bool((kept.amax(-1) > kept.amin(-1)).all())
    assert not bool(rollout.kept.correct.view(-1, 8).any(-1).all())
    row = trainer.step(1)
    assert row["reward"] == pytest.approx(sum(expected) / len(expected))
    assert row["reward_correctness"] == row["accuracy"]
    trainer.roller.scorer.close()


def test_a_reward_model_trains(home, tmp_path):
    classifier(tmp_path)
    reward = {"type": "model", "path": str(tmp_path), "weight": 3.0, "name": "judge"}
    before = weights(make(home))
    after, (row,), _ = trained(home, steps=1, reward=reward)
    assert row["reward"] == pytest.approx(3 * row["reward_judge"], rel=1e-5)
    assert not after.equal(before)


def test_a_reward_that_fails_ends_the_step_before_anything_changed(home, tmp_path):
    from rpg.tasks.rewards.function_process import RewardError

    (tmp_path / "mine.py").write_text("def score(responses): return [1.0]\n")
    part = {"type": "python", "function": "mine:score", "beside": str(tmp_path)}
    trainer = make(home, reward=part)
    before = weights(trainer)
    with pytest.raises(
        RewardError, match="mine:score: returned 1 values for 64 responses; response 2 of 64"
    ):
        trainer.step(1)
    assert weights(trainer).equal(before)


ALWAYS_WRONG = {"corrupt": {"false_positive": 1.0, "false_negative": 1.0}}


def test_an_always_wrong_grader_is_in_the_reward_and_in_no_accuracy(home):
    (true,) = trained(home, steps=1)[1]
    (false,) = trained(home, steps=1, reward=ALWAYS_WRONG)[1]
    assert false["accuracy"] == true["accuracy"]
    assert false["reward"] == pytest.approx(-true["reward"])
    assert false["reward_grading_errors"] == 1.0
    assert "reward_grading_errors" not in true


def test_a_resumed_training_makes_the_same_errors(home):
    corrupt = {"false_positive": 0.3, "false_negative": 0.2}
    changes = {"reward": {"corrupt": corrupt}, "seed": 5}
    whole = trained(home, steps=2, **changes)[1]
    assert 0 < whole[1]["reward_grading_errors"] < 1
    again = make(home, **changes)
    again.step(1)
    assert plain(again.step(2)) == whole[1]
