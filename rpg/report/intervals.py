"""Accuracy curves with the interval of the tables, over seeds and problems, at every checkpoint."""

from collections.abc import Sequence

import duckdb
import numpy as np
import pandas

from rpg import stats
from rpg.report.summary import MEAN
from rpg.store import queries


def score_curves(
    db: duckdb.DuckDBPyConnection, series: Sequence[queries.Series], names: Sequence[str], x: str = "step"
) -> pandas.DataFrame:
    """`queries.score_curves` with `name` for `benchmark`, and low and high from `stats.accuracy`.

    With two or three seeds an interval over seeds alone is of little use. A point whose seeds did not answer the same
    problems keeps Student's interval over seeds.
    """
    curves = queries.score_curves(db, series, names, x).rename(columns={"benchmark": "name"})
    arrays = {}
    for sweep in dict.fromkeys(key.sweep for key in series):
        scores = queries.scores(db, sweep, superseded=True)
        variants = [key.variant for key in series if key.sweep == sweep]
        runs = scores[scores["variant"].isin(variants)]
        runs = runs[["run", "variant", "step"]].drop_duplicates()
        checkpoints = list(runs[["run", "step"]].itertuples(index=False, name=None))
        problems = queries.problem_scores(db, sweep, checkpoints).merge(runs, on=["run", "step"])
        for key, part in problems.groupby(["variant", "step", "benchmark"]):
            arrays[sweep, *key] = _array(part)
        benchmarks = queries.benchmarks(db, [sweep])
        for place, row in curves[curves["sweep"] == sweep].iterrows():
            at = sweep, row["variant"], row["step"]
            # The mean is over the run's own benchmarks; one that was imported may bring others into the sweep.
            parts = [b for b in benchmarks if (*at, b) in arrays] if row["name"] == MEAN else [row["name"]]
            scored = [array for name in parts if (array := arrays.get((*at, name))) is not None]
            if len(scored) < len(parts) or len({len(array) for array in scored}) != 1:
                continue
            estimate = stats.accuracy(scored)
            if np.isclose(estimate.mean, row["mean"]):
                curves.loc[place, ["low", "high"]] = estimate.low, estimate.high
    return curves


def _array(part: pandas.DataFrame) -> np.ndarray | None:
    """(seeds, problems) of rows ordered by run and problem, or None where a seed lacks a problem."""
    runs = part["run"].nunique()
    if len(part) % runs:
        return None
    problems = part["problem_id"].to_numpy().reshape(runs, -1)
    return part["accuracy"].to_numpy().reshape(runs, -1) if (problems == problems[0]).all() else None
