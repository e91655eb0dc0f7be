"""Two evaluations of the same problems at once, of which one is watched from within; and columns
that are corrected."""

import os
from dataclasses import replace

import pytest

from rpg.config.task import MarkerVerifier
from rpg.evaluation import graded_samples
from rpg.evaluation.engines.protocol import Completion
from rpg.evaluation.graded_samples import evaluate_problems, requests
from rpg.store.draws import Draw, Draws, Key, digest
from rpg.store.samples import SECOND
from rpg.tasks import Problem
from rpg.tasks.rewards.grades import Grade
from rpg.tasks.rewards.scoring import Scored, Scorer

PROBLEMS = [
    Problem(name, f"What is {name}?", f"What is {name}?", "2", "few") for name in ("a", "b")
]


def other_evaluation(home, go):
    """A process that has begun to draw the samples of problem a, and stores them when something
    arrives at `go`."""
    ready, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            draws = Draws(home, {"seed": 0}, "model")
            with draws.claimed({"a"}):
                os.write(said, b".")
                os.read(go, 1)
                key = digest(PROBLEMS[0].given())
                draws.add({Key("a", key, k): Draw("Answer: 2", 3, False) for k in range(2)})
        finally:
            os._exit(0)
    os.read(ready, 1)
    return child


@pytest.mark.component
def test_what_another_process_draws_is_waited_for_and_not_counted_as_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(graded_samples, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(graded_samples, "_FLUSH_ROWS", 1)
    wait, go = os.pipe()
    child = other_evaluation(tmp_path, wait)
    asked = []
    told = []

    class Engine:
        def complete(self, requests):
            asked.extend(request.key[2:] for request in requests)
            for index in range(len(requests)):
                yield [(index, Completion("Answer: 3", (1,) * 5, False))]
            os.write(go, b".")

    with Scorer(MarkerVerifier()) as scorer:
        rows = evaluate_problems(
            Engine,
            PROBLEMS,
            samples_per_problem=2,
            seed=0,
            scorer=scorer,
            draws=Draws(tmp_path, {"seed": 0}, "model"),
            progress=told.append,
        )
    os.waitpid(child, 0)
    assert asked == [("b", 0), ("b", 1)]
    assert [(row["problem_id"], row["sample"], row["correct"]) for row in rows] == [
        ("a", 0, True),
        ("a", 1, True),
        ("b", 0, False),
        ("b", 1, False),
    ]
    assert [(p.done, p.total, p.fresh, p.tokens) for p in told[:3]] == [
        (0, 4, 0, 0),
        (1, 4, 1, 5),
        (2, 4, 2, 10),
    ]
    assert (told[-1].done, told[-1].fresh, told[-1].tokens) == (4, 2, 10)
    assert told[-1].seconds_left == pytest.approx(0)


@pytest.mark.component
def test_a_second_reader_is_given_what_could_not_be_read_and_its_verdict_is_stored(tmp_path):
    """With the gold answer, and an empty answer where none was found."""
    grades = {
        "a": Grade("2", True, "box: equal"),
        "b": Grade("two of", False, "box: not read: unclear; read as two of"),
        "c": Grade(None, False, "box: longer than 4,000 characters"),
    }
    problems = [Problem(name, name, name, f"gold of {name}", "few") for name in grades]
    given = []

    class Engine:
        def complete(self, requests):
            for index in range(len(requests)):
                yield [(index, Completion("a response", (1,), False))]

    class Reader(Scorer):
        def score(self, items):
            return [Scored(0.0, grades[item.prompt], {}) for item in items]

        def reread(self, pairs):
            given.extend(pairs)
            return [pair == ("gold of b", "two of") for pair in pairs]

    with Reader(MarkerVerifier()) as scorer:
        rows = evaluate_problems(
            Engine,
            problems,
            samples_per_problem=1,
            seed=0,
            scorer=scorer,
            draws=Draws(tmp_path, {"seed": 0}, "model"),
        )
    assert given == [("gold of b", "two of"), ("gold of c", "")]
    assert {row["problem_id"]: row[SECOND] for row in rows} == {"a": None, "b": True, "c": False}


def test_a_corrected_column_is_another_conversation_and_the_same_response(tmp_path):
    problems = [replace(PROBLEMS[0], columns={"secret": secret}) for secret in (1, 2)]
    for settings, different in (({}, 1), ({"environment": {}}, 2)):
        draws = Draws(tmp_path, settings, "model")
        assert (
            len({key for problem in problems for key in requests([problem], 1, 0, draws)})
            == different
        )
