"""Every number of a sweep depends on its own files only: alone and beside ten others that share
its runs, its data, its initial model and its samples, it has the same table, curves, KLs and
report, but for times, sizes and what was shared."""

import csv
import re

import pytest

from rpg.store import Layout
from rpg.store.database import connect
from tests.real_sweep import rpg

OURS = """\
name: ours
run:
  task: {type: chain, tiers: {one: 1, two: 2}, train_problems: 300, benchmark_problems: 6}
  model:
    type: tiny
    warm_start: {target_accuracy: 0, consolidation_steps: 0, behaviour_steps: 20, seed: 0}
  training: {steps: 4, prompts_per_step: 4, mini_batch_prompts: 4}
  rollout: {group_size: 4}
  evaluation: {every: 2, samples_per_problem: 3}
axes: {algorithm: [grpo, rpg-ufkl], seed: [0, 1]}
baseline: grpo
"""
OTHERS = {
    "the same runs": {},
    "more samples": {"evaluation.samples_per_problem": 5},
    "fewer samples": {"evaluation.samples_per_problem": 2},
    "longer": {"training.steps": 6},
    "shorter": {"training.steps": 2},
    "one benchmark": {"evaluation.benchmarks": ["chain-two"]},
    "other evaluations": {"evaluation.temperature": 0.7},
    "other weights kept": {"training.keep_checkpoints": "all", "evaluation.every": 1},
    "another seed of the initial model": {"model.warm_start.seed": 3},
    "another data set": {"task.train_problems": 310},
}


def sweep(root, home, name, prefect, **settings):
    words = [f"--set={field}={value}" for field, value in settings.items()]
    done = rpg(root, "sweep", "ours.yaml", "--name", name, *words, home=home, **prefect)
    assert done.returncode == 0, done.stdout + done.stderr


def numbers(home):
    """All that is said of the sweep, without times."""
    layout = Layout.at(home)
    said = {}
    for path in sorted(layout.reports("ours").iterdir()):
        if path.suffix == ".csv":
            with path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if row.get("axis") != "seconds"]
            said[path.name] = [without_clocks(row) for row in rows]
        elif path.suffix in (".txt", ".svg"):
            said[path.name] = path.read_text("utf-8")
        elif path.suffix == ".md":
            said[path.name] = lines_without_clocks(path.read_text("utf-8"))
    with connect(layout) as db:
        for name in ("scores", "drift", "samples", "metrics", "last_best", "paired"):
            found = db.execute(f"SELECT * FROM {name} WHERE sweep = 'ours'")
            columns = [column[0] for column in found.description]
            rows = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
            said[name] = sorted(repr(without_clocks(row)) for row in rows)
    return said


def lines_without_clocks(text):
    """Without what is compared at equal seconds, a section or a remark, and without the column of
    seconds, the last of what was spent."""
    text = re.sub(r"(?ms)^## At [^\n]* seconds each.*?(?=^## )", "", text)
    rows = text.split("## Spent", 1)
    rows[1:] = [re.sub(r"(?m)[^|]*\|$", "|", rows[1])] if rows[1:] else []
    return [line for line in "".join(rows).splitlines() if "equal seconds" not in line]


def without_clocks(row):
    clocks = ("time", "attempt", "tokens_per_second")
    return {
        name: value for name, value in row.items() if name not in clocks and "second" not in name
    }


@pytest.mark.system
def test_a_sweep_is_the_same_alone_and_beside_ten_others(tmp_path, prefect):
    (tmp_path / "ours.yaml").write_text(OURS)
    sweep(tmp_path, tmp_path / "alone", "ours", prefect)
    alone = numbers(tmp_path / "alone")
    for number, settings in enumerate(OTHERS.values()):
        one_seed = {"seed": 1, **settings}
        sweep(tmp_path, tmp_path / "beside", f"other-{number}", prefect, **one_seed)
    sweep(tmp_path, tmp_path / "beside", "ours", prefect)

    beside = numbers(tmp_path / "beside")

    assert alone.keys() == beside.keys()
    assert len(alone["drift"]) > 0
    for name in alone:
        assert alone[name] == beside[name], name
