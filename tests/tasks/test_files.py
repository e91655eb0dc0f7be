"""Files of a user's own: what is wrong is said with file, line and field."""

import json
import random

import pyarrow
import pyarrow.parquet
import pytest

from rpg.config.load import resolve
from rpg.config.model import WarmStart
from rpg.config.task import EnvironmentTask, FileTask, MathVerifier
from rpg.tasks import DataError, demonstrations_of, kind_of, load_problems
from rpg.tasks.checks import check_gold
from rpg.tasks.preparation import data_notes, prepare_data, read_problems
from rpg.tasks.problems import problem_characters
from rpg.tasks.rewards import grader_for

GOOD = [{"prompt": "1+1", "answer": "2"}, {"prompt": "2+2", "answer": 4}]
SHOWN = [
    {"prompt": f"p{i}", "answer": str(i), "demonstration": f"so Answer: {i}"} for i in range(40)
]


def jsonl(path, rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def task(tmp_path, train=GOOD, test=({"prompt": "3+3", "answer": "6"},), **fields):
    held = {"held": jsonl(tmp_path / "held.jsonl", test)}
    return FileTask(
        type="file", train=jsonl(tmp_path / "train.jsonl", train), benchmarks=held, **fields
    )


def test_rows_become_problems_and_a_byte_order_mark_and_empty_lines_do_not(tmp_path):
    files = task(tmp_path, template="Q: {prompt}\nA:")
    files.train[0].path.write_text("﻿" + json.dumps(GOOD[0]) + "\n\n" + json.dumps(GOOD[1]) + "\n")
    problems = [(p.id, p.text, p.prompt, p.answer) for p in load_problems(files).train]
    first = ("train-00001", "1+1", "Q: 1+1\nA:", "2")
    second = ("train-00002", "2+2", "Q: 2+2\nA:", "4")
    assert problems == [first, second]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [GOOD[0], {"Prompt": "2+2", "answer": "4"}],
            r"train.jsonl: line 2: field prompt is missing; did you mean",
        ),
        ([{"prompt": "1+1"}], r"line 1: field answer is missing. Found: prompt"),
        ([], r"train.jsonl: the file holds no problem"),
        (
            [{"prompt": ["a"], "answer": "2"}],
            r"line 1: column prompt: message 1: expected role and content, got 'a'",
        ),
        (
            [{"prompt": "1+1", "answer": None}],
            r"line 1: field answer is null; expected text or a number",
        ),
        (
            ['{"prompt": "1+1", "answer": NaN}'],
            r"line 1: column answer: expected text or a number, got nan",
        ),
        (
            [GOOD[0], '{"prompt": "1+1", "answer": ' + "[" * 100_000],
            r"line 2: not JSON .*too many brackets",
        ),
        (
            [GOOD[0], '{"prompt": "1+1", "answer": 1' + "0" * 5_000 + "}"],
            r"line 2: not JSON .*4300 digits",
        ),
        (
            [GOOD[0], '{"prompt": "' + "1" * 2**24],
            r"line 2: longer than 16 MiB; expected one JSON object per line",
        ),
        ([{"prompt": " ", "answer": "2"}], r"line 1: field prompt: the text is empty"),
        ([GOOD[0], "{broken"], r"line 2: not JSON .*expected one object per line"),
        (["[1, 2]"], r"line 1: expected a JSON object, found a list"),
        (['{"prompt": "\\ud800", "answer": "2"}'], r"line 1: column prompt: not valid Unicode"),
        ([{**GOOD[0], "demonstration": 7}], r"line 1: field demonstration: expected text, got 7"),
    ],
)
def test_mistakes_name_file_line_and_field(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        load_problems(task(tmp_path, rows))


def rows(*pairs):
    return [{"prompt": prompt, "answer": answer} for prompt, answer in pairs]


ORDINARY = [*GOOD, *rows(("1+1", "2"), ("3+3", "6"), ("5+5", "10"), ("5+5", "11"), ("7+7", "14"))]


def test_repeats_overlaps_and_two_answers_are_left_out_and_listed(tmp_path):
    files = task(tmp_path, ORDINARY, rows(("3+3", "6"), ("8+8", "16"), ("8+8", "16")))
    splits = load_problems(files)
    assert [problem.text for problem in splits.train] == ["1+1", "2+2", "7+7"]
    assert [problem.text for problem in splits.benchmarks["held"]] == ["3+3", "8+8"]
    train, test = splits.summaries
    assert (train.rows, train.distinct, train.kept) == (7, 5, 3)
    assert train.dropped == {"repeated": 2, "two answers": 1, "leaked": 1}
    assert test.dropped == {"repeated": 1}
    spec = resolve({"task": files.model_dump(mode="json")}, "x")
    prepared = prepare_data(spec, tmp_path / "home")
    lines = (prepared.train.parent / "dropped.jsonl").read_text().splitlines()
    dropped = [(row["problem"], row["reason"], row["detail"]) for row in map(json.loads, lines)]
    assert ("line 3", "repeated", "the same problem as line 1") in dropped
    assert len(dropped) == 5
    assert ("train-00004", "two answers", "'10' in line 5, '11' in line 6") in dropped
    notes = "; ".join(data_notes(prepared))
    assert "train: left out of 7 problems: 2 repeated, 1 two answers, 1 leaked" in notes
    assert str(tmp_path) not in notes, (
        "files of another sweep with the same content share these notes"
    )


@pytest.mark.parametrize("columns", [{}, {"cluster": "source"}])
def test_a_cluster_comes_from_its_column_and_survives_preparation(tmp_path, columns):
    name = columns.get("cluster", "cluster")
    rows = [
        {**GOOD[0], name: "algebra"},
        {**GOOD[1], name: 1999},
        {"prompt": "5+5", "answer": "10"},
    ]
    raw = {"task": task(tmp_path, rows, columns=columns).model_dump(mode="json")}
    spec = resolve(raw, tmp_path / "run.yaml")

    problems = read_problems(prepare_data(spec, tmp_path / "home").train)

    assert [problem.cluster for problem in problems] == ["algebra", "1999", None]


def test_strict_refuses_what_would_be_left_out(tmp_path):
    refused = r"(?s)4 problems that task.strict refuses:.*line 3.*two answers.*held-00001"
    with pytest.raises(DataError, match=refused):
        load_problems(task(tmp_path, ORDINARY, strict=True))
    assert load_problems(task(tmp_path, strict=True)).train == load_problems(task(tmp_path)).train


def test_nothing_left_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"train.jsonl: of 2 problems none is left: 2 leaked"):
        load_problems(task(tmp_path, test=GOOD))


def test_all_bad_rows_are_in_one_message(tmp_path):
    bad = ['{"prompt": "1", "answer": NaN}', "{broken", *({"prompt": "y"} for _ in range(31))]
    with pytest.raises(DataError) as caught:
        load_problems(task(tmp_path, [GOOD[0], *bad]))
    lines = str(caught.value).splitlines()
    assert lines[0] == "33 rows cannot be used:"
    assert lines[-1] == "... and 13 more"
    assert len(lines) == 22
    for line, words in zip(
        lines[1:], ("2: column answer", "3: not JSON", "4: field answer"), strict=False
    ):
        assert f"line {words}" in line


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    files = task(tmp_path)
    files.train[0].path.write_bytes(b'{"prompt": "\xff", "answer": "1"}')
    with pytest.raises(DataError, match=r"train.jsonl: line 1: not UTF-8 text"):
        load_problems(files)
    files.train[0].path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match=r"train.jsonl: not a readable Parquet file"):
        load_problems(files)
    files.train[0].path.unlink()
    with pytest.raises(DataError, match=r"train.jsonl: cannot be read: No such file"):
        load_problems(files)
    pyarrow.parquet.write_table(
        pyarrow.table({"question": ["a"], "answer": ["b"]}), files.train[0].path
    )
    with pytest.raises(DataError, match=r"field prompt is missing. Found: question, answer"):
        load_problems(files)
    years = pyarrow.array([2**61], pyarrow.timestamp("us"))
    pyarrow.parquet.write_table(
        pyarrow.table({"prompt": ["a"], "when": years}), files.train[0].path
    )
    with pytest.raises(DataError, match=r"not a readable Parquet file \(date value out of range"):
        load_problems(files)


def test_all_missing_files_are_named_with_their_fields_and_a_near_name(tmp_path):
    files = task(tmp_path)
    (tmp_path / "train.jsonl").rename(tmp_path / "trains.jsonl")
    (tmp_path / "held.jsonl").unlink()
    with pytest.raises(DataError) as error:
        kind_of(files).data(files)
    train, held = str(error.value).splitlines()
    assert train.startswith("task.train: ")
    assert train.endswith("train.jsonl: no such file; did you mean 'trains.jsonl'?")
    assert held.startswith("task.benchmarks.held: ")


def test_demonstrations_come_from_the_file(tmp_path):
    files = task(tmp_path, SHOWN)
    demos = demonstrations_of(files, load_problems(files))
    assert len(demos.held_out) == 4
    rng = random.Random(0)
    shown = {demos.ability(rng)[0] for _ in range(500)}
    assert len(shown) == 36
    assert not shown & {p.prompt for p in demos.held_out}
    bare = WarmStart(scratchpad_fraction=0)
    assert {demos.behaviour(rng, bare)[1][:7] for _ in range(50)} == {"Answer:"}
    assert problem_characters(load_problems(files)) >= set("p3+so Answer:")
    files = task(tmp_path)
    splits = load_problems(files)
    with pytest.raises(DataError, match="field demonstration is missing"):
        demonstrations_of(files, splits)


@pytest.mark.parametrize("shown", ['["a" and more', '["a", 1, "b"]'])
def test_rows_of_an_environment_differ_by_columns_and_a_demonstration_that_is_no_list_is_named(
    tmp_path, shown
):
    rows = [
        {"prompt": "Guess!", "answer": "1", "state": n % 8, "demonstration": shown}
        for n in range(9)
    ]
    files = task(tmp_path, rows, rows[3:4]).model_dump(include={"train", "benchmarks"})
    turns = EnvironmentTask.model_validate({"type": "environment", "factory": "m:C", **files})
    splits = load_problems(turns)
    assert [problem.columns["state"] for problem in splits.train] == [0, 1, 2, 4, 5, 6, 7]
    assert splits.summaries[0].dropped == {"repeated": 1, "leaked": 1}
    assert splits.summaries[0].distinct == 8
    with pytest.raises(DataError, match=r"demonstration: .*a.*expected a JSON list of texts"):
        demonstrations_of(turns, splits).ability(random.Random(0))


def test_a_bare_answer_is_written_for_the_verifier_that_reads_it(tmp_path):
    """With the math verifier a warm start ended in `no attribute 'marker'`."""
    mathematical = task(tmp_path, SHOWN).model_copy(update={"verifier": MathVerifier()})
    demos = demonstrations_of(mathematical, load_problems(mathematical))
    _, shown = demos.behaviour(random.Random(0), WarmStart(scratchpad_fraction=0))
    with grader_for(mathematical.verifier) as grader:
        assert grader.grade([(shown, shown.removeprefix("Answer: "))])[0].correct


# ------------------------------- gold answers that no response could equal are refused or named
# before the training


@pytest.mark.parametrize("verifier", [{"match": "number"}, {"type": "math"}, {}])
def test_a_worked_solution_is_refused_and_the_answer_in_it_named(tmp_path, verifier):
    named = r"train.jsonl: train-00002: field answer: 'because #### 2' .* follows ####.*write '2'"
    with pytest.raises(DataError, match=named):
        load_problems(task(tmp_path, rows(("a", "1"), ("b", "because #### 2")), verifier=verifier))
    with pytest.raises(DataError, match=r"held\.jsonl: held-00001: field answer"):
        load_problems(task(tmp_path, rows(("a", "1")), rows(("b", "#### 2"))))


@pytest.mark.parametrize(
    ("answer", "why"), [("Answer: 3", "own marker"), ("3\nor 4", "several lines")]
)
def test_what_the_marker_can_never_find_is_refused(tmp_path, answer, why):
    with pytest.raises(DataError, match=why):
        load_problems(task(tmp_path, rows(("a", answer))))


def test_a_whole_sentence_is_named_in_the_notes_that_every_report_shows(tmp_path):
    sentence = (
        "The train arrives at the station of the town after exactly three hours and forty minutes"
    )
    files = task(tmp_path, rows(("a", "1"), ("b", sentence)))
    spec = resolve({"task": files.model_dump(mode="json")}, "x")
    notes = data_notes(prepare_data(spec, tmp_path / "home"))
    assert len(notes) == 1
    assert "1 gold answers are whole sentences" in notes[0]
    assert "train-00002" in notes[0]


def test_usual_answers_say_nothing(tmp_path):
    answers = [
        "12",
        r"\frac{1}{2}",
        "(3, 4)",
        "x = 2 or x = 3",
        "12 apples",
        "#5",
        "three and a half",
    ]
    files = task(tmp_path, rows(*((f"p{i}", answer) for i, answer in enumerate(answers))))
    assert check_gold(load_problems(files).train, files.verifier, "file") == []
