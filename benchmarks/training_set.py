"""How long reading DAPO-Math-17k takes: a made-up file of the hub's schema and size (17,917
problems, 100 times each).

python benchmarks/training_set.py [--repeats 100] python benchmarks/training_set.py --leaks 1000000
# and how long it takes to look for 110 problems in a million rows
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rpg.config.task import RECIPE_TEMPLATE, TIERS
from rpg.tasks.checks import leaks
from rpg.tasks.problems import Problem
from rpg.tasks.training_sets import load_training, training_set

PROBLEMS = 17_917
WORDS = (
    "number integer positive real triangle sum product find value of the all such that for "
    "which is a"
).split()


VOCABULARY = [f"{word}{i or ''}" for word in WORDS for i in range(40)]


def table() -> pyarrow.Table:
    """Each problem once: four in five English, of 60 words, the others Chinese."""
    rng = random.Random(0)
    texts = [
        f"求所有满足条件的正整数 $n$，使得 $n^2+{i}$ 能被 ${rng.randint(2, 99)}$ 整除。"
        if i % 5 == 0
        else " ".join(rng.choices(WORDS, k=60)) + f" $x^{{{i}}}$"
        for i in range(PROBLEMS)
    ]
    return pyarrow.Table.from_pylist(
        [
            {
                "data_source": "math_dapo",
                "prompt": [{"content": RECIPE_TEMPLATE.replace("{prompt}", text), "role": "user"}],
                "ability": "MATH",
                "reward_model": {
                    "ground_truth": str(rng.randint(0, 999)),
                    "style": "rule-lighteval/MATH_v2",
                },
                "extra_info": {"index": f"{rng.getrandbits(128):032x}"},
            }
            for text in texts
        ]
    )


def look_for_leaks(rows: int) -> None:
    """Problems of a benchmark's length, in rows of 60 words, one in a thousand of which holds one
    of them."""
    rng = random.Random(0)
    made = [" ".join(rng.choices(VOCABULARY, k=60)) + f" $x^{{{i}}}$." for i in range(110 + 10_000)]
    problems = [Problem(f"p{i}", text, text, "1", "made") for i, text in enumerate(made)]
    held_out, training = problems[:110], problems[110:]
    for i in range(10):
        text = RECIPE_TEMPLATE.replace("{prompt}", held_out[i].text)
        training[1000 * i] = Problem(f"leak{i}", text, text, "1", "made")
    for tiers in (("similar",), TIERS):
        began = time.process_time()
        pairs = sum(
            len(leaks(training, {"made": held_out}, tiers=tiers))
            for _ in range(rows // len(training))
        )
        seconds = time.process_time() - began
        print(
            f"{rows:,} rows, tiers {', '.join(tiers)}: {seconds:.0f} s of processor time, "
            f"{pairs:,} leaks found"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--leaks", type=int, help="rows to look for leaks in")
    arguments = parser.parse_args()
    if arguments.leaks:
        look_for_leaks(arguments.leaks)
        return
    repeats = arguments.repeats
    with tempfile.TemporaryDirectory() as folder:
        path, once = Path(folder) / "dapo-math-17k.parquet", table()
        with pyarrow.parquet.ParquetWriter(path, once.schema) as writer:
            for _ in range(repeats):
                writer.write_table(once)
        began = time.perf_counter()
        loaded = load_training(training_set("dapo-math-17k-en"), folder)
        seconds = time.perf_counter() - began
        print(
            f"{loaded.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB: {seconds:.1f} s; "
            f"{len(loaded.problems):,} problems kept, {len(loaded.dropped):,} left out"
        )


if __name__ == "__main__":
    main()
