"""One notation for what is written in many ways: Unicode signs as LaTeX, typesetting removed."""

from __future__ import annotations

import re
from collections.abc import Callable

from rpg.answers.lexicon import GREEK

_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
_SUB = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ", "0123456789+-()n")
_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5",
              "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8"}  # fmt: skip
_CHARACTERS = {
    "−": "-", "–": "-", "—": " - ", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/",
    "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "≃": r"\approx ", "≅": r"\approx ", "∼": r"\approx ", "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ", "∨": r"\lor ",
    "∧": r"\land ", "±": r"\pm ", "∓": r"\mp ", "°": r"^\circ ", "º": r"^\circ ", "′": "'", "’": "'", "‘": "'",
    "≡": r"\equiv ", "Å": r" \AA ", "Ω": r" \Omega ", "µ": r"\mu ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "ℝ": "R",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "…": "...", "“": '"', "”": '"', "\u200b": "", "\ufeff": "", "\xa0": " ",
    "\u2009": " ", "\u202f": " ", "∖": r"\setminus ", "→": r"\to ", "⇒": r"\Rightarrow ", "∎": "", "■": "", "□": "",
    "£": "", "€": "", "℃": " degrees ", "⟨": "(", "⟩": ")",
}  # fmt: skip
_CHARACTERS |= dict(zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", (f"\\{name} " for name in GREEK), strict=True))
_TO_LATEX = str.maketrans(_CHARACTERS)

_Replacement = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
_BEFORE_LATEX: list[_Replacement] = [
    (re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+"), lambda m: "^{" + m[0].translate(_SUPER) + "}"),
    (re.compile(r"[₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ]+"), lambda m: "_{" + m[0].translate(_SUB) + "}"),
    (re.compile("[" + "".join(_FRACTIONS) + "]"), lambda m: f" {_FRACTIONS[m[0]]} "),
    (re.compile(r"\\text(?:bf|rm)?\s*\{\s*\(?[A-E]\)\s*[.:]?\s*\}(?=[\s\\~$,;:]*[-\d\\])"), " "),
    (re.compile(r"</?s>|<\|[^|<>]{1,30}\|>|\(?\bQ\.\s?E\.\s?D\.?\)?"), " "),
    (re.compile(r"\s[–—]\s+(?=[A-Za-z]{2})"), " , "),
    (re.compile(r"[=-]>"), r" \\Rightarrow "),
    (re.compile(r"(?<=[a-z]{3})!"), "."),
    (re.compile(r"(?<=\d)\s*\^\s*\{\s*(?:\\prime\s*){1,3}\}"), " "),
    (re.compile(r"^[\s$(]*(?:(?:[Oo]ption|[Cc]hoice)\s+\(?[A-E]\)?\s*[:.,-]|[A-E][).:])\s+(?=[-\d$\\])"), " "),
    (re.compile(r"\((?:[Oo]ption|[Cc]hoice)\s+[A-E]\)"), " "),
    (re.compile(r"√\s*"), r"\\sqrt "),
    (re.compile(r"[！-～]"), lambda m: chr(ord(m[0]) - 0xFEE0)),
]  # fmt: skip
_UPRIGHT = r"\s*\\(?:text|mathrm)\s*\{([^{}]{1,20})\}\s*"
_AFTER_LATEX: list[_Replacement] = [
    (re.compile(rf"\\frac\s*\{{{_UPRIGHT}\}}\s*\{{{_UPRIGHT}\}}"), r"\\text{\1/\2}"),
    (re.compile(r"(\^\s*\{?\s*\\circ\s*\}?)\s*(?:[CF](?![A-Za-z])|\\(?:text|mathrm)\s*\{\s*[CF]\s*\})"), r"\1 "),
    (re.compile(r"\bi\.e\.,?"), " that is "),
    (re.compile(r"\bapprox\.(?=\s|$)"), "approximately"),
    (re.compile(r"(?<=[\w)\]}])\*\*(?=\s?[-+\w({\\])"), "^"),  # a power in Python; otherwise bold
    (re.compile(r"\*\*+|__+|`+|^#+\s|(?<=\n)#+\s"), " "),
    (re.compile(r"(?<!\\)\\(?:left|right|[Bb]igg?[lrm]?)(?![a-zA-Z])\s*\.?"), ""),
    (re.compile(r"(?<=\d)(?:\{,\}|\\[,;:! ]|\{\\,\})(?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<=\d)\\!?,\\!?(?=\d{3})|(?<=\d),\\!(?=\d{3})"), ""),
    (re.compile(r"(?<!\\)\\(?:[,;:!> ]|quad(?![a-z])|qquad(?![a-z])|thinspace|enspace)|(?<!\\)~(?=[^\d.])"), " "),
    (re.compile(r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|normalsize|[Ll]arge|LARGE|[Hh]uge|bf|it|rm|"
                r"blacksquare|square|qed|Box|boldmath|centering|hfill)(?![a-zA-Z])"), " "),
    (re.compile(r"\\(?:color|textcolor|colorbox)\s*(?:\[\w+\])?\s*\{[\w!.\d-]{1,30}\}"), " "),
    (re.compile(r"\\color\s+\w+"), " "),
    (re.compile(r"\\fcolorbox\s*\{\w{1,30}\}\s*\{\w{1,30}\}"), " "),
    (re.compile(r"\\(?:mathbf|boldsymbol|bm|pmb|underline|uline|textbf|textit|emph|mathit|mathsf|mathnormal|ensuremath|"
                r"underbracket|phantom|mathop|bold|displaylines)\s*(?=\{)"), " "),
    (re.compile(r"\\(?:qquad|hspace|vspace)\*?\s*\{[^{}]{0,20}\}"), " "),
    (re.compile(r"\\[dtc]frac(?![a-z])"), r"\\frac"),
    (re.compile(r"\\(?:dbinom|tbinom)(?![a-z])"), r"\\binom"),
    (re.compile(r"(?<![A-Za-z\\])d\s?([A-Za-z])\s*/\s*d\s?([A-Za-z])(?![A-Za-z])"), r"\\frac{d \1}{d \2}"),
    (re.compile(r"(?<=\d)\s*[xX](?=\s*10\s*\^)"), r" \\times "),
]  # fmt: skip


def in_latex(text: str) -> str:
    """An answer as LaTeX without sizes, spaces, colours, emphasis, choice letters and end tokens."""
    for pattern, replacement in _BEFORE_LATEX:
        text = pattern.sub(replacement, text)
    text = text.translate(_TO_LATEX)
    for pattern, replacement in _AFTER_LATEX:
        text = pattern.sub(replacement, text)
    return text.strip()
