"""Word problems: no text twice, answers that are right by the text's own arithmetic, templates that
are held out."""

import re

import pytest

from rpg.config.task import WordsTask
from rpg.tasks import DataError, demonstrations_of, load_problems, verifier_of
from rpg.tasks.rewards.graders import grade
from rpg.tasks.word_problems import NAMES, STORIES, THINGS

TASK = WordsTask(type="words", train_problems=600, benchmark_problems=40)


@pytest.fixture(scope="module")
def splits():
    return load_problems(TASK)


def everything(splits):
    return [*splits.train, *(p for held in splits.benchmarks.values() for p in held)]


def told(problem):
    """A problem's text with its numbers, names and things blotted out."""
    words = re.sub(r"\d+", "#", problem.text)
    return re.sub(rf"\b({'|'.join((*NAMES, *THINGS))})\b", "*", words)


def test_no_text_stands_twice_and_the_same_settings_give_the_same_problems(splits):
    texts = [p.text for p in everything(splits)]
    assert len(set(texts)) == len(texts) == 600 + 80
    assert everything(load_problems(TASK)) == everything(splits)
    assert load_problems(TASK.model_copy(update={"data_seed": 1})).train != splits.train


def test_steps_of_a_demonstration_use_the_numbers_of_the_text_in_order_up_to_the_answer(splits):
    for problem in everything(splits):
        *steps, last = problem.demonstration.split("\n")
        numbers = re.findall(r"\d+", problem.text)
        used = []
        before = None
        for step in steps:
            left, operator, right, result = re.fullmatch(r"(\d+)([-+*])(\d+)=(\d+)", step).groups()
            assert eval(f"{left} {operator} {right}") == int(result) > 0 and before in (
                None,
                left,
            ), problem
            used += [right] if before else [left, right]
            before = result
        assert (
            used == numbers and last == f"Answer:{problem.answer}" and before == problem.answer
        ), problem


def test_held_out_templates_are_in_one_benchmark_only_and_ask_for_what_others_ask_for_too(splits):
    known = splits.benchmarks["words-known"]
    new = splits.benchmarks["words-new"]
    trained = {told(p) for p in splits.train}
    assert {told(p) for p in known} <= trained
    assert not {told(p) for p in new} & trained
    held_out = {story.steps for story in STORIES if story.held_out}
    assert held_out == {story.steps for story in STORIES if not story.held_out}
    assert len({told(p) for p in new}) == sum(story.held_out for story in STORIES)


def test_a_demonstration_and_a_bare_answer_are_graded_right_and_another_number_is_not(splits):
    verifier = verifier_of(TASK)
    for problem in splits.train[:40]:
        assert grade(verifier, problem.demonstration, problem.answer).correct
        assert grade(verifier, f"So it is so.\nAnswer: {problem.answer}", problem.answer).correct
        assert not grade(verifier, f"Answer: {int(problem.answer) + 1}", problem.answer).correct
    assert demonstrations_of(TASK, splits).held_out[0].demonstration


@pytest.mark.component
def test_more_problems_than_there_are_is_said():
    with pytest.raises(DataError, match=r"task.largest: 10 leaves too few different problems"):
        load_problems(
            WordsTask(type="words", largest=10, train_problems=60_000, benchmark_problems=1)
        )


def test_a_problem_carries_its_template_as_its_cluster(splits):
    clusters = {problem.cluster for problem in everything(splits)}

    assert len(clusters) == len(STORIES)
    for cluster in clusters:
        texts = {told(problem) for problem in everything(splits) if problem.cluster == cluster}
        assert len(texts) == 1
