"""Accuracy against the distance from the initial model, and a policy's diversity: pass@k and maj@k
over k."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas

from rpg import stats
from rpg.report.labels import without
from rpg.report.selection import MEAN
from rpg.store import queries
from rpg.store.queries import Database

DIRECTIONS = {
    "policy_to_initial": "KL(policy ‖ initial)",
    "initial_to_policy": "KL(initial ‖ policy)",
}
TRAINING = "training step"
"""What paths follow if no axis of the sweep is numeric."""
SUBSETS = 64
"""Random subsets of a problem's samples, or more, over which maj@k is averaged; pass@k has a closed
form."""


def numeric_axes(manifests: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Axes of a sweep, other than the seed, on which its variants have different numbers: axis ->
    variant -> its value."""
    axes: dict[str, dict[str, float]] = {}
    for manifest in manifests.values():
        for name, value in manifest["axes"].items():
            if name != "seed" and isinstance(value, int | float) and not isinstance(value, bool):
                axes.setdefault(name, {})[manifest["variant"]] = float(value)
    return {name: values for name, values in axes.items() if len(set(values.values())) > 1}


def path_labels(
    manifests: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str], along: str
) -> dict[str, str]:
    """Variant -> label of its path: the label of its first variant without the value on the axis
    that the path follows."""
    groups: dict[str, list[str]] = {}
    for manifest in manifests.values():
        others = {
            name: value for name, value in manifest["axes"].items() if name not in ("seed", along)
        }
        groups.setdefault(json.dumps(others, sort_keys=True), []).append(manifest["variant"])
    paths = {}
    for variants in groups.values():
        label = labels.get(variants[0], variants[0])
        paths.update(dict.fromkeys(variants, without(label, along) or label))
    return paths


def paths(
    rows: pandas.DataFrame, labels: Mapping[str, str], along: Mapping[str, float] | None
) -> pandas.DataFrame:
    """Points of all paths, means over seeds: label, place, direction, x (KL, nats per response),
    accuracy, lowest, highest, seeds.

    `rows`: the result of `queries.frontier`; `labels`: variant -> label of its path. `place` is the
    value of `along` at the last evaluated step of each variant, without runs that lack it, or the
    training step if paths follow no axis.
    """
    points = rows[rows["variant"].isin(list(labels))]
    if along is None:
        points = points.assign(place=points["step"].astype(float))
    else:
        last = points.groupby("variant")["step"].transform("max")
        points = points[points["step"] == last].assign(place=points["variant"].map(dict(along)))
    points = points[points["place"].notna()].assign(x=points["per_response"])
    points["label"] = points["variant"].map(dict(labels))
    each = points.groupby(["label", "place", "direction"], sort=False)
    ends = {"lowest": ("accuracy", "min"), "highest": ("accuracy", "max")}
    means = {"x": ("x", "mean"), "accuracy": ("accuracy", "mean")}
    return each.agg(**means, **ends, seeds=("seed", "nunique")).reset_index()


def tries(samples: int) -> list[int]:
    """k of pass@k: powers of two up to the number of samples, and that number."""
    return sorted({2**i for i in range(samples.bit_length()) if 2**i <= samples} | {samples})


def checkpoints(
    db: Database, sweep: str, variant: str, step: int | None = None
) -> list[tuple[str, int]]:
    """(run, step) of a variant's seeds at `step`, or at the last step that all have evaluated on
    all benchmarks."""
    scores = queries.scores(db, sweep)
    of_variant = scores[(scores["variant"] == variant) & (scores["benchmark"] == MEAN)]
    if of_variant.empty:
        return []
    counts = of_variant.groupby("step")["run"].nunique()
    step = int(counts[counts == counts.max()].index.max()) if step is None else step
    return [
        (str(run), step)
        for run in sorted(of_variant.loc[of_variant["step"] == step, "run"].unique())
    ]


def diversity(
    db: Database,
    sweep: str,
    variant: str,
    measures: Sequence[str] = ("pass", "maj"),
    step: int | None = None,
) -> dict[str, dict[int, list[np.ndarray]]]:
    """Measure -> k -> an array (seeds, problems) per benchmark, for `rpg.stats`, at `step` or the
    last step.

    pass@k is the unbiased estimate of the probability that one of k samples is right (arXiv
    2107.03374, eq. 1); maj@k that of the most frequent answer being right, over random subsets of
    the samples. The result is empty for seeds that did not answer the same problems equally often,
    since they cannot be compared.
    """
    rows = queries.answers(db, sweep, checkpoints(db, sweep, variant, step))
    rows = rows[rows["benchmark"].isin(queries.benchmarks(db, [sweep]))]
    fewest = (
        rows.groupby(["run", "benchmark", "problem_id"]).size().min()
    )  # so all k have all benchmarks
    values: dict[str, dict[int, list[np.ndarray]]] = {measure: {} for measure in measures}
    for _, part in rows.groupby("benchmark", sort=False):
        runs = part["run"].nunique()
        problems = part["problem_id"].nunique()
        samples, left = divmod(len(part), runs * problems)
        if left or (part.groupby(["run", "problem_id"]).size() != samples).any():
            return {measure: {} for measure in measures}
        shape = (runs, problems, samples)
        right = part["correct"].to_numpy(bool).reshape(shape)
        for k in tries(int(fewest)):
            if "pass" in values:
                counts = right.sum(axis=2)
                value = np.array(
                    [stats.pass_at_k(np.full(problems, samples), row, k) for row in counts]
                )
                values["pass"].setdefault(k, []).append(value)
            if "maj" in values:
                codes = pandas.factorize(part["vote"])[0].reshape(shape)
                values["maj"].setdefault(k, []).append(_majority(codes, right, k))
    return values


def _majority(codes: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """(seeds, problems) probability that the most frequent of k answers is right; code -1, no
    answer, has no vote."""
    rng = np.random.default_rng(k)
    samples = codes.shape[2]
    parts = (
        samples // k
    )  # of one order of the samples: all count alike, so that maj@1 is the accuracy
    orders = 1 if k == samples else -(-SUBSETS // parts)
    chosen = np.reshape([rng.permutation(samples)[: parts * k] for _ in range(orders)], (-1, k))
    draws = len(chosen)
    value = np.zeros(codes.shape[:2])
    for place in np.ndindex(*value.shape):
        answers = codes[place]
        verdicts = right[place]
        distinct, inverse = np.unique(answers, return_inverse=True)
        votes = np.zeros((draws, len(distinct)))
        np.add.at(votes, (np.arange(draws)[:, None], inverse[chosen]), 1.0)
        votes[:, distinct < 0] = 0.0
        verdict = np.array([verdicts[answers == code].mean() for code in distinct])
        top = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
        value[place] = np.mean((top * verdict).sum(axis=1) / np.maximum(top.sum(axis=1), 1))
    return value


def over_k(
    db: Database, sweep: str, labels: Mapping[str, str], step: int | None = None
) -> pandas.DataFrame:
    """pass@k and maj@k of variants over k: label, measure, k, mean, low, high (95 %, seeds and
    problems), seeds.

    Of `step`, or of the last checkpoints.
    """
    rows = []
    for variant, label in labels.items():
        for measure, values in diversity(db, sweep, variant, step=step).items():
            for k, arrays in values.items():
                estimate = stats.accuracy(arrays)
                numbers = estimate.mean, estimate.low, estimate.high, estimate.seeds
                rows.append((label, measure, k, *numbers))
    return pandas.DataFrame(rows, columns=["label", "measure", "k", "mean", "low", "high", "seeds"])
