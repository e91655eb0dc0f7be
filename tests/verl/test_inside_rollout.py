"""Responses that verl's servers draw: groups that are replaced, their order, and what fails."""

import types

import pytest
import torch

from rpg.backends.progress_reporter import Progress
from rpg.backends.prompts import PromptOrder
from rpg.errors import UserError
from tests.verl.test_inside_driver import settings


def fake_groups(rollout, right):
    """Groups of 4 responses, `right` of which are correct."""

    def response(key, correct):
        reward = 1.0 if correct else -1.0
        return rollout.Response(key, {"response_len": 5}, reward, correct, False, 2.0, reward, {})

    return [[response(f"{i}_{n}_0", n < share) for n in range(4)] for i, share in enumerate(right)]


@pytest.fixture
def rollout(cpu_verl):
    from rpg.backends.verl import rollout

    return rollout


def test_groups_that_teach_nothing_are_replaced(config, rollout):
    found = settings(config(algorithm="dapo"))
    assert found.algorithm.dynamic_sampling
    rounds = []

    def sample(numbers, round_):
        rounds.append(list(numbers))
        return fake_groups(rollout, [2 if i % 2 else 4 for i in range(len(numbers))])

    rolled = rollout.roll(found, 400, 1, sample)
    assert len(rolled.kept) == 8
    assert all(rollout.useful(group) for group in rolled.kept)
    assert rounds[0] == PromptOrder(400, found.seed).first(1, 8)
    drawn = [number for numbers in rounds for number in numbers]
    assert len(set(drawn)) == len(drawn)
    metrics = rolled.metrics()
    assert metrics["groups_sampled"] == sum(map(len, rounds))
    assert metrics["groups_kept"] == 8
    assert (metrics["accuracy"], metrics["reward"]) == (0.75, 0.5), "of the first round"
    assert metrics["entropy"] == pytest.approx(2 / 5)
    kept, dropped = map(len, (rolled.kept, rolled.dropped()))
    assert kept + dropped == metrics["groups_sampled"]
    assert rolled.tokens == 20 * metrics["groups_sampled"]


def test_without_dynamic_sampling_everything_is_kept(config, rollout):
    found = settings(config(algorithm="rloo"))
    sample = lambda numbers, _: fake_groups(rollout, [4, 0] * (len(numbers) // 2))  # noqa: E731
    rolled = rollout.roll(found, 400, 1, sample)
    assert rolled.kept == rolled.first
    assert rolled.dropped() == []


@pytest.fixture
def queue(rollout, monkeypatch):
    """verl's queue as far as the driver reads it: what it says at one poll after another."""
    from tensordict import TensorDict
    from verl.trainer.ppo.v1 import replay_buffer

    polls = []
    cleared = []

    def read(keys, partition_id, select_fields):
        jagged = lambda rows: torch.nested.as_nested_tensor(rows, layout=torch.jagged)  # noqa: E731
        right = [float(key.startswith("a")) for key in keys]
        known = [
            {"acc": one, "truncated": 0.0, "earned": one, "reward_style": 0.5} for one in right
        ]
        extra = [{"reward_extra_info": one} for one in known]
        scores = jagged([torch.tensor([0.0, 1.0 if key.startswith("a") else -1.0]) for key in keys])
        log_probs = jagged([torch.tensor([-0.5, -0.25]) for _ in keys])
        fields = TensorDict(
            {"rm_scores": scores, "rollout_log_probs": log_probs}, batch_size=len(keys)
        )
        return {**dict(fields.items()), "extra_fields": extra}

    fake = types.SimpleNamespace(
        kv_list=lambda *_: {"train": polls.pop(0) if len(polls) > 1 else polls[0]},
        kv_clear=lambda partition_id, keys: cleared.extend(keys),
        kv_batch_get=read,
    )
    monkeypatch.setattr(replay_buffer, "tq", fake)
    monkeypatch.setattr(rollout, "tq", fake)
    options = {
        "trainer_config": {},
        "max_off_policy_threshold": 8,
        "max_off_policy_strategy": "drop",
    }
    groups = rollout.Groups(trainer_mode="sync", sampler_kwargs={}, **options)
    return types.SimpleNamespace(polls=polls, cleared=cleared, groups=groups)


def prompt(status):
    return {"is_prompt": True, "status": status, "global_steps": 1}


def test_responses_come_back_in_the_order_of_their_prompts(queue):
    rows = {f"{name}_{i}_0": {"response_len": 2} for name in ("b", "a", "other") for i in (1, 0)}
    queue.polls += [
        {"a": prompt("running"), "b": prompt("finished"), **rows},
        {"a": prompt("finished"), "b": prompt("finished"), "other": prompt("pending"), **rows},
    ]
    found = queue.groups.collect(["a", "b"], Progress())
    assert [[r.key for r in group] for group in found] == [["a_0_0", "a_1_0"], ["b_0_0", "b_1_0"]]
    assert [response.correct for response in found[0] + found[1]] == [True, True, False, False]
    assert found[1][0].reward == -1.0
    assert found[1][0].surprise == 0.75
    assert found[1][0].tokens == 2
    assert found[1][0].earned == 0.0
    assert found[1][0].parts == {"reward_style": 0.5}
    assert queue.cleared == ["a", "b"]


def test_a_reward_that_cannot_be_had_is_what_the_driver_says(queue, tmp_path):
    queue.polls += [{"a": prompt("failure")}]
    queue.groups.error = tmp_path / "reward-error.txt"
    queue.groups.error.write_text("reward: mine:score: raised ValueError: no\n")
    with pytest.raises(UserError, match="reward: mine:score: raised ValueError: no"):
        queue.groups.collect(["a"], Progress())


@pytest.mark.parametrize(
    ("written", "said"),
    [("reward: mine:score: raised ValueError: no\n", UserError), (None, ValueError)],
)
def test_also_where_it_is_first_asked_for_in_validation(
    queue, tmp_path, monkeypatch, written, said
):
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from rpg.backends.verl.trainer import Trainer

    def validate(self, manager):
        raise ValueError("Received an empty list as keys.")

    monkeypatch.setattr(PPOTrainerSync, "fit", validate)
    queue.groups.error = tmp_path / "reward-error.txt"
    if written:
        queue.groups.error.write_text(written)
    trainer = object.__new__(Trainer)
    trainer.replay_buffer = queue.groups
    ended = []
    trainer.reporter = types.SimpleNamespace(__exit__=lambda *_: ended.append("reporter"))
    manager = types.SimpleNamespace(end=lambda: ended.append("manager"))
    with pytest.raises(said, match="raised ValueError: no" if written else "empty list"):
        trainer.fit(manager)
    assert ended == ["manager", "reporter"]


def test_a_prompt_without_a_response_ends_the_run(queue):
    queue.polls += [
        {"a": prompt(status), "b": prompt("running")} for status in ("running", "failure")
    ]
    with pytest.raises(RuntimeError, match="1 of 2 prompts got no response"):
        queue.groups.collect(["a", "b"], Progress())
