"""Grading by marker, and the overlong penalty."""

from fractions import Fraction

import pytest

from rpg.config.reward import CorrectnessReward, Corruption
from rpg.config.task import MarkerVerifier
from rpg.tasks.rewards.graders import grade, number
from rpg.tasks.rewards.scoring import Answered, Scorer, overlong_punishment

EXACT = MarkerVerifier(marker="#")
NUMBER = MarkerVerifier(match="number")


@pytest.mark.parametrize(
    ("response", "truth", "correct", "extracted"),
    [
        ("b+70#5", "5", True, "5"),
        ("#4#5", "5", True, "5"),
        ("#5#4", "5", False, "4"),
        ("# 5 \nmore", "5", True, "5"),
        ("#55", "5", False, "55"),
        ("5", "5", False, None),
        ("#", "5", False, ""),
        ("#", "", False, ""),
        ("", "", False, None),
    ],
)
def test_the_rest_of_the_line_is_compared_exactly(response, truth, correct, extracted):
    found = grade(EXACT, response, truth)
    assert (found.correct, found.extracted) == (correct, extracted)


def test_an_answer_at_the_cut_does_not_count_unless_its_line_is_over():
    assert not grade(EXACT, "#5", "5", truncated=True).correct
    assert grade(EXACT, "#5\nand then", "5", truncated=True).correct
    assert grade(EXACT, "#5", "5", truncated=True).reason == "answer cut off"
    assert grade(EXACT, "no", "5", truncated=True).reason == "cut off before an answer"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-0.50", Fraction(-1, 2)),
        ("+1/2", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("1,234,567.5", Fraction(2469135, 2)),
        ("$3$", 3),
        ("7.", 7),
        (" 1 000 ", 1000),
        ("1 2", None),
        ("2 1/2", None),
        ("1/0", None),
        ("1,23", None),
        ("1e9999999", None),
        ("x", None),
        ("", None),
        ("٣", 3),
        ("9" * 51, None),
        (r"\(31.0\)", 31),
        (r"\[ -31 \].", -31),
        (r"$\boxed{1,250}$", 1250),
        (r"\(\boxed{\text{31}}\).", 31),
        (r"\mathbf{2/3}", Fraction(2, 3)),
        ("**31**", 31),
        ("** 31.5", Fraction(63, 2)),
        ("`31`", 31),
        (r"\$31", 31),
        (r"\(31\) or \(32\)", None),
        (r"\boxed{3}\boxed{1}", None),
        (r"\boxed{31", None),
        (r"-\boxed{31}", None),
        (r"\text{about 31}", None),
        ("`" * 100_000 + "31", None),
    ],
)
def test_a_text_is_read_as_the_number_it_says(text, value):
    assert number(text) == value


@pytest.mark.parametrize(("every", "found"), [(False, ["5", "5", None]), (True, ["5"] * 3)])
def test_the_beginning_of_the_assistants_turn_is_graded_where_it_was_written(every, found):
    answered = [
        Answered(text, 1, False, "5", last=last)
        for text, last in (("5", None), ("5", "5"), ("6?75", "5"))
    ]
    with Scorer(EXACT, prefix="#", prefix_every_turn=every) as scorer:
        assert [scored.grade.extracted for scored in scorer.score(answered)] == found


def test_numbers_compare_by_value():
    assert grade(NUMBER, "Answer: 0.5", "1/2").correct
    assert not grade(NUMBER, "Answer: 0.51", "1/2").correct
    assert grade(NUMBER, "Answer: about half", "1/2").reason == "not a number"
    assert grade(NUMBER, "Answer: B", "B").correct  # a truth that is no number is compared as text


def test_rewards_are_the_papers():
    assert (CorrectnessReward().right, CorrectnessReward().wrong) == (1.0, -1.0)


def test_overlong_punishment_is_linear_over_the_buffer():
    values = [overlong_punishment(n, 2048, 0.25, 1.0) for n in (0, 1536, 1537, 1792, 2048)]
    assert values == [0.0, 0.0, -1 / 512, -0.5, -1.0]
    assert overlong_punishment(2048, 2048, 0.25, 0.5) == -0.5
    for limit, fraction in ((0, 0.25), (10, 0.0), (10, 1.5)):
        with pytest.raises(ValueError, match="must be positive and buffer_fraction"):
            overlong_punishment(1, limit, fraction, 1.0)


RIGHT, WRONG = "#5", "#4"


def rewards_with_errors(corrupt, answered):
    with Scorer(EXACT, (CorrectnessReward(corrupt=corrupt),)) as scorer:
        return scorer.score([Answered(text, 2, False, "5", error_draw=u) for text, u in answered])


def test_verdicts_are_turned_below_their_rates_and_the_grade_stays():
    corrupt = Corruption(false_positive=0.2, false_negative=0.5)
    answered = [(RIGHT, 0.49), (RIGHT, 0.51), (WRONG, 0.19), (WRONG, 0.21), (WRONG, 0.49)]
    scored = rewards_with_errors(corrupt, answered)
    assert [s.reward for s in scored] == [-1.0, 1.0, 1.0, -1.0, -1.0]
    assert [s.grade.correct for s in scored] == [True, True, False, False, False]
    assert [s.parts["grading_errors"] for s in scored] == [1.0, 0.0, 1.0, 0.0, 0.0]


def test_without_a_draw_the_verdict_stands_whatever_the_rates():
    always = Corruption(false_positive=1.0, false_negative=1.0)
    scored = rewards_with_errors(always, [(RIGHT, None), (WRONG, None)])
    assert [s.reward for s in scored] == [1.0, -1.0]
    assert all("grading_errors" not in s.parts for s in scored)
