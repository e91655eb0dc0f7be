r"""The rule of the paper's recipe: verl's `math_dapo`, as its version 0.9.1 has it, so that
published numbers can be compared like for like. It compares text after replacements that remove
units, words and LaTeX; it knows no numbers, so 1/2 is not 0.5, and of `x = 4 = 5` it keeps the 5.

Read from `verl/utils/reward_score/math_dapo.py` of verl 0.9.1 (after Lewkowycz et al. 2022, App.
D); a test grades the same responses with verl's own function where verl is installed.
"""

import re

from rpg.tasks.rewards.grades import Grade

VERSION = "0.9.1"
_RESPONSE = 300
_BOX = 100
"""Characters from a response's end that are looked at, and of these for a box."""
_NONE = "[INVALID]"
_MARKER = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
)
# In this order: `cm` goes before `gm`, and what an earlier removal leaves is seen by the later
# ones.
_REMOVED = (
    *"square ways integers dollars mph inches hours km units".split(),
    r"\ldots",
    *"sue points feet minutes digits cents degrees cm gm pounds meters meals edges students "
    "childrentickets".split(),
    "multiples",
    *(
        r"\text{s}",
        r"\text{.}",
        "\\text{\ns}",
        r"\text{}^2",
        r"\text{}^3",
        "\\text{\n}",
        r"\text{}",
    ),
    *(r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots"),
)
_UNWRAPPED = [
    (re.compile(r"(.*?)(\$)(.*?)(\$)(.*)"), r"$\3$"),
    *((re.compile(rf"(\\{name}\{{)(.*?)(\}})"), r"\2") for name in ("text", "textbf", "overline")),
    (re.compile(r"(\\boxed\{)(.*)(\})"), r"\2"),
    (re.compile(r"(frac)([^{])(.)"), r"frac{\2}{\3}"),
    (re.compile(r"(sqrt)([^{])"), r"sqrt{\2}"),
]


def bare(text: str) -> str:
    """An answer as the rule compares it: what follows the last `=`, without units, words and LaTeX
    around it."""
    text = text.split("=")[-1]
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for word in _REMOVED:
        text = text.replace(word, "")
    for pattern, kept in _UNWRAPPED:
        text = pattern.sub(kept, text)
    text = text.replace("$", "")
    digits = text.replace(",", "")
    return (digits if digits.isdigit() else text).strip()


def grade(response: str, truth: str) -> Grade:
    r"""The last `Answer:` in the response's end, compared as text; without one, the last
    `\boxed{...}`, to the letter."""
    end = response[-_RESPONSE:]
    lines = _MARKER.findall(end)
    answer = bare(lines[-1] if lines else _NONE)
    if answer != _NONE:
        right = answer == bare(truth)
        return Grade(answer, right, f"answer line: {'same' if right else 'other'} text")
    box = _last_box(end[-_BOX:])
    if box is None:
        return Grade(None, False, "no answer line, no box")
    return Grade(box, box == truth, f"boxed: {'same' if box == truth else 'other'} text")


def _last_box(text: str) -> str | None:
    r"""Between the braces of the last `\boxed{`; None where it does not close. (Escaped braces
    count like others.)"""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for i in range(begin, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return text[begin:i]
    return None
