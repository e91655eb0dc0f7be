"""Every gold answer of the real benchmarks, written in other ways (right) and nearly (wrong)."""

import os
from pathlib import Path

import pytest

from rpg.rewards import Grader
from rpg.tasks.benchmark_loading import load_benchmark
from rpg.tasks.benchmarks import benchmark
from tests.answers.variants import equivalents, near_misses

pytest.importorskip("math_verify", reason="math-verify is not installed (pip install 'rpg-lab[math]')")

DATA = Path(os.environ.get("RPG_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data"))
needs_data = pytest.mark.skipif(
    not (DATA / "aime-2024.parquet").is_file(),
    reason=f"the benchmarks' files are not in {DATA} (set RPG_DATA to their folder)",
)
# Right answers that the algebra system does not recognise. A right answer graded wrong is a loss, so each has its reason.
NOT_RECOGNISED = {
    # `\sin ^{2} \theta` at the end of a numerator: the reader takes what follows the fraction for its argument.
    ("minerva_math", r"m_{p} c^{2}\left(\gamma^{2}-1\right) \sin ^{2} \theta", "twice half"),
}
SMALL, LARGE = ["aime24", "aime25", "amc23"], ["minerva_math", "olympiadbench"]


@pytest.fixture(scope="module")
def grader():
    with Grader() as grader:
        yield grader


def mistakes(grader, name, forms, expected):
    items, labels = [], []
    for problem in load_benchmark(benchmark(name), folder=DATA).problems:
        written = forms(problem.answer)
        assert len(written) >= 5, f"{problem.answer}: only {sorted(written)}"
        for how, text in written.items():
            items.append((f"We find it.\nAnswer: {text}", problem.answer))
            labels.append((problem.answer, how, text))
    grades = grader.grade(items)
    return [
        (answer, how, text, grade.reason)
        for (answer, how, text), grade in zip(labels, grades, strict=True)
        if grade.correct is not expected and (name, answer, how) not in NOT_RECOGNISED
    ]


@needs_data
@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.slow) for n in LARGE)])
def test_every_gold_answer_in_other_forms_is_right(grader, name):
    assert mistakes(grader, name, equivalents, True) == []


@needs_data
@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.slow) for n in LARGE)])
def test_near_misses_of_every_gold_answer_are_wrong(grader, name):
    assert mistakes(grader, name, near_misses, False) == []


RIGHT = [
    ("1/2", "0.5"),
    ("1/2", r"\dfrac12"),
    ("1/2", "50%"),
    ("0.333333", "1/3"),
    ("1/3", "0.3333333"),
    ("336^\\circ", "336"),
    ("336", "336 degrees"),
    ("4.5e33", r"4.5 \times 10^{33}"),
    ("1e-5", "10^{-5}"),
    ("1e-5", "0.00001"),
    ("6630", "6,630"),
    ("6630", "6 630"),
    ("6630", r"6\,630"),
    ("1.6", r"1.6 \mathrm{~cm}"),
    ("9.8", "9.8 m/s^2"),
    ("9.8", r"9.8\text{ m/s}^2"),
    ("45", "45 minutes"),
    ("k=1", "1"),
    ("1", "k = 1"),
    ("f(x)=2 x", "2x"),
    ("1,3,5", "5, 3 and 1"),
    ("1,3,5", r"\{1, 3, 5\}"),
    ("1,3", "1 or 3"),
    ("1,3", r"\boxed{1} and \boxed{3}"),
    ("1,3", r"\boxed{1, 3}"),
    ("1,-1", r"\pm 1"),
    (r"$1+\sqrt{2}, 1-\sqrt{2}$", r"1 \pm \sqrt 2"),
    ("(2,4)", r"\left( 2, \, 4 \right)"),
    ("(2,4)", r"(\frac{4}{2}, 4.0)"),
    ("$[\\frac{1}{2}, 8]$", "[0.5, 8]"),
    (r"(-\infty, 0) \cup\{1\}", r"\{1\} \cup (-\infty, 0)"),
    (r"\frac{x^2}{2}", "x^2/2"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\sqrt{8}", "2*sqrt(2)"),
    ("2^{1009}", r"4^{504} \cdot 2"),
    (r"k \ge 2", "k >= 2"),
    (
        r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}",
        r"$\begin{pmatrix}-\dfrac{1}{3}\\ \frac{2}{3}\end{pmatrix}$",
    ),
    (
        r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}",
        r"\left[\begin{matrix} 1 & 0 \\ 0 & 1 \end{matrix}\right]",
    ),
    (r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}", r"\begin{bmatrix}1&0\\[2pt]0&1\end{bmatrix}"),
    ("x^2 - 1", "(x-1)(x+1)"),
]
WRONG = [
    ("2.55e-10", "0"),  # math-verify rounds to six decimals and takes these two for equal
    ("2.55e-10", "2.6e-10"),
    ("12", "1 2"),
    ("16", "2**4 + 1"),
    ("8", "2**2"),
    ("540", "540.0003"),
    ("1/3", "0.33"),
    ("1/3", "0.333"),
    ("6m", "6"),
    (r"\frac{37}{4} m", "37/4"),
    ("(2,4)", "(4,2)"),
    ("(1,3)", "[1,3]"),
    ("1,3", "(1,3)"),
    ("1,1,2", "1,2,2"),
    ("k=1", "m=1"),
    ("f(x)=2x", "f(x)=2x+1"),
    ("1", "1, 1"),
    ("MR=SRMC", "SRAC=LRAC"),
    ("\\sqrt{2}", "1.41"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 12 \end{pmatrix}"),
    ("5", "5 or 6"),
    ("0", ""),
    ("100", "1e3"),
    ("1000", "1,00"),
    ("5", r"\boxed{4}, \boxed{5}"),
    ("5", r"\boxed{4} \boxed{5}"),
]


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_right(grader, gold, answer):
    grade = grader.grade([(f"Answer: {answer}", gold)])[0]
    assert grade.correct, grade


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_wrong(grader, gold, answer):
    grade = grader.grade([(f"Answer: {answer}", gold)])[0]
    assert not grade.correct, grade


@pytest.mark.parametrize(
    ("response", "extracted"),
    [
        ("Answer: 5", "5"),
        ("answer:5", "5"),
        ("**Answer:** 5", "5"),
        ("**Answer: 5**", "5**"),
        ("Answer: 4\nwait\nAnswer: 5\ndone", "5"),
        ("Answer:\n\n$5$\n", "$5$"),
        ("The Answer : 5", "5"),
        ("The answer is 5", None),
        ("", None),
    ],
)
def test_the_answer_is_the_last_answer_line(grader, response, extracted):
    grade = grader.grade([(response, "5")])[0]
    assert grade.extracted == extracted
    assert grade.correct is (extracted is not None)


def test_equal_pairs_are_compared_once(grader, monkeypatch):
    seen = []
    real = grader._pool.compare
    monkeypatch.setattr(grader._pool, "compare", lambda pairs: seen.extend(pairs) or real(pairs))
    items = [
        (r"Answer: $\sqrt{8}\,y$", r"2 \sqrt{2} y"),
        (r"so Answer: $\sqrt{8}\,y$ ", r"2 \sqrt{2} y"),
    ] * 50
    assert all(g.correct for g in grader.grade(items))
    assert all(g.correct for g in grader.grade(items))
    assert len(seen) == 1


def test_a_tolerance_is_relative():
    from rpg.config.task import MathVerifier

    with Grader(MathVerifier(relative_tolerance=0.01)) as grader:
        answers = ["2.5e-10", "2.55e-10", "2.57e-10", "2.6e-10", "0"]
        grades = grader.grade([(f"Answer: {a}", "2.55e-10") for a in answers])
    assert [g.correct for g in grades] == [False, True, True, False, False]
