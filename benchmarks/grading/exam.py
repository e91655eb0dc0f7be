"""The exam: answers with the label that a mathematician gives them (data/*.jsonl), and a grader's
mistakes on them."""

from __future__ import annotations

import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.grading.generated.case import last_line
from rpg.tasks.rewards import Item

DATA = Path(__file__).with_name("data")
FAMILIES: dict[str, list[str]] = tomllib.loads((DATA / "families.toml").read_text(encoding="utf-8"))
FAMILY_OF = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
LABELS = ("right", "hedge", "wrong")


class Case(BaseModel):
    """One line of the data (README.md says what its fields mean)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = Field(alias="class")
    label: Literal["right", "hedge", "wrong", "none"]
    gold: str
    exam: int | None = None
    answer: str = ""
    response: str = ""
    note: str = ""
    model: str = ""
    problem: str = ""
    cut: bool = False

    @property
    def family(self) -> str:
        """The line of the table that it counts for."""
        return FAMILY_OF[self.kind]

    @property
    def group(self) -> str:
        """Right, hedge or wrong: a response that states nothing has to be refused as a wrong one
        has."""
        return "wrong" if self.label == "none" else self.label

    @property
    def item(self) -> Item:
        """What a grader is given; an answer stands on the last line of a response."""
        return Item(self.response or last_line(self.answer), self.gold, self.cut)


def cases(name: str = "*") -> list[Case]:
    """The cases of the data files of that name, in the order of their lines."""
    files = sorted(DATA.glob(f"{name}.jsonl"))
    return [
        Case.model_validate_json(line)
        for file in files
        for line in file.read_text("utf-8").splitlines()
    ]


def sample(found: Sequence[Case], most: int) -> list[Case]:
    """At most that many of each family and label, drawn with a fixed seed; the models' own
    responses are all kept."""
    groups = defaultdict(list)
    for case in found:
        groups[case.family, case.group].append(case)
    rng = random.Random(0)
    return [
        case
        for group in groups.values()
        for case in (group if group[0].model else rng.sample(group, min(most, len(group))))
    ]


def figures(found: Sequence[Case], verdicts: Sequence[bool]) -> dict[str, str]:
    """By family, and for all: the cells of the table, mistakes and answers of each label."""
    answers, mistakes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for case, verdict in zip(found, verdicts, strict=True):
        for family in (case.family, "all"):
            answers[family, case.group] += 1
            mistakes[family, case.group] += verdict != (case.label == "right")
    families = [
        family for family in (*FAMILIES, "all") if any(answers[family, group] for group in LABELS)
    ]
    return {
        family: " | ".join(
            f"{mistakes[family, group]} of {answers[family, group]}"
            if answers[family, group]
            else "-"
            for group in LABELS
        )
        for family in families
    }
