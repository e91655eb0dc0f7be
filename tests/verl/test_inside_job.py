"""A real job: verl's trainer on Ray, stopped and resumed, against the embedded trainer with the same seed."""

import json

import pytest

from rpg.backends.verl.checkpoints import State, newest
from rpg.config.code import kept_sources
from rpg.planning.space import disk, token_records
from rpg.store.gc import size
from rpg.store.run_folder import RunFolder
from rpg.store.token_records import VALUES, read_records, recorded_steps, records_path
from rpg.tasks.preparation import prepare_data
from tests.tiny import make_trainer
from tests.verl import NOT_ON_VERL
from tests.verl.inside import job, make_spec, ours

NOT_THE_SAME = {"tokens_per_second", "entropy"}
"""entropy: on verl a sample's own log-probabilities estimate it."""

FUNCTION = """
def score(prompts, responses, answer):
    return {"letters": [len(set(r)) / 10 for r in responses], "asked": [float(len(p)) for p in prompts]}
"""


@pytest.mark.long
def test_a_job_that_is_resumed_is_the_embedded_trainers_run(home, model, tmp_path):
    """Samples that are a rollout old, dynamic sampling that finds all, some and no useful groups, schedule-free AdamW, and a
    reference that is renewed every 4 optimizer steps, through a resume on two workers: every number of every step.

    With one worker, server, agent loops, grader and balancer run in the driver (verl-cpu); with two they are actors.
    """
    pytest.importorskip("verl")
    training = {"steps": 4, "prompts_per_step": 3, "mini_batch_prompts": 1, "checkpoint_every": 2}
    training["token_records"] = {"every": 1, "groups": 2, "most_tokens": 10**6}
    training["optimizer"] = {"type": "schedule_free", "learning_rate": 1e-3, "warmup_steps": 3}
    algorithm = {"name": "rpg-reinforce-urkl", "beta": 0.5, "reference": {"type": "every_k", "k": 4}}
    (tmp_path / "mine.py").write_text(FUNCTION)
    function = {"type": "python", "function": "mine:score", "beside": str(tmp_path), "weight": 0}
    reward = [{"type": "correctness"}, function]
    sizes = {"seed": 158, "rollout": {"group_size": 4, "max_refills": 1, "staleness": 1}, "reward": reward}
    local = make_spec(algorithm=algorithm, training=training, **sizes)
    backend = {"type": "verl", "gradient_checkpointing": False, "validation_samples": 1}
    spec = make_spec(backend, algorithm=algorithm, training=training, **sizes)
    data = prepare_data(spec, home)
    (tmp_path / "manifest.json").write_text(json.dumps({"rewards": kept_sources(spec)}))

    trainer = make_trainer(local, home)
    expected, recorded = {}, {}
    for step in range(1, 5):
        expected[step] = trainer.step(step)
        recorded[step] = trainer.recorder.rows() if trainer.recorder else []
    shape = [(row["groups_sampled"], row["groups_kept"], row["reference_age"]) for row in expected.values()]
    assert shape == [(3, 3, 0), (5, 2, 3), (9, 3, 0), (9, 0, 3)]
    assert [expected[step]["sampler_age"] for step in (1, 2, 3)] == [0, 1, 1]

    half = spec.model_copy(update={"training": spec.training.model_copy(update={"steps": 2})})
    rows = ours(job(half, model, data, tmp_path, 1))
    checkpoint = newest(tmp_path / "state")
    state = State.read(checkpoint)
    assert (state.step, state.optimizer_step, state.world_size) == (2, 5, 1)
    assert state.reference == {"renewed_at": 0, "average": 0.0, "kept": True}
    assert (checkpoint / "actor/huggingface/model.safetensors").is_file()
    two = spec.model_copy(update={"backend": spec.backend.model_copy(update={"gpus_per_node": 2})})
    rows |= ours(job(two, model, data, tmp_path, 2, resume=checkpoint))
    assert 0 <= rows.pop(0)["validation_accuracy"] <= 1
    assert {"reward_correctness", "reward_score_letters", "reward_score_asked"} <= set(rows[1])

    assert sorted(rows) == [1, 2, 3, 4]
    for step, row in expected.items():
        for name, value in row.items():
            if name not in NOT_THE_SAME | NOT_ON_VERL and not name.startswith("seconds_") and name != "step":
                assert rows[step][name] == pytest.approx(value, rel=2e-3, abs=1e-5), (step, name)
    assert [len(rows) for rows in recorded.values()] == [8, 8, 8, 0]
    folder = RunFolder(tmp_path)
    assert recorded_steps(folder) == [1, 2, 3]
    for step in (1, 2, 3):  # the third on two workers
        for row, like in zip(read_records(folder, step), recorded[step], strict=True):
            for name in VALUES:
                assert row.pop(name) == pytest.approx(like.pop(name), rel=2e-3, abs=1e-5), (step, name)
            assert row == like
    assert sum(records_path(folder, step).stat().st_size for step in (1, 2, 3)) <= token_records(two)
    entropy = lambda rows: sum(row["entropy"] for row in rows.values()) / len(rows)  # noqa: E731
    assert entropy(rows) == pytest.approx(entropy(expected), rel=0.25)
    assert "loss" not in rows[4] and "loss" in rows[3]
    # renewed at the third rollout, so its weights are neither the initial model's nor those of the policy
    final = newest(tmp_path / "state")
    assert State.read(final).reference["renewed_at"] == 5
    assert (final / "reference" / "world_size_2_rank_1.safetensors").is_file()
    foretold = disk(two, 16)  # the exported model is linked into the checkpoint: once on disk
    assert size(final) == pytest.approx(foretold.newest, rel=0.1), "what `rpg show` foretells lies there"
