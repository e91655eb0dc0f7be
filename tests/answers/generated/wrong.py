"""Wrong: another answer, close to the gold one."""

import re
from collections.abc import Iterator
from fractions import Fraction

from tests.answers.generated.case import last_line
from tests.answers.generated.golds import Gold


def _written(x: Fraction) -> str:
    return str(x.numerator) if x.denominator == 1 else f"{x.numerator}/{x.denominator}"


def near_numbers(g: Gold) -> Iterator[str]:
    if g.kind != "number":
        return
    x = g.value
    for y in (
        x + 1,
        x - 1,
        10 * x or 10,
        -x or 2,
        x * Fraction(1001, 1000) or 3,
        x / 2 or 5,
        x + Fraction(1, 100),
    ):
        yield last_line(_written(y))
        yield last_line(f"${_written(y)}$")
        yield last_line(rf"\boxed{{{_written(y)}}}")
        yield f"So.\n\nAnswer:\n\\[\n{_written(y)}\n\\]"
    yield last_line(f"${g.text} x$" if x else "$x$")
    yield last_line(f"${g.text} + x$")
    yield last_line(f"${g.text} n$ ways" if x else "$n$ ways")
    yield last_line(rf"${g.text}\sqrt{{2}}$" if x else r"$\sqrt{2}$")
    yield last_line(f"${g.text}i$" if x else "$i$")
    if x:
        yield last_line(rf"${g.text}\pi$")


def one_sign(g: Gold) -> Iterator[str]:
    """A digit or sign that differs inside."""
    t = g.plain
    spots = [m.start() for m in re.finditer(r"[1-9]", t)]
    for i in spots[:3] + spots[-1:]:
        changed = t[:i] + str(int(t[i]) % 9 + 1) + t[i + 1 :]
        if t[i - 1 : i] != "_" and t[i - 2 : i] != "_{":
            yield last_line(f"${changed}$")
            yield last_line(rf"$\boxed{{{changed}}}$")


def rounded(g: Gold) -> Iterator[str]:
    """Fewer digits than are a rounding (six), whatever the words around it say."""
    if g.fraction:
        for digits in (2, 3, 4):
            near = f"{float(g.value):.{digits}g}"
            if abs(Fraction(near) - g.value) > abs(g.value) / 10**5:
                yield last_line(near)
                yield last_line(rf"$\approx {near}$")
                yield last_line(f"about {near}")
                yield last_line(rf"$x \approx \boxed{{{near}}}$")
    if g.decimal and g.value:
        yield last_line(f"{float(g.value) * 1.0004:.9g}")
        yield last_line(rf"$\approx {float(g.value) * 1.013:.9g}$")
    if g.integer and g.value:
        yield last_line(f"{g.value}.0002")
        yield last_line(rf"$\approx {g.value}.3$")


def bases(g: Gold) -> Iterator[str]:
    if g.integer and g.value >= 10:
        t = g.text
        for base in (8, 16, 9, 12):
            if all(int(c) < base for c in t):
                yield last_line(f"${t}_{{{base}}}$")
                yield last_line(f"{t}_{base}")
                yield last_line(rf"$\boxed{{{t}_{{{base}}}}}$")
                yield last_line(f"{t} in base {base}")
                yield last_line(f"${t}$ (base {base})")
                yield last_line(
                    rf"${t}_{{\text{{{ {8: 'eight', 16: 'sixteen', 9: 'nine', 12: 'twelve'}[base] }}}}}$"
                )


def spaces(g: Gold) -> Iterator[str]:
    """Digits that a space, comma or point divides."""
    if g.integer and g.value >= 10:
        t = g.text
        yield last_line(f"{t[:1]} {t[1:]}" if len(t) != 4 else f"{t[:2]} {t[2:]}")
        yield last_line(f"{t[:1]}, {t[1:]}")
        yield last_line(f"${t[:-1]}, {t[-1]}$")
        yield last_line(f"{t[:-1]}.{t[-1]}")
        yield last_line(f"{t[:-1]},{t[-1]}")
        yield last_line(f"{t[:1]} and {t[1:]}")
        yield last_line(f"${t[:1]} + {t[1:]}$" if int(t[:1]) + int(t[1:]) != g.value else f"{t[:1]}/{t[1:]}")
        if len(t) > 3:
            yield last_line(f"{t[:-3]}, {t[-3:]}")
            yield last_line(f"${t[:-3]},\\ {t[-3:]}$")


def case(g: Gold) -> Iterator[str]:
    """Another letter, or the same one in another case."""
    t = g.right_side
    if g.kind not in ("expression", "function", "named"):
        return
    for match in re.finditer(r"(?<![A-Za-z\\{])([a-zA-Z])(?![A-Za-z(}])", t):
        c = match[1]
        if c in "eidIE":
            continue
        swapped = re.sub(rf"(?<![A-Za-z\\]){c}(?![A-Za-z])", c.swapcase(), t)
        other = re.sub(rf"(?<![A-Za-z\\]){c}(?![A-Za-z])", "w" if c != "w" else "v", t)
        if g.kind == "function":
            swapped, other = f"{g.plain.partition('=')[0]}={swapped}", f"{g.plain.partition('=')[0]}={other}"
        yield last_line(f"${swapped}$")
        yield last_line(rf"\boxed{{{swapped}}}")
        yield last_line(f"${other}$")


def near_expressions(g: Gold) -> Iterator[str]:
    if g.kind not in ("expression", "function", "named"):
        return
    head, r = (g.plain.partition("=")[0] + "=" if g.kind != "expression" else ""), g.right_side
    for form in (
        f"{r} + 1", f"{r} - 1", f"-({r}) - 3", rf"2 \cdot ({r}) + 3", f"{r} + q", f"({r})^2 + 7", "17/19",
        rf"\frac{{{r}}}{{3}}", f"5({r})" if r != "0" else "3",
    ):  # fmt: skip
        yield last_line(f"${head}{form}$")
        yield last_line(rf"$\boxed{{{head}{form}}}$")


def near_lists(g: Gold) -> Iterator[str]:
    if g.kind != "list":
        return
    e = g.elements
    yield last_line(", ".join(e[1:]))
    yield last_line("$" + ", ".join(e[:-1]) + "$")
    yield last_line(rf"$\{{{', '.join(e[:-1])}\}}$")
    yield last_line(", ".join([*e[:-1], "17/19"]))
    yield last_line(", ".join([*e[:-1], e[0]]) if e[0] != e[-1] else "1997")
    yield last_line(f"${e[0]}$")
    yield last_line(rf"\boxed{{{e[-1]}}}")
    if len(e) == 2 and not e[0].startswith("(") and "=" not in e[0]:
        yield last_line(f"$({e[0]}, {e[1]})$")
        yield last_line(f"$[{e[0]}, {e[1]}]$")
        yield last_line(rf"$\frac{{{e[0]}}}{{{e[1]}}}$")


def near_brackets(g: Gold) -> Iterator[str]:
    if g.kind not in ("tuple", "interval"):
        return
    e, t = g.elements, g.plain
    if e != e[::-1]:
        yield last_line(f"${t[0]}{', '.join(reversed(e))}{t[-1]}$")
    yield last_line(f"${t[0]}{', '.join([*e[:-1], '17/19'])}{t[-1]}$")
    yield last_line(f"${t[0]}{', '.join(['-1997', *e[1:]])}{t[-1]}$")
    yield last_line(f"${t[0]}{', '.join(e[:-1])}{t[-1]}$")
    yield last_line(f"${t[0]}{', '.join([*e, '4'])}{t[-1]}$")
    yield last_line(f"${e[-1]}$")
    yield last_line(rf"$\{{{', '.join(e)}\}}$")
    yield last_line(rf"$\{{{', '.join(reversed(e))}\}}$")
    other = {"(": "[", ")": "]", "[": "(", "]": ")"}
    if len(e) == 2:
        yield last_line(f"${other[t[0]]}{', '.join(e)}{t[-1]}$")
        yield last_line(f"${t[0]}{', '.join(e)}{other[t[-1]]}$")
    if g.kind == "interval":
        low, high = e
        if "infty" in low:
            yield last_line(f"$x > {high}$")
            yield last_line(rf"$x \le {high}$" if t[-1] == ")" else f"$x < {high}$")
            yield last_line(f"$x < {high} + 1$")
        else:
            yield last_line(
                f"${low} < x < {high}$" if t != f"({low}, {high})" and t[0] + t[-1] != "()" else "$x=0$"
            )
            yield last_line(f"$x < {high}$")
            yield last_line(rf"$x \ge {low}$")


def near_unions(g: Gold) -> Iterator[str]:
    if g.kind != "union":
        return
    parts = [p.strip() for p in g.plain.split(r"\cup")]
    yield last_line(f"${parts[0]}$")
    yield last_line(f"${parts[-1]}$")
    yield last_line(rf"${g.plain} \cup (100, 101)$")
    yield last_line(rf"${parts[0]} \cap {parts[1]}$")
    yield last_line(f"${parts[0]}$ and ${parts[0]}$")
    yield last_line(f"$x \\in {parts[0]}$")


def near_relations(g: Gold) -> Iterator[str]:
    if g.kind == "relation" and "=" in g.plain:
        left, right = g.plain.split("=", 1)
        yield last_line(f"${left} = {right} + 1$")
        yield last_line(f"${left} + q = {right}$")
        yield last_line(f"$2({left}) = {right}$" if right.strip() != "0" else f"${left} = 1$")
        yield last_line(f"${left}$")
        yield last_line(f"${right}$" if right.strip() != "0" else "$1$")
    elif g.kind == "relation":
        left, right = re.split(r"\\ge\w*", g.plain)
        yield last_line(rf"${left} > {right}$")
        yield last_line(rf"${left} \le {right}$")
        yield last_line(rf"${left} = {right}$")
        yield last_line(rf"${right}$")
        yield last_line(rf"${left} \ge {right} + 1$")


def nothing(g: Gold) -> Iterator[str]:
    yield "Answer:"
    yield f"I think it is ${g.text}$ but cannot show it."
    yield last_line("undefined")
    yield last_line("none")
    yield last_line("I do not know")
    yield last_line(r"$\boxed{}$")
    yield last_line(r"\boxed{?}")
    yield last_line("no solution")
    yield last_line("x") if g.text != "x" else last_line("y")
    yield last_line("see above")
    yield last_line("...")


WRONG = {
    "near numbers": near_numbers,
    "one digit": one_sign,
    "roundings": rounded,
    "bases": bases,
    "divided digits": spaces,
    "case and letters": case,
    "near expressions": near_expressions,
    "near lists": near_lists,
    "brackets, order, elements": near_brackets,
    "near unions": near_unions,
    "near relations": near_relations,
    "nothing": nothing,
}
