"""Wrong: answers that name the gold answer and something else, or spoil it with what stands around
it."""

from collections.abc import Iterator

from benchmarks.grading.generated.case import last_line, last_lines
from benchmarks.grading.generated.golds import Gold


def others(g: Gold, count: int = 3) -> list[str]:
    """Different answers of the same kind."""
    if g.integer:
        n = int(g.value)
        return [str(n + d) for d in (1, -2, 7)][:count]
    if g.decimal:
        return [f"{g.value.numerator / g.value.denominator * f + 0.5:.4g}" for f in (3, 7, -2)][
            :count
        ]
    if g.fraction:
        n, d = g.value.numerator, g.value.denominator
        return [rf"\frac{{{n + d}}}{{{d}}}", rf"\frac{{{n}}}{{{d + 1}}}", str(abs(n) + 3)][:count]
    if g.kind in ("expression", "function", "named"):
        return [rf"{g.text} + 1", rf"{g.text} - 2", rf"{g.text} + 7"][:count]
    if g.kind in ("tuple", "list", "interval", "union"):
        return ["17/19", "0.123", "-1997"][:count]
    return ["17", "-3", "1997"][:count]


def usable(g: Gold) -> bool:
    return g.kind not in ("words", "relation")


def alternatives(g: Gold) -> Iterator[str]:
    if not usable(g):
        return
    t = g.text
    for w in others(g):
        yield from last_lines(
            f"${t}$ or ${w}$", f"${w}$ or ${t}$", f"{w} or {t}", f"either ${t}$ or ${w}$"
        )
        yield from last_lines(rf"${t} \text{{ or }} {w}$", rf"${w} \lor {t}$")
        yield from last_lines(
            rf"$\boxed{{{t} \text{{ or }} {w}}}$", rf"$\boxed{{{w}\ \text{{or}}\ {t}}}$"
        )
        yield from last_lines(f"The answer is ${w}$ or ${t}$.", f"${t}$ (or ${w}$)")
        yield from last_lines(
            f"${t}$, or possibly ${w}$", f"${t}$ / ${w}$", f"${t}$, alternatively ${w}$"
        )
        yield from last_lines(
            f"${t}$ if the order matters, ${w}$ otherwise", f"${t}$ or else ${w}$."
        )
        yield f"Hm.\n\nAnswer:\n\\[\n{t} \\quad \\text{{or}} \\quad {w}\n\\]"
        yield f"Hm.\n\nAnswer:\n$$\n\\boxed{{{w}}} \\text{{ or }} \\boxed{{{t}}}\n$$"


def named_alternatives(g: Gold) -> Iterator[str]:
    if not g.single:
        return
    t, (v, w, u) = g.text, others(g)
    yield from last_lines(f"$x = {w}$ or $x = {t}$", f"x = {w} or x = {t}", f"x = {t} or x = {w}")
    yield from last_lines(rf"$x = {w} \text{{ or }} x = {t}$", rf"$x = {w} \lor x = {t}$")
    yield from last_lines(f"$x = {v}, x = {w}, x = {u}, x = {t}$", f"x = {v}, x = {w}, x = {t}")
    yield from last_lines(f"$m = {w}, n = {t}$", f"m = {t}, n = {w}", f"$a = {w}$, $b = {t}$")
    yield from last_lines(f"$x = {w}$ and $y = {t}$", f"$x_1 = {w}$, $x_2 = {t}$")
    yield from last_lines(
        rf"$\boxed{{x = {w}, x = {t}}}$", rf"$x = \boxed{{{w}}}$ or $x = \boxed{{{t}}}$"
    )
    yield from last_lines(f"$x = {w}$; $x = {t}$", f"x = {w} / x = {t}", f"$x = {t}, {w}$")
    yield from last_lines(f"$(x, y) = ({w}, {t})$", f"The values are $x={w}$ and $x={t}$.")


def lists_for_one(g: Gold) -> Iterator[str]:
    if not g.single:
        return
    t, (v, w, u) = g.text, others(g)
    yield from last_lines(f"{w}, {t}", f"${t}, {w}$", f"${v}, {w}, {u}, {t}$", f"${t}$, ${w}$")
    yield from last_lines(
        f"${t}$ and ${w}$", f"{w} and {t}", rf"$\{{{w}, {t}\}}$", rf"$\boxed{{{w}, {t}}}$"
    )
    yield from last_lines(
        f"$({w}, {t})$", f"$[{w}, {t}]$", f"{w}; {t}", f"${w}$ ${t}$", f"{t}, {w}, ..."
    )
    yield from last_lines(rf"$x \in \{{{w}, {t}\}}$", f"{t} & {w}", f"{t} | {w}")
    yield last_line(rf"$\begin{{cases}} {t} \\ {w} \end{{cases}}$")
    yield f"Hm.\n\nAnswer: {t}\nor {w}"
    yield f"Hm.\n\nAnswer:\n- {t}\n- {w}"
    yield f"Hm.\n\nAnswer:\n1. ${w}$\n2. ${t}$"


def extra_elements(g: Gold) -> Iterator[str]:
    if g.kind != "list":
        return
    e = g.elements
    for w in others(g):
        yield from last_lines(", ".join([*e, w]), "$" + ", ".join([w, *e]) + "$")
        yield from last_lines(
            "$" + ", ".join(e) + f"$ or ${w}$", "$" + ", ".join(e) + f"$ (and maybe ${w}$)"
        )
        yield last_line(rf"$\{{{', '.join([*e, w])}\}}$")
        if not any("=" in x or "(" in x for x in e):
            yield last_line(" or ".join(f"$x = {x}$" for x in [*e, w]))
            yield last_line(rf"$x \in \{{{', '.join([w, *e])}\}}$")


def several_boxes(g: Gold) -> Iterator[str]:
    if not usable(g):
        return
    t = g.text
    for w in others(g):
        yield from last_lines(
            rf"$\boxed{{{w}}}$ or $\boxed{{{t}}}$", rf"\boxed{{{w}}} \boxed{{{t}}}"
        )
        yield from last_lines(
            rf"$\boxed{{{t}}}$, $\boxed{{{w}}}$", rf"\boxed{{{t}}} and \boxed{{{w}}}"
        )
        yield last_line(rf"\boxed{{{t}}}. Alternatively, \boxed{{{w}}}.")
        yield f"So.\n\nAnswer: \\boxed{{{t}}}\n\nOr \\boxed{{{w}}}."
        yield f"So.\n\nAnswer: ${t}$\n\nWait, I made a mistake. The answer is \\boxed{{{w}}}."
        yield f"So.\n\nAnswer: ${t}$\n\nAnswer: ${w}$"


def around_the_box(g: Gold) -> Iterator[str]:
    """One box, and something outside of it that changes what is said."""
    if not g.single or (g.value == 0):
        return
    b = rf"\boxed{{{g.text}}}"
    w = others(g)[0]
    forms = [
        f"${b}^2 + 1$",
        rf"$\frac{{{b}}}{{2}}$",
        f"$x < {b}$",
        rf"$x \ge {b}$",
        f"${w}$ or ${b}$",
        f"{w} or {b}",
        f"not ${b}$",
        f"{b} is wrong; the answer is {w}",
        f"1, 2, 3, 4, {b}",
        f"$1, 2, 3, 4, {b}$",
        f"${b} + 1$",
        f"$1 + {b}$",
        f"$1 - {b}$",
        f"${b} / 7$",
        f"$x \\ne {b}$",
        rf"$3 \cdot {b}$",
        rf"${b} \times 10^{{3}}$",
        f"{b} or {w}",
        f"{b}, {w}",
        f"${w}, {b}$",
        f"{b}, but it could also be {w}",
        f"${b} = {w}$",
        f"${w} = {b}$",
        f"{b} is incorrect",
        f"{b} is not the answer",
        rf"$\left({w}, {b}\right)$",
        f"${b} < x$",
        f"-${b}$",
        rf"$\frac{{1}}{{7 {b}}}$",
        f"at most {b}",
        f"at least ${b}$",
        f"more than ${b}$",
        f"${b}$ or more",
        f"twice {b}",
        f"the square of ${b}$",
        f"{b} + C",
        f"{b} thousand",
        f"{b} dozen",
        f"{b} {w}",
        rf"${b} \pm 1$",
        f"{w}, {b}",
        f"half of {b}",
        f"${b}x$",
        f"{b}? No, {w}.",
        f"the negative of {b}",
        f"$y = {b}x$",
    ]
    if g.kind == "number" and g.value != 1:
        forms += [f"${b}^2$", f"2{b}", f"$2{b}$", f"{b}0", f"1{b}", f"{b}.5", f"{b}/2", f"$x^{b}$"]
        forms += [f"-{b}", f"$-{b}$", rf"$\sqrt{{{b}}}$"]
    if g.integer and g.value > 2:
        forms += [f"{b}!", f"${b}!$"]
    yield from map(last_line, forms)


def doubts(g: Gold) -> Iterator[str]:
    if not g.single:
        return
    t = g.text
    for w in others(g, 2):
        for words in (
            "{t} (maybe {w})",
            "{t}, maybe {w}",
            "not {t}",
            "not {t} but {w}",
            "{t} is wrong",
            "{t} is incorrect",
            "{t}. No, {w}.",
            "{t}... wait, {w}",
            "{t}, or rather {w}",
            "{t}, but actually {w}",
            "{t} is not right; {w}",
            "{t} unless n is odd, then {w}",
            "anything but {t}",
            "between {w} and {t}",
            "from {t} to {w}",
            "{t} to {w}",
            "{t} - no, {w}",
            "{t}, I mean {w}",
            "{t} could be wrong, {w} as well",
            "one of {t}, {w}",
            "all numbers except {t}",
            "neither {t} nor {w}",
            "it is not {t}",
            "The answer is not {t}.",
            "{t} is not the answer.",
            "{t} (or {w}?)",
            "possibly {t}, possibly {w}",
            "{t} [{w} if zero counts]",
            "{t} was my first guess, it is {w}",
            "not equal to {t}",
            "{t}? {w}?",
            "any number other than {t}",
            "{t} was what I expected. The answer is {w}.",
            "{t}, {w} if we count 0",
        ):
            yield from last_lines(words.format(t=f"${t}$", w=f"${w}$"), words.format(t=t, w=w))


def bounds(g: Gold) -> Iterator[str]:
    if not g.single:
        return
    t = g.text
    for words in (
        "$x < {}$",
        "$x > {}$",
        r"$x \le {}$",
        r"$x \geq {}$",
        r"$x \ne {}$",
        r"$\neq {}$",
        r"$\le {}$",
        "$> {}$",
        "at least ${}$",
        "at most ${}$",
        "less than ${}$",
        "more than ${}$",
        "greater than {}",
        "no more than ${}$",
        "${}$ or more",
        "${}$ or less",
        "up to ${}$",
        r"$\boxed{{x \le {}}}$",
        "${}$ at most",
        r"$x \not= {}$",
        "under ${}$",
        "over ${}$",
        "${}$ and above",
        "any number below {}",
        "x >= {}",
        "x != {}",
        "≥ {}",
        "<{}",
        "a multiple of ${}$",
        "a divisor of ${}$",
        r"$x \to {}$ is not allowed",
        "${}+$",
    ):
        yield last_line(words.format(t))
    yield from last_lines(rf"${t} \pm 1$", rf"$\pm {t}$" if g.value != 0 else rf"$\pm 1$, ${t}$")
    yield last_line(f"$({t}, \\infty)$")


def broken_chains(g: Gold) -> Iterator[str]:
    if not g.single:
        return
    t, (v, w, u) = g.text, others(g)
    for form in (
        f"{t} = {w}",
        f"{w} = {t}",
        f"{v} = {w} = {t}",
        f"x = {w} = {t}",
        f"x = {t} = {w}",
        f"{t} = {w} = {t}",
        rf"{t} \approx {w}" if not g.decimal else f"{t} = {w}",
        f"x = {v}, {w} = {t}",
        f"y = {t} = {u}",
        rf"x = {t} \ne {w} = {t}",
    ):
        yield from last_lines(f"${form}$", form, rf"$\boxed{{{form}}}$")
    if g.integer:
        n = int(g.value)
        yield last_line(
            rf"${n} \approx {n + 1} \approx {n + 2}$"
            if abs(n) < 100
            else f"${n} = {n + 1} = {n + 2}$"
        )
        yield last_line(f"$2 + 2 = {n if n != 4 else 5} = 4$" if n != 4 else "$4 = 5$")


def broken_equations(g: Gold) -> Iterator[str]:
    if g.kind in ("function", "named"):
        r = g.right_side
        yield from last_lines(f"${g.text} + 1 = {r}$", f"${g.text} = {r} + 3$", f"${g.text} = 17$")
        name = g.plain.partition("=")[0].strip()
        yield from last_lines(f"${g.text}$, ${name} = {r} + 2$", f"${g.text}$ or ${name} = 1997$")
        yield last_line(f"${name} = {r} + 5, {name} = {r}$")


HEDGES = {
    "alternatives": alternatives,
    "named alternatives": named_alternatives,
    "lists for one value": lists_for_one,
    "an element too many": extra_elements,
    "several boxes or answers": several_boxes,
    "around the box": around_the_box,
    "doubt and denial": doubts,
    "bounds": bounds,
    "chains that break": broken_chains,
    "equations that break": broken_equations,
}
