"""Checkpoints of other trainers, evaluated as a sweep evaluates its own and paired with them."""

import json

import pytest
from typer.testing import CliRunner

from rpg.cli import load
from rpg.evaluation.evaluator import Evaluator
from rpg.evaluation.join_imported import JoinError, join
from rpg.interop.importing import read, take_over
from rpg.report.summary import summarise
from rpg.store.database import build, connect
from rpg.store.layout import Layout
from tests.evaluation.runs import register, rows


@pytest.fixture
def layout(tmp_path, checkpoints):
    layout = Layout.at(tmp_path / "data")
    register(layout, "own", checkpoints, seed=3)
    history = [{"step": s, "reward": s / 4} for s in (0, 1)]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": [*history, {"step": 1, "eval_right": 0.75}]}))
    log = read("trl", state, {}, {"chain-easy": "eval_right"})
    take_over(layout, log, kind="trl", source=state, sweep="sweep", variant="TRL", seed=3)
    Evaluator(layout, "sweep", lambda line: None).pass_over()
    return layout


def summary(layout):
    build(layout)
    with connect(layout) as db:
        found = summarise(db, "sweep", baseline="grpo")
        query = (
            "SELECT step, accuracy FROM scores WHERE variant = 'TRL' AND benchmark = 'chain-easy'"
        )
        return found, dict(db.execute(query).fetchall())


def test_a_joined_checkpoint_has_the_samples_of_our_own_and_is_paired_with_them(
    layout, checkpoints
):
    """The same weights under the same seed: the very samples; and a paired test where there was
    none."""
    found, scores = summary(layout)
    assert scores == {1: 0.75}
    assert any("no paired test" in note for note in found.notes)
    assert found.table.set_index("variant").loc["TRL", "verdict"] == ""
    for step in (0, 1):
        written = join(layout, "sweep/TRL", checkpoints[0], step, say=lambda line: None)
    own, imported = (
        layout.run("sweep", name) for name in ("own", written["chain-easy"].parents[2].name)
    )
    assert rows(imported, 0) == rows(own, 0) == rows(imported, 1) != rows(own, 1)
    found, scores = summary(layout)
    table = found.table.set_index("variant")
    ours = table.loc["grpo"]
    theirs = table.loc["TRL"]
    assert scores == dict.fromkeys((0, 1), pytest.approx(ours["first"]))
    assert theirs["verdict"] == "too few seeds", "the single one is paired, problem by problem"
    assert theirs["difference"] == pytest.approx(theirs["last"] - ours["last"])
    assert not any("no paired test" in note for note in found.notes)
    with connect(layout) as db:
        origins = db.execute(
            "SELECT DISTINCT origin, model, draws IS NOT NULL FROM evals ORDER BY ALL"
        ).fetchall()
    own_checkpoints = [("sweep", f"sweep/own/step-00000{step}", True) for step in (0, 1)]
    assert origins == [("joined", str(checkpoints[0]), True), *own_checkpoints]
    assert any("trained elsewhere" in note for note in found.notes)


def test_what_cannot_be_joined_is_said(layout, checkpoints, tmp_path):
    for name, words in (
        ("sweep/own", r"--join sweep/own: this run was trained here; .*Imported: sweep/trl-s3-"),
        ("sweep/trl-s4", r"--join sweep/trl-s4: no such imported run; did you mean 'trl-s3-"),
        ("sweep", r"--join sweep: name a run, SWEEP/RUN. Imported: sweep/trl-s3-"),
    ):
        with pytest.raises(JoinError, match=words):
            join(layout, name, checkpoints[0], 0)
    with pytest.raises(
        JoinError, match=r"--step 2: sweep/trl-s3-\w+ ends at step 1. Import a longer"
    ):
        join(layout, "sweep/TRL", checkpoints[0], 2)
    options = "--join sweep/TRL --step 1 --k 2 --benchmarks x".split()
    said = CliRunner().invoke(load(), ["evaluate", str(checkpoints[0]), *options])
    assert "--k, --benchmarks: --join evaluates like the sweep's own runs; omit them" in str(
        said.exception
    )
    lonely = Layout.at(tmp_path / "other")
    log = read("trl", tmp_path / "trainer_state.json", {}, {})
    source = tmp_path / "trainer_state.json"
    take_over(lonely, log, kind="trl", source=source, sweep="s", variant="TRL", seed=0)
    with pytest.raises(JoinError, match="s has no run that was trained here"):
        join(lonely, "s/TRL", checkpoints[0], 0)
