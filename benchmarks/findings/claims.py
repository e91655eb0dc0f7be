"""The comparative sentences of docs/findings.md, each with its number, its test and its command.

    # a table; exit 1 if a sentence lacks one of them
    python -m benchmarks.findings.claims

Predictions and questions are left out, and what explains the method. A sentence has the
numbers that it names, or else those of its chapter's tables. Its test is the one that it names, or
that of the tables; its command makes the results. Both are those of the sweeps that it names, else
of its chapter, of the chapters that this links to, or of the chapter above it.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
COMPARES = re.compile(
    r"\b(ahead|behind|above|below|level with|higher|lower|better|worse|faster|slower|shorter|longer"
    r"|closer|larger|smaller|more|less|fewer|costs?|gains?|loses?|lost|differs?|differences?|apart"
    r"|equals?|within noise|no effect)\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"[+−-]?\d+\.\d+(?: ± \d+\.\d+)?|\b\d+ %")
COMMAND = re.compile(r"^(?:rpg|python -m benchmarks)\b[^#\n]*", re.MULTILINE)
INLINE = re.compile(r"`((?:rpg|python -m benchmarks)\b[^`]*)`")
RUNS = re.compile(r"rpg (?:sweep|study) (?:configs/\w+/)?([\w-]+)")
LINK = re.compile(r"\]\(#([\w-]+)\)")
RESULTS = re.compile(r"<!-- results: ([\w-]+) -->")
SWEEP = re.compile(r"`([\w-]+)`")
TESTS = {
    "too few seeds": "none, and the sentence says so",
    "equivalence": "two one-sided tests of equivalence",
    "Student's t": "paired by seed, Student's t",
    "p, corrected": "paired by seed and problem, one family of tests",
    "| p | Verdict": "paired by seed and problem, one family of tests",
    "rank correlation": "rank correlation over the losses",
    "rpg audit": "exact enumeration",
    "statistics.md": "level and intervals by simulation (statistics.md)",
}


OF_TABLES = ("p, corrected", "| p | Verdict")
NO_CLAIMS = ("|", "![", "**Question:**", "**Words.**")
"""How paragraphs begin that claim nothing."""


def named_test(text: str) -> str:
    return next((test for words, test in TESTS.items() if words in text), "")


@dataclass
class Chapter:
    title: str
    level: int
    text: str = ""
    above: "Chapter | None" = None
    linked: list["Chapter"] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    """The page's commands that run a sweep or a study, by its name."""

    @property
    def anchor(self) -> str:
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")

    def own_test(self) -> str:
        """That of its tables, else the one that it names."""
        of_tables = [TESTS[words] for words in OF_TABLES if words in self.text]
        return of_tables[0] if of_tables else named_test(self.text)

    def own_command(self) -> str:
        """The one that makes its tables, wherever the page has it, else the first of its text."""
        for name in RESULTS.findall(self.text):
            if name in self.runs:
                return self.runs[name]
        found = [*COMMAND.findall(self.text), *INLINE.findall(self.text)]
        measuring = [command for command in found if not command.startswith("rpg model ")]
        return measuring[0].strip() if measuring else ""

    def own_numbers(self) -> list[str]:
        rows = [line for line in self.text.splitlines() if line.startswith("|")]
        return NUMBER.findall("\n".join(rows))

    def sources(self) -> Iterator["Chapter"]:
        """This chapter, those that it links to, and those above it."""
        yield self
        yield from self.linked
        if self.above is not None:
            yield from self.above.sources()


@dataclass(frozen=True)
class Claim:
    chapter: str
    sentence: str
    numbers: str
    test: str
    command: str

    @property
    def is_whole(self) -> bool:
        return bool(self.numbers and self.test and self.command)


def chapters(page: str) -> list[Chapter]:
    """All chapters, in the order of the page; the introduction is the first."""
    result = [Chapter("Findings", 1)]
    in_code = False
    for line in page.splitlines():
        in_code ^= line.startswith("```")
        heading = re.match(r"(#{2,4}) (.*)", line)
        if heading and not in_code:
            level = len(heading[1])
            above = next(chapter for chapter in reversed(result) if chapter.level < level)
            result.append(Chapter(heading[2], level, above=above))
        else:
            result[-1].text += line + "\n"
    commands = [line.strip() for line in [*COMMAND.findall(page), *INLINE.findall(page)]]
    runs: dict[str, str] = {}
    for command in commands:
        named = RUNS.match(command)
        if named:
            runs.setdefault(named[1], command)
    by_anchor = {chapter.anchor: chapter for chapter in result}
    for chapter in result:
        chapter.runs = runs
        anchors = LINK.findall(chapter.text)
        chapter.linked = [by_anchor[anchor] for anchor in anchors if anchor in by_anchor]
    return result


def sentences(text: str) -> Iterator[str]:
    """Prose only: no code, tables, pictures or comments."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith(NO_CLAIMS):
            continue
        yield from re.split(r"(?<=[.!?])[)*]*\s+(?=[A-Z(*`-])", " ".join(paragraph.split()))


def claims(page: str) -> Iterator[Claim]:
    introduction, *others = chapters(page)
    by_results = {name: chapter for chapter in others for name in RESULTS.findall(chapter.text)}
    for chapter in others:
        for sentence in sentences(chapter.text):
            if not COMPARES.search(sentence) or sentence.startswith("**Predicted"):
                continue
            named_sweeps = [name for name in SWEEP.findall(sentence) if name in by_results]
            sources = [*(by_results[name] for name in named_sweeps), *chapter.sources()]
            sources.append(introduction)
            numbers = NUMBER.findall(sentence)
            for source in sources:
                numbers = numbers or source.own_numbers()
            test = named_test(sentence)
            command = ""
            for source in sources:
                test = test or source.own_test()
                command = command or source.own_command()
            yield Claim(chapter.title, sentence, ", ".join(numbers[:4]), test, command)


def main() -> None:
    found = list(claims(PAGE.read_text()))
    for claim in found:
        print(f"{claim.chapter} | {claim.sentence}")
        print(f"    {claim.numbers or 'NO NUMBER'} | {claim.test or 'NO TEST'} | ", end="")
        print(claim.command or "NO COMMAND")
    without = [claim for claim in found if not claim.is_whole]
    print(f"{len(found)} comparative sentences, {len(without)} without number, test or command")
    sys.exit(bool(without))


if __name__ == "__main__":
    main()
