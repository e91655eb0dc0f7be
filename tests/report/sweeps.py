"""Made-up sweeps, their summaries, and the numbers of both straight from the run folders."""

import io
import json

import numpy as np
from rich.console import Console

from benchmarks.synthetic import Shape, write_sweep
from rpg.report.summary import summarise
from rpg.report.sweep_report import print_summary, summary_of
from rpg.store.database import build, connect
from rpg.store.run_writer import write_done
from rpg.store.samples import read_eval, write_eval

SHAPE = Shape(steps=8, eval_every=4, problems=24, samples=4, benchmarks=("easy", "hard"))


def summary(layout, **options):
    rebuild(layout)
    with connect(layout) as db:
        return summarise(db, "demo", **options)


def rebuild(layout):
    """The database of runs whose files a test may have changed."""
    for sweep in layout.sweeps():
        for run in layout.run_folders(sweep):
            finished_again(run)
    build(layout)


def row(found, variant, benchmark):
    table = found.table
    [one] = table[(table["variant"] == variant) & (table["benchmark"] == benchmark)].to_dict(
        "records"
    )
    return one


def array(layout, variant, benchmark, step, seeds=(0, 1, 2)):
    """(seeds, problems) straight from the run folders."""
    rows = []
    for seed in seeds:
        table = read_eval(layout.run("demo", f"{variant}-seed{seed}"), benchmark, step).to_pandas()
        rows.append(table.groupby("problem_id")["correct"].mean().sort_index().to_numpy())
    return np.array(rows)


def shown(layout, width=140):
    stream = io.StringIO()
    rebuild(layout)
    console = Console(file=stream, width=width, color_system=None)
    print_summary(summary_of(layout, "demo"), console)
    return stream.getvalue()


def demo(folder, variants=("grpo", "rpg-urkl"), seeds=(0, 1, 2)):
    """A sweep on two benchmarks."""
    return write_sweep(folder, "demo", variants, seeds, SHAPE)


def rewritten(run, change):
    """Write a run's metrics anew: change(row) are the values of a step that are others."""
    rows = [json.loads(line) for line in run.metrics_path(1).read_text().splitlines()]
    run.metrics_path(1).write_text("".join(json.dumps(row | change(row)) + "\n" for row in rows))
    finished_again(run)


def answered(run, step, right, benchmarks=("easy", "hard")):
    """Answer a run's stored evaluations anew: right(problem, sample) says which samples are
    right."""
    for benchmark in benchmarks:
        rows = read_eval(run, benchmark, step).to_pylist()
        problems = sorted({row["problem_id"] for row in rows})
        for row in rows:
            row["correct"] = bool(right(problems.index(row["problem_id"]), row["sample"]))
            row["extracted"] = row["answer"] if row["correct"] else "no"
        run.eval_path(benchmark, step).unlink()
        write_eval(run, benchmark, step, rows)
    finished_again(run)


def finished_again(run):
    """The end of a run records its files as they are; a changed one would count as damaged."""
    if run.done_path.exists():
        write_done(run, seconds=1.0, attempts=1)
