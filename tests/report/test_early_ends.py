"""What a report says of runs that ended before their last step."""

from benchmarks.synthetic import write_sweep
from rpg.store import queries
from rpg.store.database import connect
from rpg.store.run_writer import write_manifest
from tests.report.sweeps import SHAPE, row, summary


def ended(run, reason, step):
    """The run as if it had ended after this step of its eight."""
    manifest = run.read_manifest()
    end = {"step": step, "reason": reason, "value": 0.5}
    write_manifest(run, {**manifest, "ended": end})
    [path] = [run.metrics_path(attempt) for attempt in run.attempts()]
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:step]))


def asking_for(run, accuracy):
    manifest = run.read_manifest()
    manifest["spec"]["training"]["until"] = {"accuracy": accuracy}
    write_manifest(run, manifest)


def early_notes(found):
    return [note for note in found.notes if "ended early" in note or "training accuracy" in note]


def test_runs_that_spent_their_tokens_are_compared_at_their_ends(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo"), (0, 1, 2), SHAPE)
    for seed, step in ((0, 5), (1, 6), (2, 5)):
        ended(layout.run("demo", f"dapo-seed{seed}"), "tokens", step)
    found = summary(layout)
    assert early_notes(found) == [
        "DAPO: 3 of 3 runs ended early (training.until.tokens), at step 5, 5, 6; the last "
        "checkpoint stands at step 8"
    ]
    assert row(found, "dapo", "mean")["step"] == 8
    assert row(found, "dapo", "mean")["seeds"] == 3
    with connect(layout) as db:
        spent = queries.spending(db, "demo").set_index(["run", "step"])["tokens"]
        rows = queries.run_metrics(db, "demo", "dapo-seed1")
    assert spent["dapo-seed1", 8] == rows["tokens"].iloc[-1]
    assert len(rows) == 6


def test_runs_that_did_not_reach_the_accuracy_are_censored(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo"), (0, 1, 2), SHAPE)
    for variant in ("grpo", "dapo"):
        for seed in (0, 1, 2):
            asking_for(layout.run("demo", f"{variant}-seed{seed}"), 0.5)
    for seed, step in ((0, 3), (1, 4), (2, 2)):
        ended(layout.run("demo", f"dapo-seed{seed}"), "accuracy", step)
    ended(layout.run("demo", "grpo-seed0"), "accuracy", 6)
    grpo, dapo = [note for note in early_notes(summary(layout)) if "training accuracy" in note]
    if grpo.startswith("DAPO"):
        grpo, dapo = dapo, grpo
    assert grpo == "GRPO: training accuracy 0.500 reached in 1 of 3 runs"
    assert dapo.startswith(
        "DAPO: training accuracy 0.500 reached in 3 of 3 runs, median 3 steps and"
    )
    assert dapo.endswith("; log-rank against the baseline: p = 0.100, corrected")
