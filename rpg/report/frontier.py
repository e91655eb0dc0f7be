"""What a distance from the initial model buys, and what is left of a policy's diversity: pass@k and maj@k over k."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas

from rpg import stats
from rpg.report.summary import MEAN
from rpg.store import queries

DIRECTIONS = {
    "policy_to_initial": "KL(policy ‖ initial)",
    "initial_to_policy": "KL(initial ‖ policy)",
}
TRAINING = "training step"
"""What a path goes along where no axis of the sweep is a number."""
SUBSETS = 64
"""Random subsets of a problem's samples that maj@k is averaged over; pass@k has a closed form."""


class Along(NamedTuple):
    """An axis of numbers that a path can go along."""

    name: str
    values: Mapping[str, float]
    """Variant -> its value."""


def numeric_axes(manifests: Mapping[str, Mapping[str, Any]]) -> list[Along]:
    """Axes of a sweep (beside the seed) on which its variants have different numbers."""
    found: dict[str, dict[str, float]] = {}
    for one in manifests.values():
        for name, value in one["axes"].items():
            if name != "seed" and isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, {})[one["variant"]] = float(value)
    return [Along(name, values) for name, values in found.items() if len(set(values.values())) > 1]


def path_labels(
    manifests: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str], along: str
) -> dict[str, str]:
    """Variant -> label of its path: that of its first variant, without the part that says where on the path it is."""
    groups: dict[str, list[str]] = {}
    for one in manifests.values():
        others = {name: value for name, value in one["axes"].items() if name not in ("seed", along)}
        groups.setdefault(json.dumps(others, sort_keys=True), []).append(one["variant"])
    last = along.rpartition(".")[2]
    made = {}
    for variants in groups.values():
        label = labels.get(variants[0], variants[0])
        short = " ".join(part for part in label.split(" ") if not part.startswith((f"{along}=", f"{last}=")))
        made.update(dict.fromkeys(variants, short or label))
    return made


def paths(
    found: pandas.DataFrame, of: Mapping[str, str], along: Along | None, per: str = "per_response"
) -> pandas.DataFrame:
    """Points of all paths, means over seeds: label, place, direction, x (KL, nats), accuracy, lowest, highest, seeds.

    `found` as `queries.frontier` gives it; `of`: variant -> label of its path. `place` is the value of `along` at the
    last evaluated step of each run, or the training step where there is no axis to go along.
    """
    known = found[found["variant"].isin(list(of))]
    if along is None:
        known = known.assign(place=known["step"].astype(float))
    else:
        last = known.groupby("run")["step"].transform("max")
        known = known[known["step"] == last].assign(place=known["variant"].map(dict(along.values)))
    known = known[known["place"].notna()].assign(label=known["variant"].map(dict(of)), x=known[per])
    return (
        known.groupby(["label", "place", "direction"], sort=False)
        .agg(
            x=("x", "mean"),
            accuracy=("accuracy", "mean"),
            lowest=("accuracy", "min"),
            highest=("accuracy", "max"),
            seeds=("seed", "nunique"),
        )
        .reset_index()
    )


def tries(samples: int) -> list[int]:
    """k of pass@k: powers of two up to the number of samples, and that number."""
    return sorted({2**i for i in range(samples.bit_length()) if 2**i <= samples} | {samples})


def checkpoints(
    db: duckdb.DuckDBPyConnection, sweep: str, variant: str, step: int | None = None
) -> list[tuple[str, int]]:
    """(run, step) of a variant's seeds at `step`, or at the last that all have evaluated on all benchmarks."""
    scores = queries.scores(db, sweep)
    whole = MEAN if (scores["benchmark"] == MEAN).any() else None
    mine = scores[(scores["variant"] == variant) & (scores["benchmark"].eq(whole) if whole else True)]
    if mine.empty:
        return []
    counts = mine.groupby("step")["run"].nunique()
    step = int(counts[counts == counts.max()].index.max()) if step is None else step
    return [(str(run), step) for run in sorted(mine.loc[mine["step"] == step, "run"].unique())]


def diversity(
    db: duckdb.DuckDBPyConnection,
    sweep: str,
    variant: str,
    measures: Sequence[str] = ("pass", "maj"),
    step: int | None = None,
) -> dict[str, dict[int, list[np.ndarray]]]:
    """Measure -> k -> an array (seeds, problems) per benchmark, as `rpg.stats` takes them, of `step` or the last one.

    pass@k is the unbiased chance that one of k samples is right (arXiv 2107.03374, eq. 1); maj@k the chance that the
    most frequent answer of k samples is right, over random subsets of the samples there are. Seeds that did not answer
    the same problems equally often are not comparable: then there is nothing.
    """
    rows = queries.answers(db, sweep, checkpoints(db, sweep, variant, step))
    found: dict[str, dict[int, list[np.ndarray]]] = {measure: {} for measure in measures}
    for _, part in rows.groupby("benchmark", sort=False):
        runs, problems = part["run"].nunique(), part["problem_id"].nunique()
        samples, left = divmod(len(part), runs * problems)
        if left or (part.groupby(["run", "problem_id"]).size() != samples).any():
            return {measure: {} for measure in measures}
        shape = (runs, problems, samples)
        right = part["correct"].to_numpy(bool).reshape(shape)
        for k in tries(samples):
            if "pass" in found:
                counts = right.sum(axis=2)
                value = np.array([stats.pass_at_k(np.full(problems, samples), row, k) for row in counts])
                found["pass"].setdefault(k, []).append(value)
            if "maj" in found:
                codes = pandas.factorize(part["extracted"])[0].reshape(shape)
                found["maj"].setdefault(k, []).append(_majority(codes, right, k))
    return found


def mean_over(
    db: duckdb.DuckDBPyConnection, sweep: str, variants: Sequence[str], benchmark: str
) -> stats.Estimate | None:
    """Accuracy at the last checkpoint, the mean over these variants, with its interval over seeds and problems.

    None where they were not evaluated with as many seeds on as many problems.
    """
    found: list[list[np.ndarray]] = []
    for variant in variants:
        rows = queries.answers(db, sweep, checkpoints(db, sweep, variant))
        rows = rows if benchmark == MEAN else rows[rows["benchmark"] == benchmark]
        arrays = []
        for _, part in rows.groupby("benchmark", sort=False):
            table = part.groupby(["run", "problem_id"])["correct"].mean().unstack("problem_id")
            arrays.append(table.to_numpy(float))
        found.append(arrays)
    shapes = {tuple(array.shape for array in arrays) for arrays in found}
    if len(shapes) != 1 or not found[0] or any(np.isnan(array).any() for arrays in found for array in arrays):
        return None
    return stats.accuracy([np.mean(same, axis=0) for same in zip(*found, strict=True)])


def _majority(codes: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """(seeds, problems) chance that the most frequent of k answers is right; `codes` -1 is no answer and has no vote."""
    rng = np.random.default_rng(k)
    samples = codes.shape[2]
    draws = 1 if k == samples else SUBSETS
    chosen = np.stack([rng.permutation(samples)[:k] for _ in range(draws)])
    value = np.zeros(codes.shape[:2])
    for place in np.ndindex(*value.shape):
        mine, verdicts = codes[place], right[place]
        known, inverse = np.unique(mine, return_inverse=True)
        votes = np.zeros((draws, len(known)))
        np.add.at(votes, (np.arange(draws)[:, None], inverse[chosen]), 1.0)
        votes[:, known < 0] = 0.0
        # The verdict depends on the answer alone: that of its first sample.
        verdict = np.array([verdicts[np.argmax(mine == code)] for code in known], float)
        top = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
        counts = top.sum(axis=1)
        value[place] = np.mean(np.where(counts > 0, (top * verdict).sum(axis=1) / np.maximum(counts, 1), 0.0))
    return value


def over_k(
    db: duckdb.DuckDBPyConnection, sweep: str, labels: Mapping[str, str], step: int | None = None
) -> pandas.DataFrame:
    """pass@k and maj@k of variants over k: label, measure, k, mean, low, high (95 %, seeds and problems), seeds.

    Of `step`, or of the last checkpoints.
    """
    rows = []
    for variant, label in labels.items():
        for measure, values in diversity(db, sweep, variant, step=step).items():
            for k, arrays in values.items():
                estimate = stats.accuracy(arrays)
                rows.append(
                    {
                        "label": label, "measure": measure, "k": k, "mean": estimate.mean, "low": estimate.low,
                        "high": estimate.high, "seeds": estimate.seeds,
                    }
                )  # fmt: skip
    return pandas.DataFrame(rows, columns=["label", "measure", "k", "mean", "low", "high", "seeds"])
