"""The verdicts of the whole exam, by both rules of extraction."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from benchmarks.grading.generated.case import last_line
from rpg.config.task import MathVerifier
from rpg.rewards import Grader

DATA = Path(__file__).resolve().parents[2] / "grading" / "data"


def dump(folder: Path) -> None:
    items = []
    files = []
    for file in sorted(DATA.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            case = json.loads(line)
            response = case.get("response") or last_line(case["answer"])
            items.append((response, case["gold"], case.get("cut", False)))
            files.append(f"exam-{case['exam']}" if "exam" in case else file.stem)
    for fallback in ("none", "boxed"):
        verifier = MathVerifier() if fallback == "none" else MathVerifier(fallback="boxed")
        with Grader(verifier) as grader:
            grades = grader.grade(items)
        lines = defaultdict(list)
        for item, grade, name in zip(items, grades, files, strict=True):
            verdict = "right" if grade.correct else "wrong"
            lines[name].append(
                json.dumps([verdict, grade.extracted, grade.reason, item[1], item[0][-80:]])
            )
        for name, verdicts in lines.items():
            (folder / f"{name}-{fallback}.txt").write_text("\n".join(verdicts) + "\n")
