r"""Which verifier `rpg adopt` chooses for the answers of a data set, and how many answers it
accepts when they are written as models write them.

    python -m benchmarks.grading.rewritten_golds FILE.jsonl [--column answer]

Each answer is written in dollars, in `\(...\)`, bare, with `\dfrac`, with a full stop and without
`\left` and `\right`; it counts as accepted where all of these are. gaokao2023en of
QwenLM/Qwen2.5-Math (evaluation/data) at a45202bd: 383 answers, math is chosen, 382 are accepted.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rpg.config.task import MarkerVerifier, MathVerifier, Verifier
from rpg.interop.adopting.verifier_choice import candidates, choose
from rpg.tasks.rewards import Item, grader_for

MARKER = "Answer:"
VERIFIERS: dict[str, Verifier] = {
    "number": MarkerVerifier(marker=MARKER, match="number"),
    "math": MathVerifier(fallback="boxed"),
    "text": MarkerVerifier(marker=MARKER),
}


def rewritten(gold: str) -> list[str]:
    bare = gold.strip().strip("$").strip()
    return [
        f"${bare}$",
        f"\\({bare}\\)",
        bare,
        bare.replace("\\frac", "\\dfrac"),
        f"{bare}.",
        bare.replace("\\left", "").replace("\\right", ""),
    ]


def refused(verifier: Verifier, golds: Sequence[str]) -> list[str]:
    """The answers of which a verifier refuses a rewriting."""
    forms = [(gold, text) for gold in golds for text in rewritten(gold)]
    items = [Item(verifier.written(text), gold) for gold, text in forms]
    with grader_for(verifier) as grader:
        grades = grader.grade(items)
    names = [gold for (gold, _), grade in zip(forms, grades, strict=True) if not grade.correct]
    return list(dict.fromkeys(names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--column", default="answer")
    arguments = parser.parse_args()
    lines = arguments.file.read_text("utf-8").split("\n")
    values = [json.loads(line).get(arguments.column) for line in lines if line.strip()]
    golds = [str(value) for value in values if str(value or "").strip()]
    best, measured = choose(candidates(golds, MARKER), golds)
    print(f"{len(golds)} answers; chosen: {measured}")
    for name, verifier in VERIFIERS.items():
        left_out = refused(verifier, golds)
        chosen = " (chosen)" if name == best else ""
        print(f"{name}{chosen}: accepts {len(golds) - len(left_out)} of {len(golds)}")


if __name__ == "__main__":
    main()
