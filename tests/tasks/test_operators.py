"""Chains without operators: several right answers each, all of them right and no other."""

import itertools
import random

import pytest

from rpg.config.model import WarmStart
from rpg.config.task import OperatorsTask
from rpg.tasks import DataError, characters_of, demonstrations_of, load_problems, verifier_of
from rpg.tasks.rewards.graders import grade

TASK = OperatorsTask(type="operators", operations=3, train_problems=300, benchmark_problems=20)


WAYS = ["".join(way) for way in itertools.product("+-*", repeat=3)]


def ends(prompt, operators):
    """Where a prompt's chain ends with these operators, by other means than the task's, and where
    it has to."""
    body, target = prompt.split("=")
    start, *operands = body[1::2]
    value = start
    for operator, digit in zip(operators, operands, strict=True):
        value = f"({value} {operator} {digit})"
    return eval(value) % 10, int(target)


@pytest.mark.component
def test_the_answers_are_all_that_end_at_the_target_and_there_are_several():
    splits = load_problems(TASK)
    [held_out] = splits.benchmarks.values()
    everything = [*splits.train, *held_out]
    assert len({p.prompt for p in everything}) == len({p.id for p in everything}) == 320
    for problem in everything[::7]:
        right = [way for way in WAYS if len(set(ends(problem.prompt, way))) == 1]
        assert problem.answer.split() == right
        assert len(right) >= 2
    assert everything == [*load_problems(TASK).train, *held_out]
    assert load_problems(TASK.model_copy(update={"data_seed": 1})).train != splits.train


def test_every_right_answer_is_graded_right_and_others_are_not():
    verifier = verifier_of(TASK)
    for problem in load_problems(TASK).train[:20]:
        for way in WAYS:
            right = len(set(ends(problem.prompt, way))) == 1
            assert grade(verifier, f"b+70#{way}", problem.answer).correct == right
        assert not grade(
            verifier, f"#{problem.answer}", problem.answer
        ).correct  # all at once is no answer
        assert not grade(verifier, "#", problem.answer).correct
        assert grade(verifier, verifier.written(problem.answer), problem.answer).correct


def test_demonstrations_are_right_of_no_benchmark_and_not_always_the_same_answer():
    splits = load_problems(TASK)
    shown = demonstrations_of(TASK, splits)
    rng = random.Random(0)
    verifier = verifier_of(TASK)
    warm = WarmStart(scratchpad_fraction=0.5, corruption=0.0)
    held_out = {p.prompt for p in splits.benchmarks["operators-3"]} | {
        p.prompt for p in shown.held_out
    }
    places = set()
    for make in (shown.ability, lambda rng: shown.behaviour(rng, warm)):
        for prompt, response in (make(rng) for _ in range(60)):
            way = response.partition("#")[2]
            assert len(set(ends(prompt, way))) == 1
            assert prompt not in held_out
            assert set(prompt + response) <= characters_of(TASK, splits)
            right = [one for one in WAYS if len(set(ends(prompt, one))) == 1]
            assert grade(verifier, response, " ".join(right)).correct
            places.add(right.index(way))
    assert len(places) > 2


def test_more_problems_than_there_are_is_said():
    with pytest.raises(DataError, match="problems of 2 operations have 2 right answers"):
        load_problems(TASK.model_copy(update={"operations": 2, "train_problems": 4000}))
