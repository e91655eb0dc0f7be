"""Writes train.jsonl and test.jsonl: words of four letters that are to be reversed. Change it into
a task of your own.

    python make_data.py

A problem is a line of JSON with `prompt` and `answer`. `demonstration` is a full response; only a
tiny model made from scratch needs it, to learn to answer at all before reinforcement learning
begins.
"""

import itertools
import json
import random
from pathlib import Path

LETTERS = "abcdefgh"
TRAINING = 2000
HELD_OUT = 64


def problem(word: str) -> dict[str, str]:
    backwards = word[::-1]
    return {
        "prompt": f"reverse {word}:",
        "answer": backwards,
        "demonstration": f"{' '.join(backwards)} #{backwards}",
    }


def write(folder: Path) -> None:
    words = ["".join(letters) for letters in itertools.product(LETTERS, repeat=4)]
    random.Random(0).shuffle(words)
    held_out, training = (
        words[:HELD_OUT],
        words[HELD_OUT : HELD_OUT + TRAINING],
    )  # nothing is in both
    for name, part in (("train", training), ("test", held_out)):
        lines = [json.dumps(problem(word)) + "\n" for word in part]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent)
