"""One notation for what is written in many ways: Unicode signs as LaTeX, typesetting removed, set
phrases as signs."""

import re
import unicodedata
from collections.abc import Callable

from rpg.answers import lexicon

_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
_SUB = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ", "0123456789+-()n")
_INVISIBLE = set(range(0x200B, 0x200E)) | set(range(0x2060, 0x2065)) | {0xFEFF, 0xFE0F, 0xAD}


class _Characters(dict[int, str]):
    """A table for str.translate; signs without a meaning of their own are what NFKC takes them for
    (𝟒 is 4)."""

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKC", chr(code))
        if code in _INVISIBLE:
            plain = ""
        elif plain != chr(code):
            plain = plain.translate(self)
        self[code] = plain
        return plain


_TO_LATEX = _Characters(str.maketrans(lexicon.SIGNS))

_Replacement = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
_BEFORE_LATEX: list[_Replacement] = [
    (re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+"), lambda m: "^{" + m[0].translate(_SUPER) + "}"),
    (re.compile(r"[₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ]+"), lambda m: "_{" + m[0].translate(_SUB) + "}"),
    (re.compile("[" + "".join(lexicon.FRACTIONS) + "]"), lambda m: f" {lexicon.FRACTIONS[m[0]]} "),
    (
        re.compile(
            r"\\(?:text(?:bf|rm)?|mathrm|mathbf)\s*\{\s*\(?[A-E]\)\s*[.:]?\s*\}(?=[\s\\~$,;:]*[-\d\\])"
        ),
        " ",
    ),
    (re.compile(r"^\s*([*'_])(?!\1)([^*]*[^*_'\s])\1[\s.]*$"), r"\2"),
    (
        re.compile(lexicon.END_TOKENS + r"|\(?\bQ(?:\.\s?E\.\s?D\b\.?|ED\b)\)?|^\s*(?:→|⇒|\\to\b)"),
        " ",
    ),
    (re.compile(r"<([biu])>(.*?)</\1>"), r"\2"),
    (re.compile(r"</?(?:p|div|br|em|strong|span|center|answer|think)\s*/?>|</[biu]>"), " "),
    (
        re.compile(
            r"\\left\s*(?:\\\{|\\lbrace|\[|\.)\s*\\begin\s*\{array\}\s*\{[lcr| ]{0,20}\}(.*?)"
            r"\\end\s*\{array\}\s*\\right\s*\.",
            re.DOTALL,
        ),
        r"\\begin{cases}\1\\end{cases}",
    ),
    (re.compile(r"\\left\s*<"), "("),
    (re.compile(r"\\right\s*>"), ")"),
    (
        re.compile(r"^((?:[^$\\]|\\.)*)(?<!\$)\$(?=\s?\d)((?:[^$\\]|\\.)*)$", re.DOTALL),
        r"\1\\$\2",
    ),  # money
    (re.compile(r"\s[–—]\s+(?=[A-Za-z]{2})"), " , "),
    (re.compile(r"[=-]>"), r" \\Rightarrow "),
    (re.compile(r"(?<=[a-z]{3})!|(?<=\$)!+(?=\s*$)"), "."),
    (re.compile(r"(?<=\d)\s*\^\s*\{\s*(?:\\prime\s*){1,3}\}"), " "),
    (
        re.compile(
            r"^[\s$(]*(?:(?:[Oo]ption|[Cc]hoice)\s+\(?[A-E]\)?\s*[:.,-]|[A-E][).:])\s+(?=[-\d$\\])"
        ),
        " ",
    ),
    (re.compile(r"\((?:[Oo]ption|[Cc]hoice)\s+[A-E]\)"), " "),
    (re.compile(r"^((?:[\s$*{]|\\[(\[]|\\boxed)*)\([A-E]\)(?=[\s$*]*[-\d\\(\[{])"), r"\1 "),
    (re.compile(r"√\s*"), r"\\sqrt "),
    (re.compile(r"([∛∜])\s*"), lambda m: rf"\sqrt[{3 + (m[1] == '∜')}] "),
]
_CHOICE = (
    r"(?:\\(?:text(?:bf|rm)?|mathrm|mathbf)\s*\{\s*)?\(?(?:[Oo]ption |[Cc]hoice )?[A-E]\)(?:\s*\})?"
)
_COUNTED = rf"(?:{'|'.join(sorted(lexicon.NUMBER_WORDS))})\b"
_UPRIGHT = r"\s*\\(?:text|mathrm)\s*\{([^{}]{1,20})\}\s*"
_AFTER_LATEX: list[_Replacement] = [
    (re.compile(rf"\\frac\s*\{{{_UPRIGHT}\}}\s*\{{{_UPRIGHT}\}}"), r"\\text{\1/\2}"),
    (
        re.compile(
            r"(\^\s*\{?\s*\\circ\s*\}?)\s*(?:[CF](?![A-Za-z])|\\(?:text|mathrm)\s*\{\s*[CF]\s*\})"
        ),
        r"\1 ",
    ),
    (re.compile(r"\^\s*\{\s*\\circ\s*\}"), r"^\\circ "),
    (re.compile(r"\bi\.e\.,?"), " that is "),
    (re.compile(r"(\bdegrees?)\s+(?:[Cc]elsius|[Ff]ahrenheit|[CF])\b"), r"\1"),
    (re.compile(r"(?<=\bis )\([A-E]\)\s+(?=[-\d$\\])"), " "),
    (re.compile(r"(?<=[\d})$])(?:\\?\s)*" + _CHOICE + r"(?=[\s.}$]*$)"), ""),
    (re.compile(r",? (?:(?:which|that) is )?(?:option|choice) \(?[A-E]\)?(?=\W*$)"), ""),
    (
        re.compile(
            r"(?:\b[Tt]here (?:is|are|exists?) )?\bno "
            r"(?:(?:real|such|valid|integer|positive|possible) )*"
            r"(?:solutions?|roots?)\b(?: "
            r"exists?\b)?|^\W*(?:\\text\s*\{)?\W*none\W*$|(?:\bthe )?\b(?:empty|null) set\b",
            re.IGNORECASE,
        ),
        r" \\emptyset ",
    ),
    (
        re.compile(
            r"(?<!for )\b(?:the set of )?(?:all (?:the )?real "
            r"(?:numbers?|values?|(?=\$?[xyt]\b))|all reals"
            r"|(?:any|every) real (?:number|value))(?:\s*\$?[xyt]\b\$?)?",
            re.IGNORECASE,
        ),
        r" \\mathbb{R} ",
    ),
    (
        re.compile(r"(?<=\d)(\s*\$?)\s*,?\s*\(?\s*(?:in )?base[\s-]+(\d{1,2}|[a-z]{3,7})\b\s*\)?"),
        lambda m: f"_{{{lexicon.number_in_words([m[2]])[1] or m[2]}}}{m[1]}",
    ),
    (re.compile(r"(?:\\math(?:bin|rel))?\s*\{:\}"), ":"),
    (
        re.compile(
            r"(?<=:\d\d)\s*(\$?)\s*(?:\\(?:text|mathrm)\s*\{\s*)?([ap])\.?\s?m\b\.?(?:\s*\})?",
            re.IGNORECASE,
        ),
        lambda m: f"{m[1]} {m[2].lower()}nte ",
    ),
    (  # a whole hour
        re.compile(
            r"(?<![\d.,:/^])(?P<hour>1[0-2]|[1-9])(?P<space>\s*\$?\s*)"
            r"(?:\\(?:text|mathrm)\s*\{\s*)?(?:(?P<half>[ap])\.?\s?m|(?P<capital>[AP])\.?M)\b\.?(?:\s*\})?"
        ),
        lambda m: f"{m['hour']}{m['space']} {(m['half'] or m['capital']).lower()}nte ",
    ),
    (re.compile(rf"\b[Aa] (?={_COUNTED})"), "one "),
    (re.compile(rf"\b(?:negative|minus)\s+(?=\$?[\d.\\(]|{_COUNTED})", re.IGNORECASE), "-"),
    (
        re.compile(rf"(?<=\d)(\s*\$?)\s*({'|'.join(lexicon.SCALES)})\b"),
        lambda m: rf"{m[1]}\cdot {lexicon.SCALES[m[2]]} ",
    ),
    (re.compile(r"(?<=\d) out of (?=\d)"), "/"),
    (
        re.compile(r"(?<![\w.,'{}(\[])\d{1,3}(?:(?:\.\d{3}){2,}|(?:['_]\d{3})+)(?![\d'_]|[.,]\d)"),
        lambda m: re.sub(r"\D", "", m[0]),
    ),  # thousands of other countries
    (re.compile(r"\b(?:US|U\.S\.) ?(?=\\\$|dollars?\b)"), ""),
    (re.compile(r"\bapprox\.(?=\s|$)"), "approximately"),
    (re.compile(r"\b(?:an? )?total of\b"), "total"),
    (re.compile(r"(?<![^\s(:,$])\*\*(?=[^\s*])([^*\n]*)(?<=\S)\*\*(?!\*)"), r" \1 "),
    (re.compile(r"(?<=[\w)\]}])\*\*(?=\s?[-+\w({\\])"), "^"),  # a power in Python; otherwise bold
    (re.compile(r"\*\*+|__+|`+|^#+\s|(?<=\n)#+\s"), " "),
    (re.compile(r"(?<!\\)\\(?:left|right|[Bb]igg?[lrm]?)(?![a-zA-Z])\s*\.?"), ""),
    (re.compile(r"(?<=\d)(?:\{,\}|\\[,;:! ]|\{\\,\})(?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<=\d)\\!?,\\!?(?=\d{3})|(?<=\d),\\!\s*(?=\d{3})"), ""),
    (
        re.compile(
            r"(?<!\\)\\(?:[,;:!> "
            r"]|quad(?![a-z])|qquad(?![a-z])|thinspace|enspace)|(?<=[^\\\s])~(?=[^\d.])"
        ),
        " ",
    ),
    (
        re.compile(
            r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|normalsize|[Ll]arge|LARGE|[Hh]uge|bf|it|rm|"
            r"blacksquare|square|qed|Box|boldmath|centering|hfill)(?![a-zA-Z])"
        ),
        " ",
    ),
    (re.compile(r"\\(?:color|textcolor|colorbox)\s*(?:\[\w+\])?\s*\{[\w!.\d-]{1,30}\}"), " "),
    (re.compile(r"\\color\s+\w+"), " "),
    (re.compile(r"\\fcolorbox\s*\{\w{1,30}\}\s*\{\w{1,30}\}"), " "),
    (
        re.compile(
            r"\\(?:mathbf|boldsymbol|bm|pmb|underline|uline|textbf|textit|emph|mathit|mathsf|mathnormal|ensuremath|"
            r"underbracket|phantom|mathop|mathbin|mathrel|bold|displaylines)\s*(?=\{)"
        ),
        " ",
    ),
    (re.compile(r"\\(?:qquad|hspace|vspace)\*?\s*\{[^{}]{0,20}\}"), " "),
    (
        re.compile(r"(?<![A-Za-z\\])d\s?([A-Za-z])\s*/\s*d\s?([A-Za-z])(?![A-Za-z])"),
        r"\\frac{d \1}{d \2}",
    ),
    (re.compile(r"(?<=\d)\s*[xX](?=\s*10\s*\^)"), r" \\times "),
]


def in_latex(text: str) -> str:
    """An answer as LaTeX without sizes, spaces, colours, emphasis, choice letters and end
    tokens."""
    for pattern, replacement in _BEFORE_LATEX:
        text = pattern.sub(replacement, text)
    text = text.translate(_TO_LATEX)
    for pattern, replacement in _AFTER_LATEX:
        text = pattern.sub(replacement, text)
    return text.strip()
