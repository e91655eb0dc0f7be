"""Regular expressions of a user on texts of anybody: searched within a time limit, which Python's
own `re` does not have."""

import regex

SECONDS = 2.0
"""What a pattern may take for one text. Nested repetitions, as in `(a+)+$`, can take for ever."""


class TooSlow(Exception):
    """A pattern takes longer than that; the message is the end of a sentence about it."""


def search(pattern: str, text: str) -> "regex.Match[str] | None":
    """The first place where the pattern matches; `.` also matches line breaks. Raises TooSlow."""
    try:
        return regex.search(pattern, text, regex.DOTALL, timeout=SECONDS)
    except TimeoutError:
        raise TooSlow(
            f"takes more than {SECONDS:g} s on {text[:80]!r}; write it without nested repetitions"
        ) from None
