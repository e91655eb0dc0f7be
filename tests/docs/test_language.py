"""Phrases that made readers stumble stay out of code, configurations and documentation."""

import re
import subprocess
from pathlib import Path

from tests.docs.pages import ROOT

PHRASES = Path(__file__).with_name("banned_phrases.txt")


def banned():
    """The phrases, in lower case with single spaces."""
    lines = PHRASES.read_text(encoding="utf-8").splitlines()
    return [
        " ".join(line.split()).lower()
        for line in lines
        if line.strip() and not line.startswith("#")
    ]


def phrases_in(text, phrases):
    """The banned phrases of a text, however its lines are broken."""
    text = re.sub(r"\s+#?\s*", " ", text).lower()
    held = [phrase for phrase in phrases if phrase in text]  # which is quick, and seldom true
    return [phrase for phrase in held if re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text)]


def test_a_planted_phrase_is_found_across_a_line_break():
    assert phrases_in('"""It has a\n    card."""', ["has a card"]) == ["has a card"]
    assert phrases_in("# it has\n# a card", ["has a card"]) == ["has a card"]
    assert not phrases_in("it has a cardinality", ["has a card"])


def test_no_banned_phrase_is_in_a_tracked_file():
    patterns = ("*.py", "*.md", "*.yaml", "*.toml", "*.html")
    command = ["git", "ls-files", "-z", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phrases = banned()
    assert len(phrases) > 30
    offences = [
        f"{name}: {phrase}"
        for name in filter(None, listed.split("\0"))
        if (path := ROOT / name).is_file()
        for phrase in phrases_in(path.read_text(encoding="utf-8"), phrases)
    ]
    assert not offences, "\n".join(offences)
