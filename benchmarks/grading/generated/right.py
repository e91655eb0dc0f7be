"""Right answers written otherwise: named, with units, approximated, rewritten, as inequality, in
words ..."""

import re
from collections.abc import Iterator
from fractions import Fraction

from benchmarks.grading.generated.case import last_line, last_lines
from benchmarks.grading.generated.golds import Gold, parts

VARIABLES = ("x", "n", "a", "N", "k", "S", r"\theta", "a_{10}", "x_1")
QUANTITIES = (
    "m+n",
    "AB",
    "f(2)",
    "|S|",
    "P(A)",
    "a+b+c",
    r"\angle ABC",
    "2x+1",
    "x^2+y^2",
    r"\sin\alpha",
    "[ABC]",
)


def named(g: Gold) -> Iterator[str]:
    if g.kind in ("number", "expression", "list", "percent") and "=" not in g.text:
        for name in VARIABLES:
            if g.kind == "expression" and name in g.text:
                continue
            yield from last_lines(f"${name} = {g.text}$", f"{name} = {g.text}")
            yield from last_lines(
                rf"$\boxed{{{name} = {g.text}}}$", rf"${name} = \boxed{{{g.text}}}$"
            )
    if g.kind == "number":
        for name in QUANTITIES:
            yield from last_lines(f"${name} = {g.text}$", f"The value of ${name}$ is ${g.text}$.")
            yield last_line(f"${g.text} = {name}$")
    if g.kind in ("number", "expression"):
        yield from last_lines(f"The maximum value of $f$ is ${g.text}$.", f"the area is ${g.text}$")
        yield last_line(f"the number of such $k$ equals ${g.text}$")
    if g.kind == "function":
        yield from last_lines(f"${g.right_side}$", f"The only such function is ${g.text}$.")
        yield last_line(f"${g.text}$ for all $x$")
    if g.kind == "named":
        yield from last_lines(f"${g.right_side}$", f"The minimum is ${g.text}$.")
        yield last_line(f"${g.plain.partition('=')[0]}={g.right_side}$")


def named_collections(g: Gold) -> Iterator[str]:
    t = g.plain
    if g.kind in ("interval", "union"):
        for name in ("x", "a", "t", "k"):
            yield from last_lines(rf"$x \in {t}$".replace("x", name, 1), rf"${name}\in{t}$")
            yield from last_lines(rf"$\boxed{{{name} \in {t}}}$", f"{name} ∈ {t}")
        yield from last_lines(f"$S = {t}$", f"the set of solutions is ${t}$.")
    if g.kind == "list" and not any("(" in e or "=" in e for e in g.elements):
        inside = ", ".join(g.elements)
        yield from last_lines(
            rf"$S = \{{{inside}\}}$", rf"$x \in \{{{inside}\}}$", rf"$\{{{inside}\}}$"
        )
        yield from last_lines(rf"$\boxed{{\{{{inside}\}}}}$", rf"$\left\{{{inside}\right\}}$")
        yield last_line(f"The solutions are ${inside}$.")
        yield from last_lines(
            rf"The possible values of $k$ are $\boxed{{{inside}}}$.", f"n = {inside}"
        )
    if g.kind == "tuple" and len(g.elements) in (2, 3):
        for names in ("(x, y, z)", "(a,b,c)", "(m, n, p)"):
            some = ",".join(parts(names[1:-1])[: len(g.elements)])
            yield from last_lines(f"$({some}) = {t}$", rf"$\boxed{{({some}) = {t}}}$")
        yield from last_lines(f"$P = {t}$", f"The coordinates are ${t}$.")
        yield last_line(
            ", ".join(f"${v} = {e}$" for v, e in zip(("x", "y", "z"), g.elements, strict=False))
        )


def lists(g: Gold) -> Iterator[str]:
    if g.kind != "list":
        return
    e = g.elements
    *others, last = e
    before_last = ", ".join(others)
    each_in_dollars = [f"${x}$" for x in e]

    yield from last_lines(", ".join(reversed(e)), f"${before_last}$ and ${last}$")
    yield last_line(", ".join(each_in_dollars[:-1]) + f", and ${last}$")
    yield last_line(f"{before_last} and {last}")
    yield last_line(rf"${before_last} \text{{ and }} {last}$")
    yield last_line(rf"${before_last}, \text{{ or }} {last}$")
    boxes = ", ".join(rf"$\boxed{{{x}}}$" for x in e)
    yield from last_lines("; ".join(each_in_dollars), boxes)

    if not any("=" in x or "(" in x for x in e):
        equations = [f"x = {x}" for x in e]
        yield last_line(" or ".join(f"${equation}$" for equation in equations))
        tight = [f"x={x}" for x in e]
        yield last_line("$" + r" \lor ".join(tight) + "$")
        yield last_line("$" + r" \text{ or } ".join(tight) + "$")
        yield last_line(", ".join(f"$x_{i} = {x}$" for i, x in enumerate(e, 1)))
        yield from last_lines("$" + ", ".join(equations) + "$", " or ".join(equations))
        yield last_line("$x = " + "$ or $x = ".join(e) + "$")
    yield f"Done.\n\nAnswer:\n\\[\n{', '.join(e)}\n\\]"


def intervals(g: Gold) -> Iterator[str]:
    if g.kind != "interval":
        return
    low, high = g.elements
    left = "<" if g.plain[0] == "(" else r"\le"
    right = "<" if g.plain[-1] == ")" else r"\le"
    back = {"<": ">", r"\le": r"\ge"}
    for name in ("x", "a", "t"):
        if "infty" in low:
            yield from last_lines(
                f"${name} {right} {high}$", f"{name} {right} {high}".replace(r"\le", "<=")
            )
            yield from last_lines(
                f"${high} {back[right]} {name}$", rf"$\boxed{{{name} {right} {high}}}$"
            )
        else:
            yield last_line(f"${low} {left} {name} {right} {high}$")
            yield last_line(f"{low} {left} {name} {right} {high}".replace(r"\le", "≤"))
            yield last_line(f"${high} {back[right]} {name} {back[left]} {low}$")
            yield last_line(f"${name} {back[left]} {low}$ and ${name} {right} {high}$")
            yield last_line(rf"$\boxed{{{low} {left} {name} {right} {high}}}$")


UNITS = (
    *(
        "cm",
        "km",
        "m/s",
        "kg",
        "nm",
        "GHz",
        "kJ/mol",
        "MPa",
        "m/s^2",
        "J/K",
        "eV",
        "mV",
        "kHz",
        "N m",
    ),
    *(
        "cm^2",
        "cm^{-1}",
        "mol/L",
        "pF",
        "mA",
        "W/m^2",
        "erg/s",
        "Torr",
        "ns",
        "kPa",
        "mT",
        "rad/s",
        "dB",
    ),
)
TEX_UNITS = (
    *(
        r"\mu m",
        r"\Omega",
        r"\AA",
        r"\mathrm{~nm}",
        r"\text{ GHz}",
        r"\mathrm{kJ/mol}",
        r"\text{ m/s}^2",
    ),
    *(
        r"\,\mathrm{cm}^{3}",
        r"\ \text{meters}",
        r"\mathrm{~kg} \cdot \mathrm{m} / \mathrm{s}",
        r"\mathrm{\mu m}",
    ),
    *(
        r"\;\mathrm{\AA}",
        r"\text{ square units}",
        r"\operatorname{cm}",
        r"\mathring{A}",
        r"\,\text{Hz}",
    ),
    *(
        r"\text{ J}\cdot\text{s}",
        r"\mathrm{K}",
        r"\mathrm{~M}_{\odot}",
        r"\mathrm{~W}\, \mathrm{m}^{-2}",
    ),
)


def units(g: Gold) -> Iterator[str]:
    if g.kind != "number" or g.text != g.plain:
        return
    for unit in UNITS:
        yield from last_lines(f"{g.text} {unit}", rf"${g.text}\text{{ {unit}}}$")
        yield last_line(rf"$\boxed{{{g.text}\ \mathrm{{{unit}}}}}$")
    for unit in TEX_UNITS:
        yield from last_lines(f"${g.text} {unit}$", rf"$\boxed{{{g.text} {unit}}}$")
    for (
        unit
    ) in "square units,units,centimeters,seconds,meters per second,light years,radians".split(","):
        yield from last_lines(f"${g.text}$ {unit}", f"{g.text} {unit}.")
    yield from last_lines(f"{g.text} μm", f"{g.text} Å", f"{g.text} Ω")


COUNTED = (
    "ways",
    "solutions",
    "students",
    "pairs",
    "ordered pairs",
    "integers",
    "triangles",
    "possible values",
    "points",
    "different colorings",
    "such numbers",
    "distinct arrangements",
    "people",
    "apples",
    "moves",
    "subsets",
    "games",
)


def counted(g: Gold) -> Iterator[str]:
    if not g.integer or g.value < 0:
        return
    for noun in COUNTED:
        yield from last_lines(
            f"{g.text} {noun}", f"${g.text}$ {noun}.", rf"$\boxed{{{g.text}}}$ {noun}"
        )
        yield from last_lines(
            rf"${g.text} \text{{ {noun}}}$", rf"$\boxed{{{g.text}\text{{ {noun}}}}}$"
        )
        yield last_line(f"There are ${g.text}$ {noun}.")


def degrees(g: Gold) -> Iterator[str]:
    if g.kind == "number" and g.text != g.plain:
        bare = g.plain
        yield from last_lines(f"${bare}$", f"{bare} degrees", f"{bare}°", rf"${bare}^{{\circ}}$")
        yield last_line(rf"$\boxed{{{bare}^\circ}}$")
        yield last_line(rf"$\angle A = {bare}^\circ$")


def approximations(g: Gold) -> Iterator[str]:
    t = g.text
    if g.kind == "number" and g.decimal and not g.integer and "circ" not in t:
        t = _scientific(g) or t
        yield from last_lines(rf"$\approx {t}$", f"about ${t}$", f"≈ {t}", f"approximately {t}")
        yield from last_lines(rf"$x \approx {t}$", f"roughly ${t}$", f"~{t}")
        yield from last_lines(rf"$\boxed{{\approx {t}}}$", rf"$v \approx \boxed{{{t}}}$ m/s")
        yield from last_lines(rf"$E \simeq {t}$", f"approximately ${t}$ meters")
    if g.fraction:
        near = f"{float(g.value):.4g}"
        if Fraction(near) != g.value:
            yield from last_lines(rf"${t} \approx {near}$", rf"${t}$ (approximately {near})")
            yield from last_lines(rf"$\boxed{{{t}}} \approx {near}$", rf"$x = {t} \approx {near}$")
            yield last_line(f"{g.value.numerator}/{g.value.denominator} ≈ {near}")


def _scientific(g: Gold) -> str | None:
    match = re.fullmatch(r"(-?[\d.]+)e(-?\d+)", g.plain)
    return rf"{match[1]} \times 10^{{{match[2]}}}" if match else None


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def scientific(g: Gold) -> Iterator[str]:
    match = re.fullmatch(r"(-?[\d.]+)e(-?\d+)", g.plain)
    if not match:
        return
    mantissa, exponent = match[1], str(int(match[2]))
    yield from last_lines(
        f"{mantissa} × 10{exponent.translate(SUPERSCRIPTS)}", f"{mantissa}×10^{exponent}"
    )
    yield from last_lines(f"{mantissa} x 10^{exponent}", f"{mantissa} * 10^{exponent}")
    yield from last_lines(f"{mantissa} * 10**{exponent}", rf"${mantissa} \cdot 10^{{{exponent}}}$")
    yield from last_lines(
        f"{mantissa}E{exponent}", rf"$\boxed{{{mantissa} \times 10^{{{exponent}}}}}$"
    )
    yield last_line(rf"${mantissa} \times 10^{{{exponent}}} \text{{ m}}$")
    yield last_line(f"{mantissa} × 10^({exponent})")
    yield last_line(f"{mantissa}⋅10{exponent.translate(SUPERSCRIPTS)} J")
    shifted = Fraction(mantissa) * 10
    yield last_line(rf"${float(shifted):.12g} \times 10^{{{int(exponent) - 1}}}$")


def mixed(g: Gold) -> Iterator[str]:
    if not g.fraction or g.value.denominator > 5000:
        return
    whole, rest = divmod(abs(g.value), 1)
    sign = "-" if g.value < 0 else ""
    if whole:
        a, b = rest.numerator, rest.denominator
        yield from last_lines(f"{sign}{whole} {a}/{b}", rf"${sign}{whole}\frac{{{a}}}{{{b}}}$")
        yield last_line(rf"${sign}{whole} \dfrac{{{a}}}{{{b}}}$")
        yield last_line(rf"$\boxed{{{sign}{whole}\tfrac{{{a}}}{{{b}}}}}$")
    n, d = abs(g.value.numerator), g.value.denominator
    yield from last_lines(
        f"{sign}{n}/{d}", rf"${sign}\frac{{{n}}}{{{d}}}$", rf"$\frac{{{sign}{n}}}{{{d}}}$"
    )
    yield from last_lines(rf"${sign}{n}/{d}$", rf"$\frac{{{sign}{3 * n}}}{{{3 * d}}}$")
    yield last_line(rf"${{{sign}{n} \over {d}}}$")
    digits = _repeating(abs(g.value))
    if digits and len(digits[1]) <= 8 and digits[1] != "0":
        head, loop = digits
        yield last_line(rf"${sign}{head}\overline{{{loop}}}$")
        yield last_line(
            rf"${sign}{head}\dot{{{loop}}}$" if len(loop) == 1 else rf"${sign}{head}\bar{{{loop}}}$"
        )
    elif digits and digits[1] == "0":
        yield last_line(f"{sign}{digits[0]}")


def _repeating(value: Fraction) -> tuple[str, str] | None:
    """Decimals before the loop, and the loop; None where it is long."""
    whole, rest = divmod(value.numerator, value.denominator)
    seen, digits = {}, ""
    while rest not in seen:
        if len(digits) > 12:
            return None
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, value.denominator)
        digits += str(digit)
    start = seen[rest]
    if digits[start:] == "0":
        return f"{whole}.{digits[:start]}" if start else str(whole), "0"
    return f"{whole}.{digits[:start]}", digits[start:]


def decimals(g: Gold) -> Iterator[str]:
    if g.integer:
        n = int(g.value)
        yield from last_lines(f"{n}.0", f"{n}.00", f"${n}.$")
        if abs(n) >= 1000:
            for mark in (",", "{,}", r"\,", r"\;", " "):
                yield last_line("$" + f"{n:,}".replace(",", mark) + "$")
        yield from last_lines(
            f"{2 * n}/2", rf"$\frac{{{3 * n}}}{{3}}$", f"+{n}" if n > 0 else f"({n})"
        )
    elif g.decimal:
        yield last_line(
            f"{g.value.numerator}/{g.value.denominator}" if g.value.denominator < 10**6 else g.text
        )
        if "e" not in g.text:
            if "." in g.text:
                yield last_line(f"{g.text}0")
            yield last_line(g.text.replace("0.", ".", 1) if g.text.startswith("0.") else g.text)
    elif g.fraction:
        exact = _repeating(abs(g.value))
        if exact is None or exact[1] != "0":
            yield from last_lines(f"{float(g.value):.9g}", f"{float(g.value):.12g}...")


def remainders(g: Gold) -> Iterator[str]:
    if g.integer and g.benchmark in ("aime24", "aime25", "ours") and g.value >= 0:
        t = g.text
        if g.value < 1000:
            yield from last_lines(rf"${t} \pmod{{1000}}$", rf"${t} \bmod 1000$", f"{t} (mod 1000)")
            yield last_line(rf"$\equiv {t} \pmod{{1000}}$")
            yield from last_lines(
                rf"$N \equiv {t} \pmod{{1000}}$", rf"$\boxed{{{t}}} \pmod{{1000}}$"
            )
        yield from last_lines(rf"${t}_{{10}}$", f"{int(t):03d}", rf"$\boxed{{{int(t):03d}}}$")
        yield from last_lines(rf"$\textbf{{(C) }} {t}$", rf"$\boxed{{\textbf{{(B)}}\ {t}}}$")


ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def words_for(n: int) -> str:
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{ONES[n // 100]} hundred" + (f" {words_for(n % 100)}" if n % 100 else "")
    return f"{words_for(n // 1000)} thousand" + (f" {words_for(n % 1000)}" if n % 1000 else "")


def number_words(g: Gold) -> Iterator[str]:
    if g.integer and 0 <= g.value < 100_000:
        words = words_for(int(g.value))
        yield from last_lines(
            words, words.capitalize() + ".", rf"$\text{{{words}}}$", f"{words} ({g.text})"
        )
        yield last_line(f"${g.text}$ ({words})")


def chains(g: Gold) -> Iterator[str]:
    t = g.text
    if g.integer:
        n = int(g.value)
        yield from last_lines(f"${n - 7} + 7 = {n}$", f"$x = {n + 5} - 5 = {n}$")
        yield from last_lines(
            rf"$\frac{{{2 * n}}}{{2}} = {n}$", rf"$m + n = {n - 3} + 3 = \boxed{{{n}}}$"
        )
        yield from last_lines(rf"${n} = {n}.0$", f"${n - 4} + 4 = {n - 2} + 2 = {n}$")
    elif g.fraction:
        n, d = g.value.numerator, g.value.denominator
        yield last_line(rf"$\frac{{{2 * n}}}{{{2 * d}}} = {t}$")
        yield from last_lines(rf"$x = \frac{{{3 * n}}}{{{3 * d}}} = {t}$", rf"${t} = {n}/{d}$")
    elif g.kind == "expression":
        yield last_line(rf"${t} = \frac{{2({t})}}{{2}}$")
        yield last_line(rf"$S = 0 + {t} = {t}$" if not t.startswith("-") else rf"$S = {t} = {t}$")
    elif g.kind == "function":
        yield last_line(rf"${g.text} = {g.right_side}$")


def same_twice(g: Gold) -> Iterator[str]:
    if g.single:
        yield last_line(rf"${g.text}$, that is, $\boxed{{{g.text}}}$")
        yield last_line(rf"${g.text}$, so the answer is ${g.text}$.")
        yield last_line(rf"The answer is ${g.text}$. $\boxed{{{g.text}}}$")
    if g.fraction and 10**6 % g.value.denominator == 0:
        yield last_line(f"${g.text}$ or ${float(g.value):.10g}$")
        yield from last_lines(
            f"${g.text}$ (or {float(g.value):.10g})", f"${g.text}$ = {float(g.value):.10g}"
        )


def rewritten(g: Gold) -> Iterator[str]:
    t = g.right_side
    if g.kind not in ("expression", "function", "named"):
        return
    head = g.plain.partition("=")[0] + "= " if g.kind != "expression" else ""
    yield from last_lines(f"${head}({t})$", rf"${head}\left({t}\right)$")
    yield last_line(rf"${head}2 \cdot \frac{{{t}}}{{2}}$")
    if not t.startswith("-"):
        yield from last_lines(f"${head}0 + {t}$", rf"${head}7 + {t} - 7$")
    yield last_line(rf"${head}\frac{{{t}}}{{1}}$")
    tight = re.sub(r"\s+(?![a-zA-Z0-9])", "", t)
    yield last_line(f"${head}{tight}$")
    if t.replace(" ", "").isalnum() is False and re.fullmatch(r"[\w\s^{}+\-()/]+", t):
        yield last_line(head + t.replace("{", "(").replace("}", ")"))
    plain = re.sub(r"\\sqrt\{(\w+)\}", r"sqrt(\1)", t)
    plain = re.sub(r"\\frac\{([\w ]+)\}\{([\w ]+)\}", r"(\1)/(\2)", plain).replace(r"\pi", "pi")
    if plain != t and "\\" not in plain:
        yield from last_lines(head + plain, head + re.sub(r"(\d) ?([a-z(])", r"\1*\2", plain))
    terms = re.fullmatch(r"([^+\-(){}\\]+)\+([^+\-(){}\\]+)", t)
    if terms:
        yield last_line(f"${head}{terms[2]}+{terms[1]}$")


def equations(g: Gold) -> Iterator[str]:
    if g.kind == "relation" and g.text.count("=") == 1 and not re.search(r"\\g|\\l", g.text):
        left, right = g.plain.split("=")
        yield from last_lines(
            f"${right} = {left}$", f"${left} - ({right}) = 0$", f"$3({left}) = 3({right})$"
        )
    elif g.kind == "relation" and r"\geqslant" in g.plain:
        left, right = g.plain.split(r"\geqslant")
        yield from last_lines(
            rf"${left} \ge {right}$", rf"{left} ≥ {right}", rf"${right} \le {left}$"
        )
        yield last_line(rf"all integers ${left} \geq {right}$")


RIGHT = {
    "named": named,
    "named sets, tuples, intervals": named_collections,
    "lists": lists,
    "intervals as inequalities": intervals,
    "units": units,
    "counted words": counted,
    "degrees": degrees,
    "approximations": approximations,
    "scientific notation": scientific,
    "mixed numbers, fractions, repeating decimals": mixed,
    "decimals and thousands": decimals,
    "remainders, base ten, choices": remainders,
    "number words": number_words,
    "chains that hold": chains,
    "the same twice": same_twice,
    "rewritten": rewritten,
    "equations": equations,
}
