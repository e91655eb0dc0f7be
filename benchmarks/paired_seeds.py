"""Differences between the variants of a table of training metrics, paired by seed, and the sizes
that they exclude.

    python -m benchmarks.paired_seeds docs/results/weighting-words.csv --after 6

Each seed counts with its mean over the steps behind `--after`. A difference has its 95 % interval
(Student's t) for this comparison alone, and the farther of its ends: a test of equivalence (two
one-sided tests, Schuirmann 1987, at 2.5 %) says that the difference is smaller. That each of
several pairs is below its own size holds at this level as well, without correction: all of these
tests have to reject, and any one that errs does so as rarely (Berger 1982).
"""

import argparse
from itertools import combinations
from pathlib import Path

import pandas as pd

from rpg.stats import t_quantile


def differences(metrics: pd.DataFrame, column: str) -> pd.DataFrame:
    """One row for each two variants, from rows with `variant`, `seed` and the metric: `difference`,
    `half` width of its 95 % interval, and `below`, the size that the interval excludes.
    """
    means = metrics.pivot_table(index="seed", columns="variant", values=column, sort=False).dropna()
    rows = []
    for one, other in combinations(means, 2):
        each = means[one] - means[other]
        half = t_quantile(len(each) - 1) * each.sem()
        rows.append((one, other, len(each), each.mean(), half, abs(each.mean()) + half))
    return pd.DataFrame(
        rows, columns=["variant", "against", "seeds", "difference", "half", "below"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "table", type=Path, help="CSV with the columns variant, seed, step and metrics"
    )
    parser.add_argument("--after", type=int, default=0, help="leave out the steps up to this one")
    parser.add_argument("--metrics", nargs="+", default=["accuracy", "response_length"])
    options = parser.parse_args()
    metrics = pd.read_csv(options.table)
    for column in options.metrics:
        print(
            f"\n| {column}: variant | against | seeds | difference | less than "
            "|\n|---|---|--:|--:|--:|"
        )
        for row in differences(metrics[metrics["step"] > options.after], column).itertuples():
            shown = f"{row.difference:+.3f} ± {row.half:.3f} | {row.below:.3f}"
            print(f"| {row.variant} | {row.against} | {row.seeds} | {shown} |")


if __name__ == "__main__":
    main()
