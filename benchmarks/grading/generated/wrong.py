"""Wrong: another answer, close to the gold one."""

import re
from collections.abc import Iterator
from fractions import Fraction

from benchmarks.grading.generated.case import last_line, last_lines
from benchmarks.grading.generated.golds import Gold


def _written(x: Fraction | int) -> str:
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
        yield from last_lines(_written(y), f"${_written(y)}$", rf"\boxed{{{_written(y)}}}")
        yield f"So.\n\nAnswer:\n\\[\n{_written(y)}\n\\]"
    yield from last_lines(f"${g.text} x$" if x else "$x$", f"${g.text} + x$")
    yield last_line(f"${g.text} n$ ways" if x else "$n$ ways")
    yield from last_lines(
        rf"${g.text}\sqrt{{2}}$" if x else r"$\sqrt{2}$", f"${g.text}i$" if x else "$i$"
    )
    if x:
        yield last_line(rf"${g.text}\pi$")


def one_sign(g: Gold) -> Iterator[str]:
    """A digit or sign that differs inside."""
    t = g.plain
    spots = [m.start() for m in re.finditer(r"[1-9]", t)]
    for i in spots[:3] + spots[-1:]:
        changed = t[:i] + str(int(t[i]) % 9 + 1) + t[i + 1 :]
        if t[i - 1 : i] != "_" and t[i - 2 : i] != "_{":
            yield from last_lines(f"${changed}$", rf"$\boxed{{{changed}}}$")


def rounded(g: Gold) -> Iterator[str]:
    """Fewer digits than are a rounding (six), whatever the words around it say."""
    if g.fraction:
        for digits in (2, 3, 4):
            near = f"{float(g.value):.{digits}g}"
            if abs(Fraction(near) - g.value) > abs(g.value) / 10**5:
                yield from last_lines(near, rf"$\approx {near}$", f"about {near}")
                yield last_line(rf"$x \approx \boxed{{{near}}}$")
    if g.decimal and g.value:
        yield from last_lines(
            f"{float(g.value) * 1.0004:.9g}", rf"$\approx {float(g.value) * 1.013:.9g}$"
        )
    if g.integer and g.value:
        yield from last_lines(f"{g.value}.0002", rf"$\approx {g.value}.3$")


def bases(g: Gold) -> Iterator[str]:
    if g.integer and g.value >= 10:
        t = g.text
        for base, spoken in {8: "eight", 16: "sixteen", 9: "nine", 12: "twelve"}.items():
            if all(int(c) < base for c in t):
                yield from last_lines(
                    f"${t}_{{{base}}}$", f"{t}_{base}", rf"$\boxed{{{t}_{{{base}}}}}$"
                )
                yield from last_lines(f"{t} in base {base}", f"${t}$ (base {base})")
                yield last_line(rf"${t}_{{\text{{{spoken}}}}}$")


def spaces(g: Gold) -> Iterator[str]:
    """Digits that a space, comma or point divides."""
    if not g.integer or g.value < 10:
        return
    t = g.text
    first, rest = t[:1], t[1:]
    all_but_last, last = t[:-1], t[-1]

    in_two = f"{first} {rest}" if len(t) != 4 else f"{t[:2]} {t[2:]}"
    yield from last_lines(in_two, f"{first}, {rest}")
    yield from last_lines(
        f"${all_but_last}, {last}$", f"{all_but_last}.{last}", f"{all_but_last},{last}"
    )
    yield last_line(f"{first} and {rest}")
    is_its_sum = int(first) + int(rest) == g.value
    yield last_line(f"{first}/{rest}" if is_its_sum else f"${first} + {rest}$")

    if len(t) > 3:
        thousands, hundreds = t[:-3], t[-3:]
        yield from last_lines(f"{thousands}, {hundreds}", f"${thousands},\\ {hundreds}$")


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
            swapped, other = (
                f"{g.plain.partition('=')[0]}={swapped}",
                f"{g.plain.partition('=')[0]}={other}",
            )
        yield from last_lines(f"${swapped}$", rf"\boxed{{{swapped}}}", f"${other}$")


def near_expressions(g: Gold) -> Iterator[str]:
    if g.kind not in ("expression", "function", "named"):
        return
    head, r = (g.plain.partition("=")[0] + "=" if g.kind != "expression" else ""), g.right_side
    for form in (
        f"{r} + 1",
        f"{r} - 1",
        f"-({r}) - 3",
        rf"2 \cdot ({r}) + 3",
        f"{r} + q",
        f"({r})^2 + 7",
        "17/19",
        rf"\frac{{{r}}}{{3}}",
        f"5({r})" if r != "0" else "3",
    ):
        yield from last_lines(f"${head}{form}$", rf"$\boxed{{{head}{form}}}$")


def near_lists(g: Gold) -> Iterator[str]:
    if g.kind != "list":
        return
    e = g.elements
    yield from last_lines(
        ", ".join(e[1:]), "$" + ", ".join(e[:-1]) + "$", rf"$\{{{', '.join(e[:-1])}\}}$"
    )
    yield last_line(", ".join([*e[:-1], "17/19"]))
    yield from last_lines(", ".join([*e[:-1], e[0]]) if e[0] != e[-1] else "1997", f"${e[0]}$")
    yield last_line(rf"\boxed{{{e[-1]}}}")
    if len(e) == 2 and not e[0].startswith("(") and "=" not in e[0]:
        yield from last_lines(
            f"$({e[0]}, {e[1]})$", f"$[{e[0]}, {e[1]}]$", rf"$\frac{{{e[0]}}}{{{e[1]}}}$"
        )


def near_brackets(g: Gold) -> Iterator[str]:
    if g.kind not in ("tuple", "interval"):
        return
    e, t = g.elements, g.plain
    if e != e[::-1]:
        yield last_line(f"${t[0]}{', '.join(reversed(e))}{t[-1]}$")
    yield last_line(f"${t[0]}{', '.join([*e[:-1], '17/19'])}{t[-1]}$")
    yield last_line(f"${t[0]}{', '.join(['-1997', *e[1:]])}{t[-1]}$")
    yield from last_lines(
        f"${t[0]}{', '.join(e[:-1])}{t[-1]}$", f"${t[0]}{', '.join([*e, '4'])}{t[-1]}$"
    )
    yield from last_lines(
        f"${e[-1]}$", rf"$\{{{', '.join(e)}\}}$", rf"$\{{{', '.join(reversed(e))}\}}$"
    )
    other = {"(": "[", ")": "]", "[": "(", "]": ")"}
    if len(e) == 2:
        yield last_line(f"${other[t[0]]}{', '.join(e)}{t[-1]}$")
        yield last_line(f"${t[0]}{', '.join(e)}{other[t[-1]]}$")
    if g.kind == "interval":
        low, high = e
        if "infty" in low:
            yield from last_lines(
                f"$x > {high}$", rf"$x \le {high}$" if t[-1] == ")" else f"$x < {high}$"
            )
            yield last_line(f"$x < {high} + 1$")
        else:
            yield last_line(
                f"${low} < x < {high}$"
                if t != f"({low}, {high})" and t[0] + t[-1] != "()"
                else "$x=0$"
            )
            yield from last_lines(f"$x < {high}$", rf"$x \ge {low}$")


def near_unions(g: Gold) -> Iterator[str]:
    if g.kind != "union":
        return
    parts = [p.strip() for p in g.plain.split(r"\cup")]
    yield from last_lines(f"${parts[0]}$", f"${parts[-1]}$", rf"${g.plain} \cup (100, 101)$")
    yield from last_lines(rf"${parts[0]} \cap {parts[1]}$", f"${parts[0]}$ and ${parts[0]}$")
    yield last_line(f"$x \\in {parts[0]}$")


def near_relations(g: Gold) -> Iterator[str]:
    if g.kind == "relation" and "=" in g.plain:
        left, right = g.plain.split("=", 1)
        yield from last_lines(f"${left} = {right} + 1$", f"${left} + q = {right}$")
        yield last_line(f"$2({left}) = {right}$" if right.strip() != "0" else f"${left} = 1$")
        yield from last_lines(f"${left}$", f"${right}$" if right.strip() != "0" else "$1$")
    elif g.kind == "relation":
        left, right = re.split(r"\\ge\w*", g.plain)
        yield from last_lines(
            rf"${left} > {right}$", rf"${left} \le {right}$", rf"${left} = {right}$"
        )
        yield from last_lines(rf"${right}$", rf"${left} \ge {right} + 1$")


def nothing(g: Gold) -> Iterator[str]:
    yield "Answer:"
    yield f"I think it is ${g.text}$ but cannot show it."
    yield from last_lines(
        "undefined", "none", "I do not know", r"$\boxed{}$", r"\boxed{?}", "no solution"
    )
    yield last_line("x") if g.text != "x" else last_line("y")
    yield from last_lines("see above", "...")


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
