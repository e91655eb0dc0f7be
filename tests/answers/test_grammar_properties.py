"""Whatever the text: grading ends, does not fail, and never takes it for two different numbers; and
a right answer stays right in everything that may stand around it.
"""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.grading.generated import sample_golds
from rpg.answers.comparison import equivalent
from rpg.answers.extraction import answer_line
from rpg.answers.numbers import number

PIECES = [
    "5",
    "6",
    "12",
    "0.5",
    "-3",
    "1/2",
    "1,000",
    ",",
    ";",
    ".",
    ":",
    "=",
    "<",
    ">",
    "~",
    "+",
    "-",
    "*",
    "/",
    "^",
    "_",
    "!",
    "%",
    "?",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "|",
    "&",
    "$",
    "$$",
    "\\",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "\\boxed{",
    "\\frac{",
    "\\frac",
    "\\sqrt",
    "\\text{",
    "\\mathrm{",
    "\\pm",
    "\\cup",
    "\\in",
    "\\le",
    "\\ne",
    "\\approx",
    "\\times",
    "\\cdot",
    "\\infty",
    "\\pi",
    "\\{",
    "\\}",
    "\\lfloor",
    "\\rfloor",
    "\\left(",
    "\\right)",
    "\\over",
    "\\begin{pmatrix}",
    "\\end{pmatrix}",
    "\\\\",
    "\\sum",
    "\\int",
    "\\overline{",
    "\\pmod{",
    "\\circ",
    "^{",
    "_{",
    "or",
    "and",
    "not",
    "is",
    "the",
    "answer",
    "x",
    "=",
    "so",
    "that",
    "five",
    "twenty",
    "maybe",
    "cm",
    "ways",
    "about",
    "e",
    "i",
    "pi",
    "sin",
    "log",
    "½",
    "²",
    "≤",
    "×",
    "⁻",
    "\n",
    "Answer:",
    "#",
    "**",
    "é",
    "漢",
    "\u202e",
    "🎉",
]
TEXTS = (
    st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join)
    | st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
    | st.text(max_size=60)
)
GOLD_KINDS = (
    r"x^2+\sqrt{2}; 1, 2; (1, 2); (-\infty, 5); f(x)=2x; y'+y=0; \sum_{n} a_n; k \ge 2".split("; ")
)
NUMBERS = "5 6 12 0.5 -3 1 2 10 7/3 30 25 20 1000 0 \\sqrt{2} 500".split()


def bounded(gold, text):
    """The verdict, which may not take long: pieces as short as these need no limit."""
    began = time.process_time()
    verdict = equivalent(gold, text)
    assert time.process_time() - began < 5.0
    return verdict


@pytest.mark.component
@given(TEXTS)
@settings(max_examples=250, deadline=None)
@example("5 or 6")
@example("x = 5 / x = 6")
@example("5 = 6")
@example("\\boxed{5}\\boxed{6}")
@example("5\n6")
@example("50%")
def test_no_text_is_two_different_numbers(text):
    right = [gold for gold in NUMBERS if bounded(gold, text)[0]]
    assert len(right) < 2, right


@pytest.mark.component
@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_any_text_has_a_verdict_for_every_kind_of_gold_answer(text):
    for gold in (*GOLD_KINDS, text):
        right, reason = bounded(gold, text)
        assert isinstance(right, bool)
        assert reason
    answer_line(f"Answer: {text}")


AROUND = st.sampled_from(
    [
        "{}",
        "${}$",
        "$${}$$",
        r"\({}\)",
        r"\[{}\]",
        r"$\boxed{{{}}}$",
        r"\boxed{{{}}}",
        "The answer is ${}$.",
        "**${}$**",
        "${}$.",
        "So ${}$",
        r"$\color{{red}}{{{}}}$",
        "$\\displaystyle {}$",
        " ${}$ ",
        "${}$. Done.",
        r"$\left. {} \right.$",
        "${}$, as required",
        r"\text{{The answer is }} {}",
        "Thus, $\\boxed{{{}}}$ is the answer.",
        "\n{}\n",
        "\n\\[\n{}\n\\]\n",
        "${}$ (by symmetry)",
    ]
)
GOLDS = st.sampled_from([gold.text for gold in sample_golds()])


@pytest.mark.component
@given(GOLDS, AROUND, AROUND)
@settings(max_examples=200, deadline=None)
def test_a_right_answer_stays_right_in_every_wrapper(gold, inner, outer):
    words = {"The", "So", "Thus,", "Done.", "as", "symmetry)", r"\text{{The"}
    one = inner if words & set(outer.replace("$", " ").split()) else outer
    answer, _ = answer_line("Answer: " + one.format(gold))
    assert equivalent(gold, answer)[0], (answer, equivalent(gold, answer))


@given(st.integers(-(10**9), 10**9), AROUND)
@settings(max_examples=100, deadline=None)
def test_an_integer_equals_itself_and_not_its_successor(n, around):
    answer, _ = answer_line("Answer: " + around.format(n))
    assert equivalent(str(n), answer)[0]
    assert not equivalent(str(n + 1), answer)[0]


@pytest.mark.component
@given(st.fractions(max_denominator=999), st.fractions(max_denominator=999))
def test_fractions_are_equal_exactly_where_their_values_are(p, q):
    text = rf"\frac{{{q.numerator}}}{{{q.denominator}}}"
    assert equivalent(f"{p.numerator}/{p.denominator}", text)[0] is (p == q)
    assert number(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "(" * 900 + "5" + ")" * 900,
        "-" * 1900 + "5",
        "x^" * 900 + "2",
        "5 or " * 380 + "5",
        "1," * 990,
    ],
)
def test_deep_and_long_texts_are_decided_in_bounded_time(text):
    bounded("5", text)
    bounded("x+1", text)
