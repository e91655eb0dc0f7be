r"""Formulas that have words and a box in them, with the words outside.

`$3 \text{ or } \boxed{5}$` says what `$3$ or $\boxed{5}$` says. Words are read by one grammar, that
of sentences; so those of a formula are put between formulas before a box is read.
"""

import re

from rpg.answers import typesetting

_FORMULA = re.compile(
    r"(?P<open>\$\$|\\\[|\\\(|(?<![\\$])\$)(?P<inside>(?:(?!\$|\\\[|\\\]|\\\(|\\\)).)*?)"
    r"(?P<close>\$\$|\\\]|\\\)|\$)",
    re.DOTALL,
)
_PAIRS = {"$": "$", "$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_WORDS = re.compile(r"\\(?:text(?:bf|it|rm|sf|normal)?|mbox|mathrm|operatorname)\s*\{")
_WORD = re.compile(r"[^\W\d_]{2}|\bI\b")
_WIDE = re.compile(r"\\q?quad(?![a-z])")
_LEADING = re.compile(
    r"(?:\\(?:therefore|because|implies|Rightarrow|Longrightarrow|rightarrow|to|iff|Leftrightarrow|ldots"
    r"|dots)(?![a-z])|[\s,;:.]|\\[,;:! ])*"
)
"""Signs that lead from one formula to the next, and say nothing themselves."""
_OPEN_END = re.compile(
    r"(?:[-+*/=<>(,]|\\(?:pm|mp|cdot|times|div|neq?|[lg]eq?|approx|in|sim))\s*\Z"
)
_SIGN_APART = re.compile(
    r"(?P<sign>[-+*/=<>]|\\(?:pm|mp|cdot|times|div|neq?|[lg]eq?|approx|in|sim))\s*\\q?quad(?![a-z])\s*"
)
_SPACE = re.compile(r"(?:\\[,;:! ]|~|\s)+")
_BETWEEN = re.compile(
    r"[\s,;]*(?:=|\\(?:approx|equiv|to|rightarrow|neq?|iff|Rightarrow)(?![a-z])|&)[\s,;]*"
)
"""A relation between two boxes: both are stated."""
_LONGEST = 4_000
_INLINE = "$"


def words_outside(text: str) -> str:
    """The text, with the words of formulas that have a box between formulas."""
    if "boxed" not in text and "fbox" not in text:
        return text
    return _FORMULA.sub(_apart, text)


def _apart(match: re.Match[str]) -> str:
    inside = match["inside"]
    if match["close"] != _PAIRS[match["open"]] or len(inside) > _LONGEST:
        return match[0]
    if "\\begin" in inside or ("boxed" not in inside and "fbox" not in inside):
        return match[0]
    parts = _parts(inside)
    if len(parts) < 2:
        return f"{match['open']}{_joined_signs(inside)}{match['close']}"
    written = [part if is_words else f"{_INLINE}{part}{_INLINE}" for is_words, part in parts]
    return " ".join(written)


def _joined_signs(inside: str) -> str:
    """A sign that a wide space separates from what it belongs to stands beside it."""
    return _SIGN_APART.sub(r"\g<sign> ", inside)


def _parts(inside: str) -> list[tuple[bool, str]]:
    """(whether it is words, text) of what stands side by side in a formula."""
    pieces: list[tuple[bool, str]] = []
    start = position = depth = 0
    while position < len(inside):
        words = _WORDS.match(inside, position) if depth == 0 else None
        wide = _WIDE.match(inside, position) if depth == 0 else None
        relation = _BETWEEN.match(inside, position) if depth == 0 else None
        if words:
            _, end = typesetting.braced(inside, words.end() - 1)
            said = inside[words.end() : end]
            if _WORD.search(said) and not _is_script(inside, position):
                pieces += [(False, inside[start:position]), (True, said)]
                start = end + 1
            position = end + 1
        elif wide and _OPEN_END.search(inside[start:position]):
            inside = f"{inside[:position]} {inside[wide.end() :]}"
        elif wide:
            pieces.append((False, inside[start:position]))
            start = position = wide.end()
        elif relation and _ends_in_box(inside, position) and _begins_with_box(inside, relation):
            pieces += [(False, inside[start:position]), (True, "or")]
            start = position = relation.end()
        else:
            step = 2 if inside[position] == "\\" else 1
            depth += (inside[position] in "{([") - (inside[position] in "})]")
            depth = max(depth, 0)
            position += step
    pieces.append((False, inside[start:]))
    return [(is_words, part) for is_words, part in map(_trimmed, pieces) if part]


def _trimmed(piece: tuple[bool, str]) -> tuple[bool, str]:
    """Without space around it, and without signs that say nothing where there is nothing else."""
    is_words, part = piece
    if is_words:
        return True, part.strip()
    if _LEADING.fullmatch(part):
        return False, ""
    first = _SPACE.match(part)
    return False, part[first.end() if first else 0 :].rstrip("\\ \t\n,;")


def _is_script(inside: str, position: int) -> bool:
    """Whether words are an index or exponent."""
    return inside[:position].rstrip().endswith(("_", "^"))


def _ends_in_box(inside: str, position: int) -> bool:
    before = len(inside[:position].rstrip())
    return any(box.end + 1 == before for box in typesetting.boxes(inside))


def _begins_with_box(inside: str, relation: re.Match[str]) -> bool:
    return any(box.begin == relation.end() for box in typesetting.boxes(inside))
