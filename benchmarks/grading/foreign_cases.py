"""Other graders' own test cases, judged by our rules.

    python -m benchmarks.grading.foreign_cases FOLDER... [--texts]

Each FOLDER is a copy of the tests of Math-Verify (`tests`) or lighteval (`tests/unit/metrics`).
Cases are read from the tables of their test files as text; nothing is executed. Printed are the
disagreements by file and index, with their verdict and ours; `--texts` shows the cases, too. What
is known of a disagreement stands in foreign_cases.yaml: theirs, a choice of ours that
docs/grading.md explains, or a fault.
"""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from rpg.answers import last_box
from rpg.config.task import MathVerifier
from rpg.tasks.rewards import Grader, Item

KNOWN = Path(__file__).with_name("foreign_cases.yaml")
_COLUMNS = ("gold", "pred", "expected")
_ANSWER_LINE = re.compile(r"answer\s*[:：]", re.IGNORECASE)
_PROSE = "choice: sentences are not searched for an answer"


@dataclass(frozen=True)
class Case:
    """One row of a table: `expected` is their verdict."""

    file: str
    index: int
    gold: str
    response: str
    expected: bool

    @property
    def name(self) -> str:
        return f"{self.file}:{self.index}"


def cases(folder: Path) -> Iterator[Case]:
    """The rows of every table with a gold answer, a prediction and a verdict."""
    for path in sorted(folder.rglob("test_*.py")):
        index = 0
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for row in _rows(node):
                gold = row["gold"]
                response = row["pred"]
                if isinstance(gold, str) and isinstance(response, str):
                    yield Case(path.stem, index, gold, response, bool(row["expected"]))
                index += 1


def _rows(node: ast.AST) -> Iterator[dict[str, object]]:
    """The rows of a call of pytest.mark.parametrize, by the names of its columns."""
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("parametrize"):
        return
    try:
        names, table = (ast.literal_eval(argument) for argument in node.args[:2])
    except (ValueError, IndexError):
        names, table = _literal_columns(node)
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    if not set(_COLUMNS) <= set(columns):
        return
    for values in table:
        yield dict(zip(columns, values, strict=False))


def _literal_columns(node: ast.Call) -> tuple[str, list[list[object]]]:
    """Tables whose rows name objects of a library: those cells are left out."""
    names = ast.literal_eval(node.args[0])
    table = node.args[1]
    rows = []
    for row in table.elts if isinstance(table, ast.List) else []:
        cells = row.elts if isinstance(row, ast.Tuple) else []
        rows.append([_literal(cell) for cell in cells])
    return names, rows


def _literal(cell: ast.expr) -> object:
    try:
        return ast.literal_eval(cell)
    except ValueError:
        return None


def asked(case: Case) -> Item:
    """The prediction as a response: with an answer line or a box as it is, else as the answer. A
    gold that is a worked solution counts by its box, as `task.columns` would take it."""
    gold = case.gold.replace("\\\\", "\\") if "\\\\boxed" in case.gold else case.gold
    gold = last_box(gold) or gold
    for mark in ("$$", "$"):
        if gold.count(mark) == 2 and gold.strip().startswith(mark) and gold.strip().endswith(mark):
            gold = gold.strip().removeprefix(mark).removesuffix(mark)
    stated = "boxed" in case.response or _ANSWER_LINE.search(case.response)
    return Item(case.response if stated else f"Answer: {case.response}", gold)


def is_prose(case: Case) -> bool:
    """Whether the answer stands in sentences, without an answer line or a box: our rules do not
    search it (docs/grading.md)."""
    if "boxed" in case.response or _ANSWER_LINE.search(case.response):
        return False
    outside = re.sub(
        r"\$[^$]*\$|\\\(.*?\\\)|\\\[.*?\\\]|\\[A-Za-z]+", " ", case.response, flags=re.DOTALL
    )
    return len(re.findall(r"[^\W\d_]{2,}", outside)) > 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--texts", action="store_true")
    arguments = parser.parse_args()
    found = [case for folder in arguments.folders for case in cases(folder)]
    known = yaml.safe_load(KNOWN.read_text("utf-8")) if KNOWN.is_file() else {}
    reasons = {name: reason for reason, names in known.items() for name in names}
    with Grader(MathVerifier(fallback="boxed")) as grader:
        grades = grader.grade([asked(case) for case in found])
    counts: Counter[str] = Counter()
    for case, grade in zip(found, grades, strict=True):
        if grade.correct == case.expected:
            counts["agree"] += 1
            continue
        reason = reasons.get(case.name, _PROSE if is_prose(case) else "not looked into")
        counts[reason] += 1
        print(f"{case.name}: theirs {case.expected}, ours {grade.correct}: {reason}")
        if arguments.texts:
            print(f"    {case.gold!r} <- {case.response[-200:]!r}")
    listed = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    print(f"{len(found)} cases: {listed}")


if __name__ == "__main__":
    main()
