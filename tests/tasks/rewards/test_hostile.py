"""Answers that are meant to hang, crash, fill memory or be executed: each is graded wrong, in
bounded time."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.grading.generated import cases, sample_golds
from rpg.answers import last_box, quick, typesetting
from rpg.answers.computer_algebra import forbid_evaluation
from rpg.answers.extraction import answer_line, boxed_answer
from rpg.config.task import MathVerifier
from rpg.store.samples import unread_form
from rpg.tasks.rewards import Grader, Item
from tests.waiting import until

pytest.importorskip("math_verify", reason="math-verify is not installed (pip install '.[math]')")

CPU = 0.5
HOSTILE = {
    "tower of powers": "9^{9^{9^{9}}}",
    "tower, plain": "9^9^9^9",
    "python tower": "9**9**9**9",
    "factorial of a huge number": "(10^{10})!",
    "factorial": "100000000!",
    "binomial": r"\binom{10^{9}}{5 \cdot 10^{8}}",
    "huge power": "2^{10^{12}}",
    "huge matrix power": r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{10^9}",
    "expansion": "(a+b+c+d+e+f)^{300} - (a+b+c+d+e+f)^{299} + 5",
    "product": r"\prod_{n=1}^{10^{7}} n",
    "sum": r"\sum_{n=1}^{10^{9}} \frac{1}{n^{3}+1}",
    "integral": r"\int_0^1 \sin(x^{x^x}) dx",
    "a megabyte of braces": "{" * 500_000 + "}" * 500_000,
    "a megabyte of opening braces": "{" * 1_000_000,
    "a megabyte of boxes": r"\boxed{" * 140_000,
    "a megabyte of digits": "9" * 1_000_000,
    "a megabyte of answers": "Answer: " * 120_000,
    "nested fractions": r"\frac{1}{" * 150 + "2" + "}" * 150,
    "nested roots": r"\sqrt{" * 250 + "2" + "}" * 250,
    "nested parentheses": "(" * 900 + "5" + ")" * 900,
    "long sum": "1+" * 900 + "1",
    "long list": ",".join(["x"] * 900),
    "many digits": "9" * 1_900,
    "deep exponent": "1e999999999",
    "exponent in TeX": r"1 \times 10^{999999999}",
    "division by zero": "1/0",
    "TeX division by zero": r"\frac{1}{0}",
    "NUL": "5\x00",
    "lone surrogate": "5\ud800",
    "other digits": "⁵",
    "right to left": "\u202e5",
    "python": "__import__('os').system('touch {marker}')",
    "python in TeX": r"\text{__import__('os').system('touch {marker}')}",
    "python lambda": "(lambda: exec('import os; os._exit(0)'))()",
    "sympify": 'sympify(\'__import__("os").system("touch {marker}")\')',
    "quotes": "'; import os; os._exit(1) #",
    "format": "{0.__class__.__mro__}",
    "backslashes": "\\" * 1_500,
    "unit soup": "5 " + "m s kg " * 250,
    "word soup": "a" * 1_900 + "=",
    "name soup": "ab " * 600 + "= 3",
    "carets": "^" * 1_500,
    "words soup": "maybe " * 330,
    "or soup": "5 or " * 390 + "6",
    "sentences": "5 is it. " * 220 + "6.",
    "number words": "twenty " * 280,
    "hyphens": "forty-" * 330 + "two",
    "remarks": "5 " + "(or " * 400 + "6" + ")" * 400,
    "unclosed remarks": "5 (so " * 300,
    "boxes in boxes": r"\boxed{" * 200 + "6" + "}" * 200,
    "text in text": r"\text{" * 250 + "6" + "}" * 250,
    "accents": r"\overline{" * 180 + "6" + "}" * 180,
    "primes": "f" + "'" * 1_800,
    "symbols": "+".join(f"x_{{{i}}}" for i in range(250)),
    "empty": "",
    "only dollars": "$$$$",
}


@pytest.fixture(scope="module")
def grader():
    with Grader(cpu_seconds=CPU) as grader:
        yield grader


@pytest.mark.parametrize(
    "gold",
    [
        "5",
        *(
            pytest.param(g, marks=pytest.mark.component)
            for g in (r"x^2+\sqrt{2}", r"1, 2, \sqrt{3}")
        ),
    ],
)
def test_hostile_answers_are_wrong_in_bounded_time_and_change_no_verdict_beside_them(
    grader, gold, tmp_path
):
    """Also where the worker that graded them had to be ended."""
    assert len(HOSTILE) >= 56
    marker = tmp_path / "executed"
    texts = {name: text.replace("{marker}", str(marker)) for name, text in HOSTILE.items()}
    asked = [(text, gold) for text in texts.values()] + [
        (texts["sum"], r"\sum_{n=1}^{5} \frac{1}{n}")
    ]
    normal = [(case.response, case.gold) for case in cases(sample_golds())[::12]]
    expected = grader.grade(normal)
    with Grader(cpu_seconds=CPU) as own:
        for number, (text, wanted) in enumerate(asked):
            beside = slice(number, None, len(asked))
            began = time.process_time(), time.monotonic()
            grade, *others = own.grade([(f"Thinking.\nAnswer: {text}", wanted), *normal[beside]])
            assert time.process_time() - began[0] < 2.0, (
                "extraction in this process has to be cheap"
            )
            assert time.monotonic() - began[1] < 60 * CPU, (
                "one that hangs is given up after 20 times that"
            )
            assert not grade.correct and grade.reason and others == expected[beside], text[:80]
            assert grade.extracted is None or grade.extracted.encode("utf-8") is not None
    assert not marker.exists()


def test_what_stopped_an_answer_is_said(grader):
    summed = (rf"Answer: {HOSTILE['sum']}", r"\sum_{n=1}^{5} \frac{1}{n}")
    items = [("Answer: 9^{9^{9^{9}}} + 1", "7"), summed, ("Answer: " + "{" * 5000, "7")]
    tower, total, box = grader.grade(items)
    compared = "answer line: cannot be compared: "
    assert tower.reason.startswith(f"{compared}a power too large to compute; read as 9^{{9")
    assert total.reason == "answer line: time limit (0.5 s)"
    assert box.reason == "answer line: longer than 2000 characters"


def test_memory_is_limited():
    """A worker may not grow beyond its limit: 2^(10^10) alone takes 1.3 GB."""
    gold = r"\sum_{n=1}^{5} \frac{1}{n}"  # in notation that needs the algebra system
    with Grader(cpu_seconds=60.0, memory_bytes=600 << 20) as grader:
        grade = grader.grade([("Answer: 2^{10^{10}} - 1", gold)])[0]
        assert grader.grade([(r"Answer: \sqrt{16} + k", "4 + k")])[0].correct
    assert not grade.correct
    assert grade.reason in {
        "answer line: memory limit",
        "answer line: not equivalent (math-verify)",
    }


def test_a_killed_worker_costs_one_answer_and_no_more(grader):
    """Killing workers from outside (as the kernel does when memory runs out) never stops or shifts
    the others."""
    items = [(rf"Answer: \sqrt{{{n * n}}} + k", f"{n} + k") for n in range(2, 30)]
    with Grader(workers=2) as own:
        assert all(g.correct for g in own.grade(items[:2]))
        own._pool._idle[0].process.kill()
        grades = own.grade(items)
    assert sum(not g.correct for g in grades) <= 1
    assert all("ended" in g.reason for g in grades if not g.correct)


def test_workers_end_with_their_parent():
    code = (
        "import os, signal\n"
        "from rpg.tasks.rewards import Grader\n"
        "g = Grader(cpu_seconds=2.0); g.grade([('Answer: x', r'\\sqrt{2}')])\n"
        "print(g._pool._idle[0].process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pid = int(out.stdout)
    until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    )


def test_nothing_is_evaluated(monkeypatch):
    """sympy's reader of Python text ends in eval: in the worker it makes number literals only."""
    import sympy
    from sympy.parsing import sympy_parser

    monkeypatch.setattr(sympy_parser, "eval_expr", sympy_parser.eval_expr)  # so that it is put back
    forbid_evaluation()
    assert sympy.Number("12") == 12
    assert sympy.Number("1.5") == sympy.Float("1.5")
    for text in (
        "__import__('os').getpid()",
        "x+1",
        "(1).__class__",
        "Integer(1)+Integer(2)",
        "exp(1)",
    ):
        with pytest.raises(
            (sympy.SympifyError, ValueError), match="evaluation of text is not allowed here"
        ):
            sympy.sympify(text)


LONG = [
    "a" * 2000,
    "ab " * 660,
    "m s " * 500,
    "1" * 2000,
    "1,111" * 400,
    "(" * 2000,
    "\\frac" * 400,
]
LONG += ["\n" * 990, "$" * 900, ". " * 990, "5 " + "m " * 990 + "!"]


def seconds(text):
    """Processor seconds for a text and for responses that repeat it."""
    began = time.process_time()
    quick("5", text)
    typesetting.normalise(text)
    answer_line(text * 400)
    last_box(text * 400)
    answer_line("Answer: 5\n" + text * 400)
    boxed_answer(r"\boxed{5} " + text * 400)
    return time.process_time() - began


@pytest.mark.parametrize("text", LONG)
def test_the_rules_of_this_process_are_linear_enough(text):
    """What runs outside of the killable workers may not explode on any text of the length it
    accepts: a quarter of it takes a fourth of the time or more, and a sixteenth where time is
    quadratic. Other processes may disturb one look."""
    assert any(seconds(text) < 6.5 * seconds(text[: len(text) // 4]) for _ in range(3))


def test_truncated_and_missing_answers(grader):
    cut = [Item(response, "12", True) for response in ("Answer: 12", "Answer: 12\n", "so 12")]
    grades = grader.grade([*cut, Item("so 12", "12")])
    assert [g.correct for g in grades] == [False, True, False, False]
    said = [
        "answer cut off",
        "answer line: same text",
        "cut off before an answer",
        "no answer line",
    ]
    assert [g.reason for g in grades] == said


def test_a_box_counts_only_where_asked_for():
    response = r"Therefore \boxed{\frac{1}{2}}."
    with Grader() as strict, Grader(MathVerifier(fallback="boxed")) as lenient:
        assert strict.grade([(response, "0.5")])[0].reason == "no answer line"
        grade = lenient.grade([(response, "0.5")])[0]
    assert grade.correct
    assert grade.extracted == r"\frac{1}{2}"
    assert grade.reason == "boxed: same number"


SECOND_READING = [
    (r"x \ne 3", r"\mathbb{R}\setminus\{3\}", True),
    ("1+2i", "1+i2", True),
    ("1+2i", "1+i3", False),
    (r"x \ne 3", r"\mathbb{R}\setminus\{4\}", False),
    *(
        ("5", hedge, None)
        for hedge in r"5 or 6; not 5; 5, 6; 5...; \boxed{5}6; 2\boxed{5}; 5_6; 5'; ~5; 5*".split(
            "; "
        )
    ),
    ("1/3", "0.333333", False),
    ("5", "9^{9^{9^{9}}}", None),
    ("5", "(" * 3000 + "5" + ")" * 3000, None),
]


def test_the_second_reader_is_as_strict_and_as_bounded_as_the_first():
    """What it cannot read, what is more than one formula, and what takes too long, stays unread."""
    with Grader(cpu_seconds=2.0) as grader:
        verdicts = grader.reread([(gold, answer) for gold, answer, _ in SECOND_READING])
    assert verdicts == [verdict for _, _, verdict in SECOND_READING]


def test_the_second_reader_accepts_no_hedge_of_an_exam():
    path = Path(__file__).parents[3] / "benchmarks/grading/data/exams.jsonl"
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    lines = [case for case in cases if case["exam"] == 9]
    with Grader() as grader:
        grades = grader.grade([(line["response"], line["gold"]) for line in lines])
        unread = [
            (line, grade.extracted)
            for line, grade in zip(lines, grades, strict=True)
            if unread_form(grade.correct, grade.reason) and line["label"] != "right"
        ]
        verdicts = grader.reread([(line["gold"], answer) for line, answer in unread])
    assert len(unread) > 100
    assert True not in verdicts
