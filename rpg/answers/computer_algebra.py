"""Gold answers in notation that the grammar does not know (sums, integrals, limits): compared by a
computer algebra system, through the library math-verify. It is loaded when such an answer comes,
which takes a second.
"""

import re
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any


def verdict(gold: str, answer: str, digits: int = 6) -> bool | None:
    """Whether two formulas, normalised (rpg.answers.extraction), are the same to math-verify,
    decimals to this many digits; None where it cannot read one of them.

    May run long on hostile input: call it where it can be killed. None, too, where the library is
    not installed.
    """
    try:
        verify = _library()
    except ImportError:
        return None
    expected = _parsed(gold)
    stated = _parsed(answer)
    if expected is None or stated is None:
        return None
    # Without the library's time limits: they rest on signals, which Python handles only between its
    # own instructions.
    return bool(verify(expected, stated, float_rounding=digits, timeout_seconds=None))


@lru_cache(maxsize=1)
def _library() -> Callable[..., bool]:
    """math-verify's comparison, loaded without counting towards the time of an answer."""
    left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
    try:
        forbid_evaluation()
        from math_verify import parse, verify

        verify(
            parse("$x^2-1$", parsing_timeout=None),
            parse("$(x-1)(x+1)$", parsing_timeout=None),
            timeout_seconds=None,
        )
        compare: Callable[..., bool] = verify
        return compare
    finally:
        signal.setitimer(signal.ITIMER_PROF, left)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    r"""The sympy object that math-verify makes of a formula, read as LaTeX only; None where it
    cannot.

    Its second reader, for expressions such as `2*3`, hands text to `sympy.parse_expr`, which
    evaluates Python code; it is left out, so nothing that a model wrote is ever evaluated. Its
    removal of units is off: it takes the m of `6m` for metres.
    """
    from math_verify import LatexExtractionConfig, parse

    default = LatexExtractionConfig()
    reader = replace(
        default, normalization_config=replace(default.normalization_config, units=False)
    )
    for pattern, replacement in _PLAIN:
        text = pattern.sub(replacement, text)
    parsed = parse(
        f"${text}$", extraction_config=[reader], fallback_mode="no_fallback", parsing_timeout=None
    )
    return parsed[0] if parsed else None


_PLAIN = [
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"(?<![\\\w])sqrt\s*\(([^()]*)\)"), r"\\sqrt{\1}"),
    (
        re.compile(r"(?<![\\\w])(pi|alpha|beta|gamma|theta|omega|lambda|tau|sigma)(?![A-Za-z])"),
        r"\\\1 ",
    ),
    (re.compile(r"(?<![\\\w])(sin|cos|tan|log|ln|exp|arcsin|arccos|arctan)(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"\*"), r" \\cdot "),
    (re.compile(r"\^\(([^()]*)\)"), r"^{\1}"),
    (re.compile(r"\^(-?\d{2,})"), r"^{\1}"),
    # E with an index is an energy, not Euler's number with one, which the reader refuses; nor does
    # it know the sun.
    (re.compile(r"(?<![\\A-Za-z])E(?=\s*_)"), r"\\Xi "),
    (re.compile(r"_\s*\{?\s*\\odot\s*\}?"), "_{sun}"),
]
"""Plain notation that people write within answers (`2*sqrt(3)`, `x**2`) as LaTeX."""


_NUMBER = r"(?:Integer|Float) \( *'?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)'? *\)"
_LITERAL = re.compile(rf"({_NUMBER})(?: */ *({_NUMBER}))? *")


def forbid_evaluation() -> None:
    """Replace the `eval` at the bottom of sympy's reader of Python expressions in this process.

    The LaTeX reader of latex2sympy2-extended builds its numbers through it (`sympy.Number(text)`),
    so literals of numbers are made here without evaluation; anything else raises. sympy's own
    modules name constants through it while they are imported, so those are imported first.
    """
    import sympy.physics.units  # noqa: PLC0415 - takes half a second, and comes with math-verify, which is optional
    from sympy.parsing import sympy_parser  # noqa: PLC0415 - as above

    def number(text: str) -> Any:
        value = text.partition("(")[2].strip(" ')")
        return sympy.Integer(int(value)) if text.startswith("Integer") else sympy.Float(value)

    def literal(code: str, _local: object, _global: object) -> Any:
        match = _LITERAL.fullmatch(code.strip())
        if not match:
            raise ValueError("evaluation of text is not allowed here")
        return number(match[1]) / (number(match[2]) if match[2] else 1)

    sympy_parser.eval_expr = literal
