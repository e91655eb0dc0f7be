"""pass@k and maj@k over k are the evaluation's own numbers; paths know where they go."""

import itertools

import numpy as np
import pandas
import pytest

from benchmarks.synthetic import Shape, write_sweep
from rpg import stats
from rpg.evaluation.benchmark_summary import summarise
from rpg.report import frontier
from rpg.store.database import connect
from rpg.store.samples import read_eval, read_samples, write_samples
from tests.report.sweeps import rebuild

SHAPE = Shape(steps=4, eval_every=4, problems=5, samples=6, benchmarks=("easy", "hard"))


def test_over_k_is_what_the_evaluation_says(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1), SHAPE)
    for path in layout.runs.glob("demo/*/evals/*/*.parquet"):  # one number in several ways
        rows = read_samples(path).to_pylist()
        ways = [f"{row['extracted']}.{'0' * row['sample']}" for row in rows]
        write_samples(path, [row | {"extracted": way} for row, way in zip(rows, ways, strict=True)])
    rebuild(layout)
    with connect(layout) as db:
        found = frontier.over_k(db, "demo", {"grpo": "GRPO"})
    of = {
        (name, seed): summarise(
            read_eval(layout.run("demo", f"grpo-seed{seed}"), name, 4).to_pylist()
        )
        for name in SHAPE.benchmarks
        for seed in (0, 1)
    }
    assert sorted(found["k"].unique()) == [1, 2, 4, 6] and set(found["seeds"]) == {2}
    for row in found[found["measure"] == "pass"].itertuples():
        expected = np.mean([one.pass_at[row.k].mean for one in of.values()])
        assert row.mean == pytest.approx(expected) and row.low <= row.mean <= row.high
    majority = found[found["measure"] == "maj"].set_index("k")["mean"]
    for k, number in (
        (1, "mean_at_k"),
        (2, "mean_at_k"),
        (6, "majority_at_k"),
    ):  # a tie of two is half right
        assert majority[k] == pytest.approx(
            np.mean([getattr(one, number).mean for one in of.values()])
        )
    for seed in (0, 1):
        path = layout.run("demo", f"grpo-seed{seed}").eval_path("hard", 4)
        write_samples(path, [one for one in read_samples(path).to_pylist() if one["sample"] < 3])
    rebuild(layout)
    with connect(layout) as db:
        assert set(frontier.over_k(db, "demo", {"grpo": "GRPO"})["k"]) == {1, 2, 3}, "those of both"


def test_the_majority_of_a_subset_is_the_mean_over_subsets():
    answers, right = ["a", "a", "b", None, "b", "c"], [True, True, False, False, False, False]
    codes = pandas.factorize(pandas.Series(answers))[0].reshape(1, 1, -1)
    subsets = itertools.combinations(zip(answers, right, strict=True), 3)
    exact = np.mean(
        [stats.majority_at_k(*map(list, zip(*subset, strict=True))) for subset in subsets]
    )
    many = np.repeat(codes, 400, 1), np.repeat([[right]], 400, 1)
    first, again = (frontier._majority(*many, 3).mean() for _ in (1, 2))
    assert first == again == pytest.approx(exact, abs=0.1)


def test_a_path_goes_along_an_axis_of_numbers_or_the_training():
    manifests = {
        f"{name}{beta}{seed}": {
            "variant": f"{name} algorithm.beta={beta}",
            "axes": {"algorithm": name, "algorithm.beta": beta, "seed": seed},
        }
        for name in ("a", "b")
        for beta in (0.1, 1)
        for seed in (0, 1)
    }
    [(name, along)] = frontier.numeric_axes(manifests).items()
    assert name == "algorithm.beta" and along["a algorithm.beta=1"] == 1
    labels = {
        one["variant"]: one["variant"].replace("algorithm.", "").upper()
        for one in manifests.values()
    }
    of = frontier.path_labels(manifests, labels, name)
    assert set(of.values()) == {"A BETA=0.1", "B BETA=0.1"}  # nothing here is written as `beta=`
    labels = {variant: label.replace(" BETA=", ", beta ") for variant, label in labels.items()}
    of = frontier.path_labels(manifests, labels, name)
    assert of["a algorithm.beta=0.1"] == of["a algorithm.beta=1"] == "A" != of["b algorithm.beta=1"]
    rows = [
        {
            "run": run,
            "variant": one["variant"],
            "seed": one["axes"]["seed"],
            "step": step,
            "direction": "policy_to_initial",
            "accuracy": 0.1 * step + one["axes"]["seed"],
            "per_response": step,
        }
        for run, one in manifests.items()
        for step in (0, 5)
    ]
    found = frontier.paths(pandas.DataFrame(rows), of, along)
    assert len(found) == 4 and set(found["place"]) == {0.1, 1}
    assert (found["x"] == 5).all() and found["accuracy"].tolist() == pytest.approx([1.0] * 4)
    assert (found["lowest"] == 0.5).all() and (found["seeds"] == 2).all()
    training = frontier.paths(pandas.DataFrame(rows), of, None)
    assert sorted(set(training["place"])) == [0, 5] and len(training) == 4
    behind = frontier.paths(pandas.DataFrame(rows[:1] + rows[2:]), of, along)
    assert (behind["x"] == 5).all() and sorted(behind["seeds"]) == [1, 2, 2, 2]
