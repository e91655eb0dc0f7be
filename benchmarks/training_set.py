"""How long reading DAPO-Math-17k takes: a made-up file of the hub's schema and size (17,917 problems, 100 times each).

python benchmarks/training_set.py [--repeats 100]
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
from rpg.config.task import RECIPE_TEMPLATE
from rpg.tasks.training_sets import load_training, training_set

PROBLEMS = 17_917
WORDS = (
    "number integer positive real triangle sum product find value of the all such that for which is a".split()
)


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
                "reward_model": {"ground_truth": str(rng.randint(0, 999)), "style": "rule-lighteval/MATH_v2"},
                "extra_info": {"index": f"{rng.getrandbits(128):032x}"},
            }
            for text in texts
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=100)
    repeats = parser.parse_args().repeats
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
