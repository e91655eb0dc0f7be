"""What stands around the table of a sweep: what was left out, and what it could find."""

import shutil

import numpy as np
import pytest

from rpg import stats
from rpg.interop.importing.imported_runs import write_scores
from rpg.store.run_writer import write_failed, write_manifest
from rpg.store.samples import read_samples, write_samples
from tests.report.sweeps import SHAPE, array, demo, row, shown, summary


@pytest.fixture
def layout(tmp_path):
    return demo(tmp_path)


def design(layout, samples):
    """What the sweep could find, from the arrays of its last checkpoints."""
    blocks = []
    for name in ("easy", "hard"):
        blocks.append(np.stack([array(layout, v, name, 8) for v in ("grpo", "rpg-urkl")]))
    planned = stats.Design(2, 3, (SHAPE.problems, SHAPE.problems), samples)
    return stats.sentence(planned, stats.spreads(blocks, samples), stats.MATTERS)


def test_a_finished_sweep_says_what_it_could_find_with_the_fewest_samples_and_nothing_else(layout):
    assert summary(layout).notes == [design(layout, SHAPE.samples)]
    path = layout.run("demo", "grpo-seed1").eval_path("hard", 8)
    rows = [one for one in read_samples(path).to_pylist() if one["sample"] < 3]
    write_samples(path, rows)
    assert summary(layout).notes == [design(layout, 3)]
    assert (
        row(summary(layout), "grpo", "hard")["k"] == 3
        and row(summary(layout), "grpo", "easy")["k"] == 4
    )


def test_runs_that_did_not_finish_are_left_out_and_named(layout):
    shutil.rmtree(layout.run("demo", "rpg-urkl-seed1").path / "evals")
    failed = layout.run("demo", "rpg-urkl-seed1")
    write_failed(failed, "ValueError: loss is nan at step 3\ntraceback", step=3)
    record = layout.read_sweep("demo")
    layout.write_sweep(record | {"runs": [*record["runs"], "dapo-seed0"]})
    found = summary(layout)
    numbers = row(found, "rpg-urkl", "easy")
    assert numbers["seeds"] == 2
    assert numbers["last"] == pytest.approx(array(layout, "rpg-urkl", "easy", 8, (0, 2)).mean())
    mine = array(layout, "rpg-urkl", "easy", 8, (0, 2))
    base = array(layout, "grpo", "easy", 8, (0, 2))
    further = array(layout, "grpo", "easy", 8, (1,))
    expected = stats.family([np.stack([base, mine])[None]], further=[further[None]])
    assert numbers["difference"] == pytest.approx(expected.difference.item())
    assert "rpg-urkl-seed1 failed at step 8: ValueError: loss is nan at step 3" in found.notes
    assert "not started: dapo-seed0" in found.notes
    assert "RPG-URKL: the numbers leave out rpg-urkl-seed1" in found.notes
    assert "loss is nan" in shown(layout)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (4, "last evaluated, and compared, at step 4 of 8"),
        (6, "last evaluated at step 6, and compared, at step 4 of 8"),
        (8, "last evaluated at step 8, and compared, at step 4 of 8"),  # by a score without samples
    ],
)
def test_a_sweep_is_compared_at_the_last_step_at_which_both_have_samples(layout, last, said):
    for seed in range(3):
        run = layout.run("demo", f"rpg-urkl-seed{seed}")
        for name in SHAPE.benchmarks:
            samples = run.eval_path(name, 8)
            samples.rename(run.eval_path(name, 6)) if last == 6 else samples.unlink()
        if last == 8:
            write_scores(run, {name: {8: 0.5} for name in SHAPE.benchmarks})
    found = summary(layout)
    numbers = row(found, "rpg-urkl", "hard")
    assert (numbers["step"], numbers["steps"]) == (last, 8)
    expected = array(layout, "rpg-urkl", "hard", 4) - array(layout, "grpo", "hard", 4)
    assert numbers["difference"] == pytest.approx(expected.mean())
    assert f"RPG-URKL: {said}" in found.notes and numbers["verdict"]


def test_only_variants_that_agree_in_training_and_evaluation_are_called_identical(layout):
    """Equal accuracies alone (all at 0, say) are no proof, and change no test."""
    for seed in range(3):
        source, target = (
            layout.run("demo", f"{name}-seed{seed}").path for name in ("grpo", "rpg-urkl")
        )
        shutil.rmtree(target / "evals")
        shutil.copytree(source / "evals", target / "evals")
    found = summary(layout)
    assert not any("identical" in note for note in found.notes)
    assert row(found, "rpg-urkl", "mean")["verdict"] == "within noise"
    for seed in range(3):
        source, target = (
            layout.run("demo", f"{name}-seed{seed}").path for name in ("grpo", "rpg-urkl")
        )
        shutil.copy(*(next(path.glob("metrics-*.jsonl")) for path in (source, target)))
    assert any(
        note.startswith("GRPO, RPG-URKL: identical in every step") for note in summary(layout).notes
    )


def test_who_has_no_checkpoint_is_named_and_no_step_is_made_up(layout):
    for seed in range(3):
        shutil.rmtree(layout.run("demo", f"rpg-urkl-seed{seed}").path / "evals")
    ended = layout.run("demo", "rpg-urkl-seed0")
    write_failed(ended, "E", step=3)
    ended.metrics_path(ended.attempts()[0]).unlink()
    assert summary(layout).notes == [
        "rpg-urkl-seed0 failed: E",
        "no checkpoint evaluated on all benchmarks yet: RPG-URKL",
    ]
    layout.write_sweep(layout.read_sweep("demo") | {"baseline": "dapo"})
    assert "the baseline dapo has no runs yet: nothing is compared with it" in summary(layout).notes


def test_a_run_that_was_stopped_is_named_with_its_step(layout):
    run = layout.run("demo", "rpg-urkl-seed0")
    shutil.rmtree(run.path / "evals")
    run.done_path.unlink()
    [metrics] = run.path.glob("metrics-*.jsonl")
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text(lines[0])
    assert "rpg-urkl-seed0 is interrupted at step 1 of 8" in summary(layout).notes
    metrics.write_text("")
    assert "rpg-urkl-seed0 is interrupted" in summary(layout).notes


def test_a_table_whose_seeds_share_one_initial_model_says_so(tmp_path):
    layout = demo(tmp_path, seeds=(0, 1))

    def start(seed_of):
        for run in layout.run_folders("demo"):
            manifest = run.read_manifest()
            manifest["spec"]["model"] = {
                "type": "tiny",
                "warm_start": {"seed": seed_of(manifest["seed"])},
            }
            write_manifest(run, manifest)
        return " ".join(summary(layout).notes)

    assert "one initial model (model.warm_start.seed 7)" in start(lambda seed: 7)
    assert "one initial model" not in start(lambda seed: seed)


def test_one_seed_tells_nothing_of_what_more_would_find(tmp_path):
    alone = demo(tmp_path, seeds=(0,))
    assert summary(alone).advice == ""
