"""The notes around a table, whole, and its rows for runs that were trained elsewhere, by hand."""

import json
import math
import shutil

import numpy as np
import pytest
import scipy.stats

from benchmarks.synthetic import write_sweep
from rpg import stats
from rpg.importing import take_over
from rpg.importing.trainer_logs import Log
from rpg.store.run_writer import write_failed
from rpg.store.samples import read_samples, write_samples
from tests.report.test_report import SHAPE, array, row, summary


@pytest.fixture
def layout(tmp_path):
    return write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)


def design(layout, samples):
    """What the sweep could find, from the arrays of its last checkpoints."""
    blocks = []
    for name in ("easy", "hard"):
        blocks.append(np.stack([array(layout, v, name, 8) for v in ("grpo", "rpg-urkl")]))
    planned = stats.Design(2, 3, (6, 6), samples)
    return stats.sentence(planned, stats.spreads(blocks, samples), stats.MATTERS)


def test_a_finished_sweep_says_what_it_could_find_and_nothing_else(layout):
    assert summary(layout).notes == [design(layout, SHAPE.samples)]


def test_what_it_could_find_counts_the_fewest_samples(layout):
    path = layout.run("demo", "grpo-seed1").eval_path("hard", 8)
    rows = [one for one in read_samples(path).to_pylist() if one["sample"] < 3]
    write_samples(path, rows)
    assert summary(layout).notes == [design(layout, 3)]
    assert row(summary(layout), "grpo", "hard")["k"] == 3 and row(summary(layout), "grpo", "easy")["k"] == 4


def test_pass_at_k_is_a_mean_over_problems_seeds_and_benchmarks(layout):
    shares = {name: (array(layout, "grpo", name, 8) > 0).mean() for name in ("easy", "hard")}
    for benchmark, share in {**shares, "mean": np.mean([*shares.values()])}.items():
        assert 0 < row(summary(layout), "grpo", benchmark)["pass_at_k"] == pytest.approx(share)


def test_who_has_no_checkpoint_is_named_and_no_step_is_made_up(layout):
    for seed in range(3):
        shutil.rmtree(layout.run("demo", f"rpg-urkl-seed{seed}").path / "evals")
    ended = layout.run("demo", "rpg-urkl-seed0")
    write_failed(ended, "E", step=3)
    ended.metrics_path(ended.attempts()[0]).unlink()
    assert summary(layout).notes == [
        "rpg-urkl-seed0 failed: E", "no checkpoint evaluated on all benchmarks yet: RPG-URKL",
    ]  # fmt: skip
    layout.write_sweep(layout.read_sweep("demo") | {"baseline": "dapo"})
    assert "the baseline dapo has no runs yet: nothing is compared with it" in summary(layout).notes


def test_two_seeds_with_one_initial_model_are_said(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1), SHAPE)
    for run in layout.run_folders("demo"):
        manifest = json.loads(run.manifest_path.read_text())
        manifest["spec"]["model"] = {"type": "tiny", "warm_start": {"seed": 7}}
        run.manifest_path.write_text(json.dumps(manifest))
    assert any("one initial model (model.warm_start.seed 7)" in note for note in summary(layout).notes)


EASY = {0: {0: 0.1, 4: 0.4, 8: 0.3}, 1: {0: 0.2, 4: 0.2, 8: 0.5}, 2: {0: 0.0, 4: 0.1, 8: 0.4}}


def imported(layout, tmp_path, curves):
    """Runs of the variant `theirs`: benchmark -> seed -> step -> accuracy."""
    log = tmp_path / "log"
    log.write_text("a log")
    for seed in EASY:
        steps = [{"step": step, "reward": 0.0} for step in range(1, 11)]
        scores = {name: of_seeds[seed] for name, of_seeds in curves.items()}
        take_over(
            layout,
            Log(steps, scores, [], []),
            kind="wandb",
            source=log,
            sweep="demo",
            variant="theirs",
            seed=seed,
        )


def test_scores_without_samples_have_an_interval_over_seeds(layout, tmp_path):
    hard = {seed: {step: value / 2 for step, value in curve.items()} for seed, curve in EASY.items()}
    imported(layout, tmp_path, {"easy": EASY, "hard": hard})
    found = summary(layout)
    last = np.array([curve[8] for curve in EASY.values()])
    half = scipy.stats.t.ppf(0.975, 2) * last.std(ddof=1) / math.sqrt(3)
    for benchmark, share in (("easy", 1.0), ("hard", 0.5), ("mean", 0.75)):
        one = row(found, "theirs", benchmark)
        assert one["last"] == pytest.approx(share * last.mean())
        assert (one["low"], one["high"]) == pytest.approx(
            (share * (last.mean() - half), share * (last.mean() + half))
        )
        assert one["first"] == pytest.approx(share * 0.1), "of step 0"
        assert one["best"] == pytest.approx(share * (0.4 + 0.5 + 0.4) / 3), "the mean of each seed's best"
        assert (one["seeds"], one["problems"], one["k"]) == (3, 0, 0)
        assert (one["first_step"], one["step"], one["steps"]) == (0, 8, 10)
    assert found.notes[:2] == [
        "theirs (3 seeds) was trained elsewhere, imported from wandb: settings and data are not known to be the same, "
        "and without samples there is no paired test",
        "theirs: last evaluated, and compared, at step 8 of 10",
    ]


def test_one_who_was_evaluated_on_less_has_no_mean_and_is_not_compared_by_it(layout, tmp_path):
    imported(layout, tmp_path, {"easy": EASY})
    found = summary(layout)
    assert set(found.table.loc[found.table["variant"] == "theirs", "benchmark"]) == {"easy"}
    assert "theirs: no score on hard, so it has no mean" in found.notes
    assert set(found.table.loc[found.table["variant"] == "grpo", "benchmark"]) == {"easy", "hard", "mean"}
