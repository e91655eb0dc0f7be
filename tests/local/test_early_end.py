"""Trainings that end before their last step: where they must, why, and the same after a kill."""

import pytest

from rpg.backends import early_end
from rpg.backends.early_end import End, end_of
from rpg.backends.local import training_loop
from rpg.config.training import Until
from rpg.store.run_folder import pending_evaluations
from tests.tiny import Killed, killed_in, make_run, make_spec, numbers

ROWS = [
    {"step": 1, "tokens": 100, "seconds_step": 2.0, "accuracy": 0.2},
    {"step": 2, "tokens": 210, "seconds_step": 2.5, "accuracy": 0.9},
    {"step": 3, "tokens": 300, "seconds_step": 1.0, "accuracy": 0.7},
    {"step": 4, "tokens": 420, "seconds_step": 1.0, "accuracy": 0.9},
]


@pytest.mark.parametrize(
    ("until", "end"),
    [
        ({"tokens": 300}, End(3, "tokens", 300)),
        ({"tokens": 421}, None),
        ({"seconds": 4.5}, End(2, "seconds", 4.5)),
        ({"accuracy": 0.75, "over": 1}, End(2, "accuracy", 0.9)),
        ({"accuracy": 0.75, "over": 2}, End(3, "accuracy", 0.8)),
        ({"accuracy": 0.9, "over": 4}, None),
        ({"accuracy": 0.75, "over": 2, "tokens": 200}, End(2, "tokens", 210)),
        ({}, None),
    ],
)
def test_a_training_ends_at_the_first_step_that_reaches_what_is_asked(until, end):
    found = end_of(Until(**until), ROWS)
    if end is None:
        assert found is None
    else:
        assert found is not None
        assert found[:2] == end[:2]
        assert found.value == pytest.approx(end.value)


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """A run of ten steps that has sampled enough in the middle of its fourth one."""
    home = tmp_path_factory.mktemp("whole")
    whole = make_run(home, "whole", make_spec(training={"steps": 4}))
    training_loop.train(whole, home, lambda line: None)
    tokens = [row["tokens"] for row in numbers(whole)]
    limit = (tokens[2] + tokens[3]) // 2
    return make_spec(training={"steps": 10, "until": {"tokens": limit}}, evaluation={"every": 3})


def ended(folder):
    """What the files say of the end."""
    manifest = folder.read_manifest()
    return manifest["ended"], manifest["eval_steps"], folder.checkpoint_steps()[-1], numbers(folder)


def test_it_ends_there_and_its_checkpoint_stands_at_the_last_planned_step(home, spec):
    folder = make_run(home, "until", spec)
    said = []
    training_loop.train(folder, home, said.append)
    end, eval_steps, last, rows = ended(folder)
    assert len(rows) == 4
    assert end == {"step": 4, "reason": "tokens", "value": rows[-1]["tokens"]}
    assert (eval_steps, last) == ([0, 3, 10], 10)
    assert {step for _, step in pending_evaluations(folder)} == {0, 3, 10}
    assert said[-1].startswith("trained: ended at step 4 of 10, tokens")
    training_loop.train(folder, home, said.append)
    assert len(numbers(folder)) == 4


@pytest.mark.parametrize("moment", ["step 2", "step 3", "before the manifest", "after it"])
def test_killed_at_any_moment_it_ends_at_the_same_step_with_the_same_bits(
    home, spec, moment, monkeypatch
):
    name = moment.replace(" ", "-")
    whole = make_run(home, f"whole-{name}", spec)
    parts = make_run(home, f"parts-{name}", spec)
    training_loop.train(whole, home, lambda line: None)

    def killed(*_args):
        raise Killed

    say = killed_in(int(moment[-1])) if "step" in moment else str
    place = {"before the manifest": "record_end", "after it": "_room"}.get(moment)
    with monkeypatch.context() as patched:
        if place:
            patched.setattr(training_loop, place, killed)
        with pytest.raises(Killed):
            training_loop.train(parts, home, say)
    training_loop.train(parts, home, lambda line: None)
    assert ended(parts) == ended(whole)
    weights = "model.safetensors"
    mine, same = (folder.checkpoint(10) / weights for folder in (parts, whole))
    assert mine.read_bytes() == same.read_bytes()


def test_an_end_by_the_clock_stands_once_it_is_in_the_files(home, spec, monkeypatch):
    timed = spec.model_copy(
        update={"training": spec.training.model_copy(update={"until": Until(seconds=1e-9)})}
    )
    folder = make_run(home, "clock", timed)
    training_loop.train(folder, home, lambda line: None)
    assert folder.read_manifest()["ended"]["step"] == 1
    monkeypatch.setattr(early_end, "end_of", lambda *_: None)
    assert early_end.recorded_end(folder, timed.training.until).step == 1
