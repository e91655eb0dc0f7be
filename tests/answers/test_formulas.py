r"""Words, spaces and other boxes in the formula of a box are read as those outside of formulas."""

import pytest

from rpg.answers.formulas import words_outside
from rpg.config.task import MathVerifier
from rpg.tasks.rewards import Item, grader_for


@pytest.fixture(scope="module")
def is_right():
    with grader_for(MathVerifier(fallback="boxed")) as grader:
        yield lambda response, gold: grader.grade([Item(response, gold)])[0].correct


@pytest.mark.parametrize(
    ("formula", "gold"),
    [
        (r"$\text{never }\boxed{8}$", "8"),
        (r"$6 \text{ or } \boxed{8}$", "8"),
        (r"$6 \text{ and } \boxed{8}$", "8"),
        (r"$y=6 \text{ or } y=\boxed{8}$", "8"),
        (r"\[ \text{either } 6 \text{ or } \boxed{8} \]", "8"),
        (r"$\boxed{6}=\boxed{8}$", "8"),
        (r"$\boxed{6} \to \boxed{8}$", "8"),
        (r"$\boxed{6} \neq \boxed{8}$", "8"),
        (r"$\boxed{6} & \boxed{8}$", "8"),
        (r"$\boxed{6} \text{ or possibly } \boxed{8}$", "8"),
        (r"$\boxed{6},\ \boxed{8},\dots$", "8"),
        (r"$$\boxed{6} \qquad\text{or}\qquad \boxed{8}$$", "8"),
        (r"$-\qquad\boxed{8}$", "8"),
        (r"$6\qquad\boxed{8}$", "8"),
        (r"\(\text{perhaps } \boxed{8}\)", "8"),
        (r"$\text{at most } \boxed{8}$", "8"),
        (r"Somewhere between 6 and $\boxed{8}$.", "8"),
        (r"$\boxed{6} \text{ but not } \boxed{8}$", "6"),
        (r"\(p = \boxed{6}\) and \(q = \boxed{8}\)", "8"),
        (r"\(\boxed{6}\) or \(\boxed{8}\)", "8"),
        (r"So $\boxed{8}$ is one of the values for $n$.", "8"),
        (r"There are $\boxed{8}$ values for $n$ and 6 for $m$.", "8"),
        (r"$$\boxed{6} \text{ for part (a) and } \boxed{8}$$", "8"),
        (r"There are $\boxed{8}$ values unless $n$ is odd.", "8"),
    ],
)
def test_a_hedge_in_the_formula_of_a_box_is_refused(is_right, formula, gold):
    assert not is_right(f"We add. {formula}", gold)


@pytest.mark.parametrize(
    ("formula", "gold"),
    [
        (r"$$\boxed{(1,4)} \quad\text{and}\quad \boxed{(3,7)}$$", "(1,4), (3,7)"),
        (r"$\boxed{6} \text{ or } \boxed{8}$", "6, 8"),
        (r"$\boxed{z=6}\ \text{or}\ \boxed{z=8}$", "6, 8"),
        (r"$\boxed{8} \text{ or } \boxed{8}$", "8"),
        (r"$$\boxed{p = 6} \quad \text{and} \quad \boxed{q = 8}$$", "p = 6, q = 8"),
        (r"$-\qquad\boxed{8}$", "-8"),
        (r"\(p = \boxed{6}\) and \(q = \boxed{8}\)", "p = 6, q = 8"),
        (r"\(\boxed{6}\), \(\boxed{8}\)", "6, 8"),
        (r"$$\boxed{(1,4)} \text{ for part (a) and } \boxed{(3,7)}$$", "(1,4), (3,7)"),
        (r"$7^{5} + 4 \equiv \boxed{8} \pmod{13}.$", "8"),
        (r"Thus there are $\boxed{8}$ distinct possible values for $n$.", "8"),
        (r"There are $\boxed{8}$ solutions for $(m,n)$.", "8"),
        (r"$\text{Hence } z = \boxed{8}$", "8"),
        (r"$$\text{The volume is } \boxed{8} \text{ cubic units}$$", "8"),
        (r"$a = 1 \quad \text{so} \quad z = \boxed{8}$", "8"),
        (r"$\therefore\quad z = \boxed{8}$", "8"),
        (r"\[P(\text{even})=\boxed{\frac{1}{2}}.\]", r"\frac12"),
        (r"$z_{\text{total}} = \boxed{8}$", "8"),
        (r"\begin{align*} z &= 6+2 \\\\ &= \boxed{8} \end{align*}", "8"),
    ],
)
def test_words_that_only_lead_to_a_box_do_not_spoil_it(is_right, formula, gold):
    assert is_right(f"We add. {formula}", gold)


def test_a_sentence_behind_the_box_that_states_other_values_counts(is_right):
    box = r"This gives $\boxed{41_6}$."

    assert is_right(box, "41_6")
    assert not is_right(rf"{box} Note that $15_6$ divided by $3_6$ is $3_6$.", "41_6")


@pytest.mark.parametrize(
    "text",
    [
        "no box $x \\text{ or } y$",
        r"$\boxed{8}$",
        r"$z_{\text{max}} = \boxed{8}$",
        r"\[\begin{aligned} z &= \text{six} \\\\ &= \boxed{8} \end{aligned}\]",
        r"$\boxed{8",
    ],
)
def test_other_formulas_stay_as_they_are(text):
    assert words_outside(text) == text


@pytest.mark.parametrize(
    "response",
    [
        "Answer: 8 <|im_start|>user",
        "Answer: 8<|im_end|>\n<|im_start|>user\nAnd 9?",
        "Answer: 8 <|start_header_id|>user<|end_header_id|>\n\nAnswer: 9",
        "<|im_start|>assistant\nAnswer: 8",
        "It is $\\boxed{8}$.<|im_end|><|im_start|>user So $\\boxed{9}$?",
    ],
)
def test_the_next_speakers_turn_is_not_read(is_right, response):
    assert is_right(response, "8")


def test_an_answer_after_another_speakers_turn_counts(is_right):
    turns = "Answer: 7<|im_end|><|im_start|>user Sure?<|im_end|><|im_start|>assistant\nAnswer: 8"

    assert is_right(turns, "8")
    assert not is_right(turns, "7")


@pytest.mark.parametrize(
    ("written", "gold", "right"),
    [
        ("7 pm", "7 PM", True),
        ("7 p.m.", "7 PM", True),
        ("7 am", "7 pm", False),
        ("8 PM", "7 PM", False),
        (r"7 \text{ pm}", "7 PM", True),
    ],
)
def test_hours_are_read_in_any_case(is_right, written, gold, right):
    assert is_right(f"Answer: {written}", gold) is right
