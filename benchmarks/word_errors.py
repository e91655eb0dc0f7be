"""How the responses to word problems are wrong, at the first and the last evaluated step of every
variant.

    python -m benchmarks.word_errors smollm2 --home rpg-data

Each response counts once: `right`, or the first of these that holds: `no answer` (nothing after
"Answer:", or cut off), `no steps` (a bare answer, wrong), `slip` (a step whose arithmetic is
wrong), `other sum` (true steps, but not those that the text asks for). `with steps` is the share of
responses, right or wrong, that show a step.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from pathlib import Path

from rpg.store import Layout
from rpg.store.current import current_runs
from rpg.store.samples import read_eval

OUTCOMES = ("right", "no answer", "no steps", "slip", "other sum")
_STEP = re.compile(r"(\d+)\s*([-+*])\s*(\d+)\s*=\s*(\d+)")


def kind(response: str, correct: bool, extracted: str | None) -> str:
    """One of OUTCOMES."""
    if correct:
        return "right"
    if extracted is None:
        return "no answer"
    steps = _STEP.findall(response)
    if not steps:
        return "no steps"
    return "slip" if any(not _true(*step) for step in steps) else "other sum"


def _true(left: str, operator: str, right: str, result: str) -> bool:
    a, b = int(left), int(right)
    return int(result) == {"+": a + b, "-": a - b, "*": a * b}[operator]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep")
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for folder in current_runs(Layout.at(options.home), options.sweep):
        variant = folder.read_manifest()["variant"]
        for benchmark in folder.benchmarks():
            steps = folder.eval_steps(benchmark)
            for when, step in (("first", steps[0]), ("last", steps[-1])):
                for row in read_eval(folder, benchmark, step).to_pylist():
                    found = counts[variant, benchmark, when]
                    found[kind(row["response"], row["correct"], row["extracted"])] += 1
                    found["with steps"] += bool(_STEP.search(row["response"]))
    columns = (*OUTCOMES, "with steps")
    print(f"| variant | benchmark | step | responses | {' | '.join(columns)} |")
    print("|---|---|---|--:|" + "--:|" * len(columns))
    for (variant, benchmark, when), found in counts.items():
        total = sum(found[name] for name in OUTCOMES)
        shares = " | ".join(f"{found[name] / total:.2f}" for name in columns)
        print(f"| {variant} | {benchmark} | {when} | {total} | {shares} |")


if __name__ == "__main__":
    main()
