"""The shipped game, in which an environment has turns: verl draws the embedded trainer's
conversations, with its numbers."""

import json
from pathlib import Path

import pytest

from rpg.backends.local.rollout import Roller
from rpg.backends.local.trainer import Trainer
from rpg.config.code import kept_sources
from rpg.config.errors import ConfigError
from rpg.models.initial_policy import initial_policy, prepare_model
from rpg.store.run_folder import RunFolder
from rpg.store.token_records import VALUES, read_records
from rpg.tasks.preparation import prepare_data, read_problems
from tests.specs import load_run
from tests.verl import NOT_ON_VERL
from tests.verl.inside import job, ours

GAME = Path(__file__).parents[2] / "configs/environments/guessing.yaml"
SHORT = {
    "training.steps": 2,
    "training.prompts_per_step": 8,
    "training.mini_batch_prompts": 4,
    "model.warm_start.behaviour_steps": 60,
    "model.warm_start.behaviour_learning_rate": 1e-2,
    "rollout.temperature": 1.5,
    "training.token_records.every": 1,
}
NOT_THE_SAME = {"tokens_per_second", "entropy", "step"}
"""entropy: on verl a sample's own log-probabilities estimate it."""


@pytest.mark.system
def test_the_game_is_the_embedded_trainers(tmp_path):
    """Ratios and the KL are over prefixes, so a token of the environment in any of them would
    change every number."""
    pytest.importorskip("verl")
    local = load_run(GAME, SHORT)
    verl = load_run(GAME, SHORT | {"backend.type": "verl"})
    model = prepare_model(local, tmp_path, say=lambda line: None)
    data = prepare_data(local, tmp_path)
    policy = initial_policy(local, tmp_path)
    trainer = Trainer(local, policy, Roller(local, read_problems(data.train)), None)
    expected = {}
    recorded = {}
    for step in (1, 2):
        expected[step] = trainer.step(step)
        recorded[step] = trainer.recorder.rows()
    (tmp_path / "manifest.json").write_text(json.dumps({"rewards": kept_sources(verl)}))
    rows = ours(job(verl, model, data, tmp_path, 1))
    for step, row in expected.items():
        assert row["tool_calls"] > 1
        assert row["environment_tokens"] > 0.5
        assert row["groups_kept"] > 0
        for name in set(row) - NOT_THE_SAME - NOT_ON_VERL:
            if not name.startswith("seconds_"):
                assert rows[step][name] == pytest.approx(row[name], rel=2e-3, abs=1e-5), (
                    step,
                    name,
                )
        for tokens, like in zip(
            read_records(RunFolder(tmp_path), step), recorded[step], strict=True
        ):
            for name in VALUES:
                assert tokens.pop(name) == pytest.approx(like.pop(name), rel=2e-3, abs=1e-5), (
                    step,
                    name,
                )
            assert tokens == like


LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"


@pytest.mark.parametrize("setting", [{"validation_samples": 1}, {"verl": {LOOP: "tool_agent"}}])
def test_what_would_leave_the_environment_out_is_refused(setting):
    with pytest.raises(
        ConfigError, match=r"of task.type environment|our agent loop takes its turns"
    ):
        load_run(GAME, {"backend": {"type": "verl", **setting}})
