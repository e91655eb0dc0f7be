"""Right answers: the gold answer as it stands, in everything that models put around it."""

from collections.abc import Iterator

from benchmarks.grading.generated.case import last_line, last_lines
from benchmarks.grading.generated.golds import Gold


def inline(g: Gold) -> Iterator[str]:
    t = g.text
    yield from last_lines(g.answer, f"${t}$", f"${t}$.", rf"\({t}\)", rf"\[{t}\]", f"$${t}$$")
    yield from last_lines(rf"$\displaystyle {t}$", f" $ {t} $ ")


def bold(g: Gold) -> Iterator[str]:
    t = g.text
    yield f"So it is.\n\n**Answer:** ${t}$"
    yield f"So it is.\n\n**Answer: ${t}$**"
    yield f"So it is.\n\n**Answer**: **${t}$**"
    yield f"So it is.\n\n### Answer: ${t}$"
    yield f"So it is.\n\n**Final Answer:** ${t}$"
    yield from last_lines(rf"$\mathbf{{{t}}}$", rf"**\({t}\)**")


def boxed(g: Gold) -> Iterator[str]:
    t = g.text
    box = rf"\boxed{{{t}}}"
    yield from last_lines(
        box, f"${box}$", f"${box}$.", rf"\({box}\)", f"**${box}$**", rf"\[ {box} \]"
    )
    yield from last_lines(rf"\boxed{{${t}$}}", rf"$\fbox{{{t}}}$")


def next_lines(g: Gold) -> Iterator[str]:
    t = g.text
    for marker in ("Answer:", "**Answer:**", "Answer:\n", "### Answer:\n", "**Final Answer:**"):
        yield f"Done.\n\n{marker}\n\\[\n{t}\n\\]"
        yield f"Done.\n\n{marker}\n$$\n{t}\n$$"
        yield f"Done.\n\n{marker}\n$$\n\\boxed{{{t}}}\n$$"
        yield f"Done.\n\n{marker}\n\\[\n\\boxed{{{t}}}\n\\]\n"
        yield f"Done.\n\n{marker}\n\\[ \\boxed{{{t}}} \\]"
        yield f"Done.\n\n{marker}\n$$ {t} $$"
        yield f"Done.\n\n{marker}\n${t}$"
    yield f"Done.\n\nAnswer: \\[\n{t}\n\\]"
    yield f"Done.\n\nAnswer: $$\n{t}\n$$\nThis completes the proof."
    yield f"Done.\n\nAnswer: \\[\n\\boxed{{{t}}}\n\\]"


def sentences(g: Gold) -> Iterator[str]:
    t = g.text
    for words in (
        "The answer is {}.",
        "The final answer is {}",
        "Therefore, the answer is {}.",
        "Thus, we get {}.",
        "Hence the required answer is {}.",
        "It is {}.",
        "{}. This completes the solution.",
        "{} (as shown above).",
        "{}, as required.",
        "{}. I hope it is correct.",
        "{}, which is what we wanted to find.",
        "So the result is {}, as claimed.",
        "{}. $\\blacksquare$",
        "{} (by symmetry)",
        "The correct answer is: {}",
        "We conclude that the answer is {}.",
    ):
        yield from last_lines(words.format(f"${t}$"), words.format(rf"$\boxed{{{t}}}$"))
        yield last_line(words.format(rf"\boxed{{{t}}}"))


def lines_after(g: Gold) -> Iterator[str]:
    t = g.text
    yield f"Answer: ${t}$\n\nThis completes the solution."
    yield f"Answer: ${t}$\n\nLet me know if you have questions about step 2."
    yield f"Answer: {t}\n"
    yield f"Answer: ${t}$\nThe answer is therefore \\boxed{{{t}}}."
    yield f"Answer: 17/19 was my first guess.\n\nWait, that is wrong.\n\nAnswer: ${t}$"
    yield f"First \\boxed{{17/19}} seemed right, but it is not.\n\nAnswer: \\boxed{{{t}}}"


def coloured(g: Gold) -> Iterator[str]:
    t = g.text
    yield from last_lines(rf"$\color{{red}}{{{t}}}$", rf"$\textcolor{{blue}}{{{t}}}$")
    yield from last_lines(
        rf"$\boxed{{\color{{red}}{{{t}}}}}$", rf"$\color{{blue}}{{\boxed{{{t}}}}}$"
    )
    yield from last_lines(rf"$\underline{{{t}}}$", rf"${{\color{{red}} {t}}}$", rf"$\bf {t}$")
    yield from last_lines(rf"$\large {t}$", rf"$\boldsymbol{{{t}}}$")


def spaced(g: Gold) -> Iterator[str]:
    t = g.plain
    yield from last_lines(f"$\\,{t}\\,$", f"$\\; {t} \\;$.", f"\\quad ${t}$", f"${{{t}}}$")
    yield from last_lines(f"$\\left.{t}\\right.$", f"` {t} `", f'"${t}$"')


def sized(g: Gold) -> Iterator[str]:
    t = g.text
    if "(" in t:
        yield last_line("$" + t.replace("(", r"\left(").replace(")", r"\right)") + "$")
        yield last_line("$" + t.replace("(", r"\bigl(").replace(")", r"\bigr)") + "$")
    if r"\frac" in t:
        yield last_line("$" + t.replace(r"\frac", r"\dfrac") + "$")
        yield last_line("$" + t.replace(r"\frac", r"\tfrac") + "$")
    if "-" in t and g.kind != "words":
        yield last_line(t.replace("-", "−"))
    if r"\pi" in t and "{" not in t:
        yield last_line(t.replace(r"\pi", "π"))
    if r"\infty" in t:
        yield last_line(t.replace(r"\infty", "∞"))


WRAPPERS = {
    "inline": inline,
    "bold": bold,
    "boxed": boxed,
    "formula on the next lines": next_lines,
    "words around the formula": sentences,
    "lines after the answer": lines_after,
    "colour and emphasis": coloured,
    "spacing": spaced,
    "sizes and signs": sized,
}
