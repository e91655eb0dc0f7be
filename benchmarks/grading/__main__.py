"""Grading measured: the exam of README.md by ours and by other graders, and answers made from gold
answers.

    python -m benchmarks.grading              # the exam, by every grader that is installed
    # by ours alone: the figures that README.md is signed with
    python -m benchmarks.grading ours
    python -m benchmarks.grading --most 100   # at most 100 answers of each family and label
    # 10,000 made answers: seconds, and the ratio to math-verify
    python -m benchmarks.grading speed
    python -m benchmarks.grading classes      # 20,000 made answers: mistakes and time by class
    # the other graders on a sample of those
    python -m benchmarks.grading disagreements --list FILE
    # responses of models (JSON lines: response, gold) that only box
    python -m benchmarks.grading boxes FILE...

Answers are made from the gold answers of the benchmarks whose files lie in $RPG_DATA (or --data):
right ones in other forms, and near misses (benchmarks/grading/variants.py). The number of processes
is that of --workers.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.grading import judges, made
from benchmarks.grading.exam import cases, figures, sample
from rpg.answers import last_box
from rpg.config.task import MathVerifier
from rpg.tasks.rewards import Item


def loaded() -> Iterator[tuple[str, judges.Judge]]:
    """The other graders that are installed; says how to install the rest."""
    for name, (load, install) in judges.OTHERS.items():
        try:
            yield name, load()
        except Exception as error:  # noqa: BLE001 - a missing package, or one that is there in another version
            print(f"{name} is left out ({error}): {install}\n")


def exam(arguments) -> None:
    """Mistakes by family and grader, and where each grader differs from the label in a model's own
    response."""
    found = sample(cases(), arguments.most) if arguments.most else cases()
    items = [case.item for case in found]
    by_grader = {name: judges.ours(verifier, items) for name, verifier in judges.OURS.items()}
    if arguments.what == "exam":
        by_grader |= {name: judges.others(judge, items) for name, judge in loaded()}
    lines: dict[str, list[str]] = {}
    for name, graded in by_grader.items():
        milliseconds = f"{1000 * graded.seconds / len(items):.2f}"
        for family, cells in figures(found, graded.verdicts).items():
            time = (
                f" | {milliseconds if family == 'all' else ''}" if arguments.what == "exam" else ""
            )
            lines.setdefault(family, []).append(f"| {family} | {name} | {cells}{time} |")
    time = " | ms per answer" if arguments.what == "exam" else ""
    print(f"| family | grader | right refused | hedges accepted | other wrong accepted{time} |")
    print("|---|---|--:|--:|--:|" + ("--:|" if time else ""))
    print("\n".join(line for family in lines.values() for line in family))
    for name, graded in by_grader.items():
        if graded.given_up:
            print(
                f"{name}: {graded.given_up} answers that it crashed on or took too long "
                "for, refused"
            )
    if arguments.list:
        verdicts = zip(*(graded.verdicts for graded in by_grader.values()), strict=True)
        rows = [
            case.model_dump(by_alias=True, exclude_defaults=True)
            | dict(zip(by_grader, each, strict=True))
            for case, each in zip(found, verdicts, strict=True)
            if any(verdict != (case.label == "right") for verdict in each)
        ]
        Path(arguments.list).write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        )


def boxes(arguments) -> None:
    """Of the responses whose last box alone is right, how many are refused as a whole; and of the
    others, accepted."""
    for path in arguments.files:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        boxed = [
            (row["response"], str(row["gold"]), last_box(row["response"]))
            for row in rows
            if row["gold"]
        ]
        boxed = [(response, gold, box) for response, gold, box in boxed if box]
        alone = judges.ours(
            MathVerifier(), [Item(f"Answer: ${box}$", gold) for _, gold, box in boxed]
        ).verdicts
        whole = judges.ours(
            MathVerifier(fallback="boxed"), [Item(response, gold) for response, gold, _ in boxed]
        ).verdicts
        pairs = list(zip(alone, whole, strict=True))
        refused, accepted = pairs.count((True, False)), pairs.count((False, True))
        print(
            f"{path.name}: {refused} of {sum(alone)} refused, {accepted} of "
            f"{len(alone) - sum(alone)} accepted"
        )


def main() -> None:
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="exam",
        choices=["exam", "ours", "speed", "classes", "disagreements", "boxes"],
    )
    parser.add_argument("files", nargs="*", type=Path, help="of `boxes`")
    parser.add_argument("--data", type=Path, default=os.environ.get("RPG_DATA"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--most", type=int, help="answers of the exam of each family and label")
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument(
        "--compare", type=int, default=1_000, help="answers that other graders are tried on"
    )
    parser.add_argument("--list", help="file for the mistakes or disagreements, one JSON line each")
    parser.add_argument(
        "--keep", type=int, default=240, help="disagreements that --list keeps, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    match arguments.what:
        case "speed":
            made.speed(arguments)
        case "classes":
            made.classes(arguments)
        case "boxes":
            boxes(arguments)
        case "disagreements":
            made.disagreements(arguments, dict(loaded()))
        case _:
            exam(arguments)


if __name__ == "__main__":
    main()
