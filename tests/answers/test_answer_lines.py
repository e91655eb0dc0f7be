"""Answer lines of every kind, decided as a mathematician would: by hand, and by the classes of tests/answers/generated."""

from collections import Counter

import pytest

from rpg.answers.comparison import equivalent
from rpg.rewards import Grader, Item
from tests.answers.answer_lines import EXAMPLES_RIGHT, EXAMPLES_WRONG, RIGHT, WRONG, pairs
from tests.answers.generated import cases, real_golds, sample_golds
from tests.answers.generated.case import last_line

# At most this share of a group's answers may be graded wrongly: right ones refused, wrong ones accepted.
BOUNDS = {"right": 0.05, "hedge": 0.003, "wrong": 0.002}


@pytest.fixture(scope="module")
def grader():
    with Grader() as grader:
        yield grader


@pytest.mark.parametrize(("gold", "line"), pairs(EXAMPLES_RIGHT) + pairs(RIGHT))
def test_right(grader, gold, line):
    [grade] = grader.grade([(last_line(line), gold)])
    assert grade.correct, grade


@pytest.mark.parametrize(("gold", "line"), pairs(EXAMPLES_WRONG) + pairs(WRONG))
def test_wrong(grader, gold, line):
    [grade] = grader.grade([(last_line(line), gold)])
    assert not grade.correct, grade


def mistakes(grader, found):
    grades = grader.grade([(case.response, case.gold) for case in found])
    return [(case, grade) for case, grade in zip(found, grades, strict=True) if grade.correct != case.right]


def test_every_class_over_answers_of_our_own(grader):
    found = cases(sample_golds(), most=2)
    assert len(found) > 1_500 and len({case.kind for case in found}) == 48
    wrong = mistakes(grader, found)
    assert wrong == []


@pytest.mark.slow
def test_every_class_over_the_gold_answers_of_the_benchmarks(grader):
    golds = real_golds()
    if not golds:
        pytest.skip("the benchmarks' files are not there (set RPG_DATA to their folder)")
    found = cases(golds)
    assert len(found) > 10_000
    counts = Counter(case.group for case in found)
    wrong = mistakes(grader, found)
    for group, bound in BOUNDS.items():
        mine = [pair for pair in wrong if pair[0].group == group]
        assert len(mine) <= bound * counts[group], mine[:20]


@pytest.mark.parametrize(
    "marker", ["Answer:", "**Answer:**", "**Answer**:", "### Answer:", "Final Answer:", "**Final Answer:**"]
)
@pytest.mark.parametrize(
    "body",
    [
        "42",
        "\n42",
        "\n\n42",
        "\n\\[\n42\n\\]",
        "\n$$\n42\n$$",
        "\n\\[\n\\boxed{42}\n\\]",
        "\n$$\\boxed{42}$$",
        " \\[\n42\n\\]",
        " $$\n\\boxed{42}\n$$\n\nThis completes the proof.",
        "\n\\begin{equation}\n42\n\\end{equation}",
        " The answer is:\n\n$42$",
    ],
)
def test_a_formula_on_the_next_lines(grader, marker, body):
    [right, wrong] = grader.grade([(f"So.\n\n{marker}{body}", "42"), (f"So.\n\n{marker}{body}", "43")])
    assert right.correct, right
    assert not wrong.correct, wrong


@pytest.mark.parametrize(
    "response",
    [
        "Answer: 42\n\nWait, the answer is \\boxed{43}.",
        "Answer: 42\nor 43",
        "Answer:\n- 42\n- 43",
        "Answer: \\boxed{42}\n\nAlternatively, \\boxed{43}.",
        "Answer: 42\n\nAnswer: 43",
        "Answer: 42\nWait, that is wrong.",
        "\\boxed{42}",
        "The answer is 42",
    ],
)
def test_what_is_finally_stated_counts(grader, response):
    [grade] = grader.grade([(response, "42")])
    assert not grade.correct, grade


def test_a_formula_that_is_cut_off_is_no_answer(grader):
    cut = ["Answer:\n\\[\n42", "Answer: 42", "Answer: $42", "Answer:\n\\[\n42\n\\]"]
    assert not any(g.correct for g in grader.grade([Item(response, "42", True) for response in cut]))
    assert grader.grade([Item("Answer:\n\\[\n42\n\\]\nSo it is", "42", True)])[0].correct


def test_a_verdict_keeps_its_reason_and_the_reading(grader):
    def reason(gold, line):
        return grader.grade([(f"Answer: {line}", gold)])[0].reason

    assert reason("5", "5 or 6") == "answer line: states more than the gold answer; read as 5 | 6"
    assert reason("5", "maybe 5") == "answer line: not read: unclear: 'maybe'"
    assert reason("1/2", "so $x = 2/4$, about 0.5 cm") == "answer line: equivalent; read as x=2/4; about 0.5"
    assert reason("0.5", "1/2") == "answer line: same number"


def test_a_tolerance_holds_for_expressions_too():
    assert equivalent("3.14", r"\pi", 0.01) == (True, r"equivalent; read as \pi")
    assert not equivalent("3.14", r"\pi")[0]
