"""Gold answers that no response could equal are refused or named before anybody trains on them."""

import json

import pytest

from rpg.config.load import resolve
from rpg.tasks import DataError, load_problems
from rpg.tasks.gold import check_gold
from rpg.tasks.preparation import data_notes, prepare_data


def task(folder, train, verifier="{}", held_out=("1+1", "2")):
    files = {"train.jsonl": train, "test.jsonl": [held_out]}
    for name, rows in files.items():
        lines = (json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in rows)
        (folder / name).write_text("\n".join(lines) + "\n")
    paths = {"train": str(folder / "train.jsonl"), "benchmarks": {"held-out": str(folder / "test.jsonl")}}
    return resolve({"task": {"type": "file", **paths, "verifier": json.loads(verifier)}}, "x")


@pytest.mark.parametrize("verifier", ['{"match": "number"}', '{"type": "math"}', "{}"])
def test_a_worked_solution_is_refused_and_the_answer_in_it_named(tmp_path, verifier):
    spec = task(tmp_path, [("a", "1"), ("b", "because #### 2")], verifier)
    with pytest.raises(DataError) as caught:
        load_problems(spec.task)
    for word in (
        "train.jsonl",
        "train-00002",
        "field answer",
        "'because #### 2'",
        "what follows ####",
        "write '2'",
    ):
        assert word in str(caught.value)


def test_so_is_one_in_a_benchmark(tmp_path):
    spec = task(tmp_path, [("a", "1")], held_out=("b", "#### 2"))
    with pytest.raises(DataError, match=r"test\.jsonl: held-out-00001: field answer"):
        load_problems(spec.task)


@pytest.mark.parametrize(("answer", "why"), [("Answer: 3", "own marker"), ("3\nor 4", "several lines")])
def test_what_the_marker_can_never_find_is_refused(tmp_path, answer, why):
    with pytest.raises(DataError, match=why):
        load_problems(task(tmp_path, [("a", answer)]).task)


def test_a_whole_sentence_is_named_in_the_notes_that_every_report_shows(tmp_path):
    sentence = "The train arrives at the station of the town after exactly three hours and forty minutes"
    spec = task(tmp_path, [("a", "1"), ("b", sentence)])
    notes = data_notes(prepare_data(spec, tmp_path / "home"))
    assert len(notes) == 1 and "1 gold answers are whole sentences" in notes[0] and "train-00002" in notes[0]


def test_usual_answers_say_nothing(tmp_path):
    answers = ["12", r"\frac{1}{2}", "(3, 4)", "x = 2 or x = 3", "12 apples", "#5", "three and a half"]
    spec = task(tmp_path, [(f"p{i}", answer) for i, answer in enumerate(answers)])
    assert check_gold(load_problems(spec.task).train, spec.task.verifier, "file") == []
