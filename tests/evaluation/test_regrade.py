"""Stored samples graded again: by hand and in run folders, beside the first grades, and what
changed per problem."""

import json
from functools import cache

import pytest
from typer.testing import CliRunner

from rpg.cli import load
from rpg.config.errors import ConfigError
from rpg.config.task import MathVerifier
from rpg.evaluation.regrade import Change, regrade
from rpg.store import Layout
from rpg.store.run_writer import write_manifest
from rpg.store.samples import (
    EVAL_COLUMNS,
    TURNS,
    gradings,
    metadata,
    read_grades,
    write_eval,
    write_samples,
)
from rpg.tasks.rewards import grader_for
from rpg.tasks.rewards.graders import LINES, RECIPE
from tests.evaluation.runs import register

# problem, gold answer, responses; what the default rules and the recipe's make of each
RESPONSES = [
    ("half", "1/2", [("Answer: 0.5", True, False), ("Answer: 1/2", True, True)]),
    ("five", "5", [("Answer: x = 4 = 5", False, True), ("Answer: $5$", True, True)]),
    ("six", "6", [("Answer: 7", False, False), (r"\boxed{6}", False, True)]),
    ("ten", "10", [("Answer: 10", True, True), ("Answer: 10", True, True)]),
]
CHANGES = [Change("half", 2, 2, 1), Change("five", 2, 1, 2), Change("six", 2, 0, 1)]


@cache
def rows():
    found = []
    with grader_for(MathVerifier()) as grader:
        for problem, answer, responses in RESPONSES:
            for sample, (response, default, _) in enumerate(responses):
                [grade] = grader.grade([(response, answer)])
                assert grade.correct is default
                row = dict.fromkeys(EVAL_COLUMNS, "") | {"problem_id": problem, "sample": sample}
                row |= {"answer": answer, "response": response, "tokens": 3, "truncated": False}
                found.append(
                    row | {"extracted": grade.extracted, "correct": default, "reason": grade.reason}
                )
    return found


@pytest.fixture
def by_hand(tmp_path):
    folder = tmp_path / "evaluations" / "model"
    folder.mkdir(parents=True)
    turns = [row | {TURNS: json.dumps(["Answer: 0", row["response"]])} for row in rows()]
    write_samples(folder / "mine.parquet", turns, LINES)
    # As written before `rules` was a field.
    verifier = {"type": "math", "fallback": "none", "relative_tolerance": 0.0}
    record = {"mine": {"identity": {"verifier": verifier}, "rules": LINES, "summary": {"k": 2}}}
    (folder / "evaluation.json").write_text(json.dumps(record))
    return folder


def test_regrading_an_evaluation_keeps_its_first_grades(by_hand):
    before = (by_hand / "mine.parquet").read_bytes()
    [found] = regrade(by_hand, say=str)
    assert (found.before, found.after) == (LINES, RECIPE)
    assert (found.samples, found.right_before, found.right_after) == (8, 5, 6)
    assert found.changes == CHANGES
    assert (by_hand / "mine.parquet").read_bytes() == before, "the first grades stay"
    assert metadata(found.grades)["rules"] == RECIPE
    assert list(gradings(by_hand / "mine.parquet")) == [RECIPE]
    right = [r for _, _, some in RESPONSES for _, _, r in some]
    assert [row["correct"] for row in read_grades(found.grades)] == right
    record = json.loads((by_hand / "evaluation.json").read_text())["mine"]
    assert record["summary"] == {"k": 2}
    assert record["rules"] == LINES


def test_what_was_graded_by_these_rules_is_not_graded_again(by_hand):
    lines = []
    first = regrade(by_hand, "recipe", say=lines.append)
    modified = first[0].grades.stat().st_mtime_ns
    assert regrade(by_hand, "recipe", say=lines.append) == first
    assert lines == [f"mine: 8 samples graded by {RECIPE}", f"mine: already graded by {RECIPE}"]
    assert first[0].grades.stat().st_mtime_ns == modified
    # Grades of samples that are others now are not taken for theirs.
    write_samples(by_hand / "mine.parquet", rows()[:4], LINES)
    [other] = regrade(by_hand, "recipe", say=lines.append)
    assert other.samples == 4
    assert lines[-1] == f"mine: 4 samples graded by {RECIPE}"


def test_the_default_rules_again_find_what_a_newer_version_changes(by_hand):
    """Samples of earlier runs, graded by rules that had no name, by the rules of today."""
    old = [
        row | {"correct": not row["correct"]} if row["problem_id"] == "ten" else row
        for row in rows()
    ]
    write_samples(by_hand / "mine.parquet", old)
    [found] = regrade(by_hand, "default", say=str)
    assert (found.before, found.after) == ("rules that were not recorded", LINES)
    assert found.changes == [Change("ten", 2, 0, 2)]


def test_a_run_and_a_whole_sweep_are_regraded(tmp_path):
    layout = Layout.at(tmp_path)
    folder = register(layout, "one", [])
    manifest = folder.read_manifest()
    task = {
        "type": "math",
        "train": "x.jsonl",
        "benchmarks": ["aime24"],
        "verifier": {"type": "math"},
    }
    manifest["spec"]["task"] = task
    write_manifest(folder, manifest)
    write_eval(folder, "aime24", 4, rows(), LINES)
    [found] = regrade(folder.path, say=str)
    assert found.what == "one, step 4 on aime24"
    assert found.changes == CHANGES
    assert folder.eval_steps("aime24") == [4], "grades are not taken for another evaluation"
    assert regrade(layout.sweep_folder("sweep"), say=str) == [found]
    assert regrade(folder.checkpoints / "step-000004", say=str) == [found]


def test_the_command_shows_what_changed_per_problem(by_hand):
    call = ["evaluate", "model", "--regrade", "--home", str(by_hand.parents[1])]
    ended = CliRunner(env={"COLUMNS": "140"}).invoke(load(), call)
    assert ended.exit_code == 0
    assert f"mine: 8 samples graded by {RECIPE}" in ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    for line in ("mine 8 5 6", "half 2 2 1", "six 2 0 1"):
        assert line.split() in lines
    assert not any(line[:1] == ["ten"] for line in lines)
    assert f"before: graded by {LINES}; now: by {RECIPE}." in ended.stdout
    assert "3 problems changed." in ended.stdout


def test_mistakes_are_named(tmp_path, by_hand):
    with pytest.raises(ConfigError, match="no graded samples"):
        regrade(tmp_path, say=str)
    record = {"mine": {"identity": {"verifier": {"type": "marker"}}}}
    (by_hand / "evaluation.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="only answers of type math"):
        regrade(by_hand, say=str)
