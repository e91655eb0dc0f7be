"""The launcher from outside, with a stand-in for verl's driver: hangs, deaths, kills and going on,
in seconds."""

import json
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rpg.backends.training_process import TrainingFailed, TrainingLost
from rpg.backends.verl import driver_process, launch, readiness
from rpg.config.errors import ConfigError
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError
from rpg.store import Layout
from rpg.store.checkpoints import damaged, model_digest
from tests.forked_commands import Child
from tests.tiny import make_run, make_spec
from tests.verl import marked
from tests.waiting import until

HERE = Path(__file__).parent

ENVIRONMENT = {"PYTHONPATH": f"{HERE.parents[1]}:{HERE}", "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(driver_process, "MAIN", "stand_in")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def spec(steps=3, **backend):
    return make_spec(training={"steps": steps}, backend={"type": "verl", **backend})


def train(folder, home):
    """What it says; a step is said when it can be read from the run's folder, as trackers do."""
    said = []

    def say(line):
        said.append(line)
        if "  reward " in line:
            assert any(f"step {step}/" in line for step, _ in steps(folder))

    launch.train(folder, home, say)
    return said


def steps(folder):
    return [(row["step"], row["attempt"]) for row in folder.read_metrics()]


def test_metrics_and_checkpoints_come_into_the_run(home):
    folder = make_run(home, "whole", spec(5))
    said = train(folder, home)
    assert said[-1] == "trained: 5 of 5 steps"
    assert any("step 2/5  reward +0.200" in line for line in said)
    rows = folder.read_metrics()
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[1]["optimizer_step"] == 4
    assert "theirs" not in rows[1]
    assert folder.checkpoint_steps() == [0, 2, 4, 5], "those to be evaluated, and the two newest"
    assert all(damaged(folder.checkpoint(step)) is None for step in folder.checkpoint_steps())
    states = sorted(path.name for path in folder.checkpoints.glob("*/training/global_step_*"))
    assert states == ["global_step_4", "global_step_5"], "verl's own state of the newest only"
    assert model_digest(folder.checkpoint(0)) == model_digest(folder.checkpoint(5)), (
        "nothing was trained"
    )
    assert train(folder, home) == ["trained: all 5 steps"]
    assert folder.attempts() == [1]


@pytest.mark.parametrize(
    ("how", "why"), [("die", "ValueError: the sky has fallen"), ("kill", "killed by signal 9")]
)
def test_a_driver_that_dies_says_why_and_is_gone_on_with(home, monkeypatch, how, why):
    folder = make_run(home, f"dies-{how}", spec(4))
    monkeypatch.setenv("STAND_IN", f"{how}:2")
    with pytest.raises(TrainingFailed, match=why) as error:
        train(folder, home)
    assert "\n" not in str(error.value)
    assert error.value.log == folder.path / "verl" / "log-1.txt"
    assert isinstance(error.value, TrainingLost) == (how == "kill"), (
        "only then it is no fault of the run"
    )
    monkeypatch.delenv("STAND_IN")
    said = train(folder, home)
    assert said[0].startswith("continuing after step 2 of 4")
    assert steps(folder) == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_steps_that_are_only_evaluated_have_weights_and_no_state(home, monkeypatch):
    """Checkpoints at 3 and at the end, evaluations at 2, 4 and 6; killed after step 5."""
    sparse = make_spec(
        training={"steps": 6, "checkpoint_every": 3},
        evaluation={"every": 2},
        backend={"type": "verl"},
    )
    folder = make_run(home, "sparse", sparse)
    monkeypatch.setenv("STAND_IN", "kill:5")
    with pytest.raises(TrainingLost):
        train(folder, home)

    def with_state():
        return sorted(
            path.parents[1].name for path in folder.checkpoints.glob("*/training/global*")
        )

    assert folder.checkpoint_steps() == [0, 2, 3, 4]
    assert with_state() == ["step-000003"], "which is kept although newer weights are there"
    assert not list((folder.path / "verl").glob("global_step_*"))
    monkeypatch.delenv("STAND_IN")
    said = train(folder, home)
    assert said[0].startswith("continuing after step 3 of 6")
    assert steps(folder) == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2)]
    assert folder.checkpoint_steps() == [0, 2, 3, 4, 6]
    assert with_state() == ["step-000003", "step-000006"]


def test_a_hang_is_ended_and_said(home, monkeypatch):
    folder = make_run(home, "hangs", spec(3, hang_minutes=0.15))
    monkeypatch.setenv("STAND_IN", "child:1")
    with pytest.raises(
        TrainingFailed, match=r"no progress for 0.15 minutes .*all is well"
    ) as error:
        train(folder, home)
    assert error.value.tail == ["all is well"]
    assert marked(folder) == [], "nothing it started is left"
    monkeypatch.delenv("STAND_IN")
    assert "continuing after step 1 of 3" in train(folder, home)[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_an_end_from_outside_ends_everything_and_loses_nothing(home, monkeypatch, number, code):
    folder = make_run(home, f"ends-{number}", spec(4))
    monkeypatch.setenv("STAND_IN", "child:2")
    process = Child("launch", folder)
    until(lambda: folder.checkpoint(2).exists(), unless=lambda: not process.alive())
    assert folder.state() == "running"
    assert len(marked(folder)) == 2
    process.send(number)
    assert process.wait() == code
    monkeypatch.delenv("STAND_IN")
    if number == signal.SIGTERM:
        assert marked(folder) == []
        assert folder.state() == "interrupted"
    said = train(folder, home)  # what kill -9 left is ended first
    assert "continuing after step 2 of 4" in said[0]
    assert marked(folder) == []
    assert steps(folder) == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_what_an_attempt_wrote_while_nobody_followed_is_taken_in(home, monkeypatch):
    """A launcher is killed; its driver writes on for a moment, and a publication is caught
    half-way."""
    folder = make_run(home, "late", spec(4))
    monkeypatch.setenv("STAND_IN", "die:2")
    with pytest.raises(TrainingFailed):
        train(folder, home)
    build = folder.checkpoints / ".step-000002.tmp"
    folder.checkpoint(2).replace(build)  # killed before the rename
    lines = folder.metrics_path(1).read_text().splitlines(keepends=True)
    folder.metrics_path(1).write_text("".join(lines[:1]))  # killed before it read the second line
    monkeypatch.delenv("STAND_IN")
    said = train(folder, home)
    assert any(line.startswith("continuing after step 2 of 4") for line in said)
    assert steps(folder) == [(1, 1), (2, 1), (3, 2), (4, 2)]


MISTAKES = {
    "no model": (
        {"model": {"type": "pretrained", "path": "/nowhere/model"}},
        r"model.path: '/nowhere/model' is neither",
    ),
    "no config": (
        {"model": {"type": "pretrained", "path": str(HERE)}},
        r"is not a Hugging Face model: config.json is",
    ),
    "no head": (
        {"backend": {"type": "verl", "ray": {"type": "address", "address": "127.0.0.1:9"}}},
        "answers at 127.0.0.1",
    ),
    "no port": (
        {"backend": {"type": "verl", "ray": {"type": "address", "address": "somewhere"}}},
        "expected host:port",
    ),
    "no room": (
        {"rollout": {"max_prompt_tokens": 3}},
        r"max_prompt_tokens: 3, but \d+ prompts are longer",
    ),  # or verl cuts
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_said_in_one_line(home, monkeypatch, name):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    changes, expected = MISTAKES[name]
    value = RunSpec.model_validate(spec().model_dump(mode="json") | changes)
    folder = make_run(home, name.replace(" ", "-"), value)
    with pytest.raises(UserError, match=expected) as error:
        train(folder, home)
    assert "\n" not in str(error.value)


def test_verl_that_is_not_installed_is_said(home, monkeypatch):
    found = readiness._version
    monkeypatch.setattr(readiness, "_version", lambda name: None if name == "verl" else found(name))
    folder = make_run(home, "not-installed", spec())
    with pytest.raises(ConfigError, match=r"backend.type verl: verl is not .*install .*\[verl\]"):
        train(folder, home)
    assert Layout(home).run("sweep", "not-installed").attempts() == []


def test_a_training_in_bfloat16_leaves_bfloat16_and_verls_copy_in_float32_goes(home, tmp_path):
    """verl exports in float32; what it goes on from are its own shards."""
    start = make_run(home, "half-start", spec(1))
    train(start, home)
    config = spec(3).model_dump()
    config["model"] = {"type": "pretrained", "path": str(start.checkpoint(1)), "dtype": "bfloat16"}
    folder = make_run(home, "half", RunSpec.model_validate(config))
    train(folder, home)
    last = folder.checkpoint(3)
    weights = load_file(last / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    before = load_file(start.checkpoint(1) / "model.safetensors")
    assert all(tensor.bfloat16().equal(weights[name]) for name, tensor in before.items())
    assert json.loads((last / "config.json").read_text())["dtype"] == "bfloat16"
    assert damaged(last) is None
    assert damaged(last / "training", "state.json") is None
    left = {path.name for path in (last / "training").rglob("*") if path.is_file()}
    assert "model.safetensors" not in left
    assert "model_world_size_1_rank_0.pt" in left
