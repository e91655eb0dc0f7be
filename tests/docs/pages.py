"""README and docs as data: fenced blocks with their marks, inline code, links.

A block says in its fence what it is: `sh`, `yaml`, `python`, `sql` and `jsonl` are tried by
tests/docs/test_docs.py, `text` is for output and pictures. A comment in the line before may say
that a block is not run, and why, or as which file the blocks after it will find it:

    <!-- not run: needs a GPU -->
    <!-- file: train.jsonl -->
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LANGUAGES = ("sh", "yaml", "python", "sql", "jsonl", "text", "dockerfile")

_FENCE = re.compile(
    r"^(?:<!--(?P<mark>[^\n]*?)-->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: the comment before it, its language, its text."""

    page: Path
    line: int
    mark: str
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def left_out(self) -> str:
        """Why it is not run; empty when it is."""
        return (
            self.mark.removeprefix("not run:").strip() if self.mark.startswith("not run:") else ""
        )

    @property
    def file(self) -> str:
        """The name under which the blocks after it find it; empty when it has none."""
        if self.mark.startswith("file:"):
            return self.mark.removeprefix("file:").strip()
        named = re.match(r"# ([\w.-]+\.ya?ml)\b", self.text)
        return named[1] if named else ""

    def commands(self) -> list[list[str]]:
        """The words of each command of a shell block, without comments."""
        joined = self.text.replace("\\\n", " ")
        return [
            words for line in joined.splitlines() if (words := shlex.split(line, comments=True))
        ]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, m.start()) + 1,
            (m["mark"] or "").strip(),
            m["language"],
            m["text"],
        )
        for m in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def inline_code(page: Path) -> list[str]:
    return [" ".join(code.split()) for code in _INLINE.findall(prose(page))]


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
