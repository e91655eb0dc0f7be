"""Intervals of accuracy curves: at every checkpoint the interval of the table, over seeds and problems."""

from collections.abc import Sequence

import duckdb
import numpy as np
import pandas

from rpg import stats
from rpg.report.summary import MEAN
from rpg.store import queries


def over_problems(
    db: duckdb.DuckDBPyConnection, sweep: str, curves: pandas.DataFrame, benchmarks: Sequence[str]
) -> pandas.DataFrame:
    """`curves` (columns variant, name, step, mean, low, high) with low and high of `stats.accuracy`.

    With two or three seeds an interval over seeds alone says little; the problems say more. A point whose seeds did
    not answer the same problems keeps the interval it has.
    """
    scores = queries.scores(db, sweep)[["run", "variant", "step"]].drop_duplicates()
    checkpoints = list(scores[["run", "step"]].itertuples(index=False, name=None))
    problems = queries.problem_scores(db, sweep, checkpoints).merge(scores, on=["run", "step"])
    arrays = {key: _array(part) for key, part in problems.groupby(["variant", "step", "benchmark"])}
    curves = curves.copy()
    for index, row in curves.iterrows():
        parts = benchmarks if row["name"] == MEAN else [row["name"]]
        found = [arrays.get((row["variant"], row["step"], name)) for name in parts]
        if any(array is None for array in found) or len({len(array) for array in found}) != 1:
            continue
        estimate = stats.accuracy(found)
        if np.isclose(estimate.mean, row["mean"]):
            curves.loc[index, ["low", "high"]] = estimate.low, estimate.high
    return curves


def _array(part: pandas.DataFrame) -> np.ndarray | None:
    """(seeds, problems), or None where a seed lacks a problem."""
    table = part.pivot(index="run", columns="problem_id", values="accuracy")
    return None if table.isna().any(axis=None) else table.to_numpy()
