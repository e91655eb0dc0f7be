"""What training changed, per variant: last accuracy minus first, paired by seed and problem.

    python -m benchmarks.gains smollm2 --home rpg-data

The mean of all benchmarks with its 95 % interval over seeds and problems (`rpg.stats.accuracy`),
the same of the difference (`rpg.stats.family`, of this one alone): a problem that is easy is so
before and after, which two intervals beside each other do not know.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from rpg.stats import ERROR, accuracy, family
from rpg.store import Layout, RunFolder
from rpg.store.current import current_runs
from rpg.store.samples import read_eval


def scores(folder: RunFolder, benchmark: str, step: int) -> np.ndarray:
    """(P,) share of right samples per problem, in the order of the problems' ids."""
    found: dict[str, list[bool]] = defaultdict(list)
    for row in read_eval(folder, benchmark, step).to_pylist():
        found[row["problem_id"]].append(row["correct"])
    return np.array([np.mean(found[name]) for name in sorted(found)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep")
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    variants: dict[str, list[RunFolder]] = defaultdict(list)
    for folder in current_runs(Layout.at(options.home), options.sweep):
        variants[folder.read_manifest()["variant"]].append(folder)
    print("| variant | seeds | first | last | difference |")
    print("|---|--:|--:|--:|--:|")
    for variant, folders in variants.items():
        names = folders[0].benchmarks()
        first, last = (
            [
                np.array([scores(folder, name, folder.eval_steps(name)[end]) for folder in folders])
                for name in names
            ]
            for end in (0, -1)
        )
        shown = [
            f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]"
            for one in map(accuracy, (first, last))
        ]
        gain = family(
            [np.stack([one, other])[None] for one, other in zip(first, last, strict=True)]
        )
        low, high = gain.intervals(ERROR)
        shown.append(f"{gain.difference.item():+.3f} [{low.item():+.3f}, {high.item():+.3f}]")
        print(f"| {variant} | {len(folders)} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
