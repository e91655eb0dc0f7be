"""The command `rpg import`: add runs that were trained elsewhere."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from rpg.cli.app import Home, app, layout_at, refuse, say

_SHOWN = 12  # number of unused columns that are listed; verl logs more than a hundred


@app.command("import")
def import_(
    kind: Literal["trl", "verl", "wandb", "csv", "inspect"],
    file: Path,
    sweep: str = "",
    variant: str = "",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 0,
    algorithm: str | None = None,
    axis: Annotated[list[str], typer.Option("--axis", "-a")] = [],
    map_: Annotated[list[str], typer.Option("--map", "-m")] = [],
    eval_: Annotated[list[str], typer.Option("--eval", "-e")] = [],
    updates: Annotated[int, typer.Option(min=1)] = 1,
    home: Home = None,
) -> None:
    """Import a run that was trained elsewhere: its curves and scores appear beside yours, marked as imported.

    It has no samples, so there is no interval over problems and no paired test for its scores; to get them, evaluate its
    checkpoints with `rpg evaluate CHECKPOINT --join SWEEP/RUN --step N`. An evaluation by Inspect AI has samples: they
    stand beside those of `rpg evaluate`, and need no other option.

    Args:
        kind: The kind of log; csv: any table with a column of steps; inspect: an evaluation by Inspect AI.
        file: The log file: trainer_state.json, JSON lines, console output or CSV.
        sweep: Sweep to add the run to; it may be new.
        variant: Name of the variant in tables and figures.
        seed: Seed of the run; seeds of a variant are averaged.
        algorithm: Name of the algorithm that trained it.
        axis: The run's value on an axis of the sweep, e.g. algorithm.beta=0.01. Repeatable.
        map_: Name of a metric here = its column in the log, e.g. reward=train/acc. Repeatable.
        eval_: Benchmark = the column with its accuracy (0 to 1). Repeatable.
        updates: Logged steps per rollout. TRL logs optimizer steps, so there it is steps_per_generation *
            num_iterations / gradient_accumulation_steps.
    """
    if kind == "inspect":
        _samples(file, home)
        return
    from rpg.config.errors import nearest
    from rpg.config.load import parse_assignments
    from rpg.importing import own_benchmarks, read, take_over
    from rpg.store.database import build

    if not sweep or not variant:
        refuse("--sweep and --variant: both are needed, e.g. --sweep quickstart --variant 'TRL GRPO'")
    layout, axes = layout_at(home), parse_assignments(axis)
    log = read(kind, file, _pairs(map_, "--map"), _pairs(eval_, "--eval"), updates)
    folder = take_over(
        layout, log, kind=kind, source=file, sweep=sweep, variant=variant, seed=seed, algorithm=algorithm, axes=axes,
        updates=updates,
    )  # fmt: skip
    build(layout)
    metrics = sorted({name for row in log.steps for name in row if name != "step"})
    last = f", the last is {log.steps[-1]['step']:,}" if log.steps else ""
    say(f"{folder.path}: {len(log.steps)} steps{last}: {', '.join(metrics)}")
    for name, scores in log.scores.items():
        say(f"{name}: {len(scores)} evaluations, without samples")
    theirs = own_benchmarks(layout, sweep)
    for name in log.scores:
        if theirs and name not in theirs:
            say(
                f"! {name}: the sweep's own runs are not evaluated on it{nearest(name, theirs)} Theirs: {', '.join(theirs)}",
                "yellow",
            )
    if log.offered:
        say(
            f"these columns look like scores: {', '.join(log.offered)}; import one with --eval BENCHMARK=COLUMN"
        )
    rest = [name for name in log.others if name not in log.offered]
    rest.sort(key=lambda name: name.startswith(("eval", "val-")))  # training metrics first
    if rest:
        more = f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
        say(f"not imported: {', '.join(rest[:_SHOWN])}{more}; import one with --map NAME=COLUMN", "dim")


def _samples(file: Path, home: Path | None) -> None:
    from rpg.integrations.inspect import import_log
    from rpg.store.database import build

    layout = layout_at(home)
    path = import_log(layout, file)
    build(layout)
    say(f"samples: {path}")
    say(
        f"grade them by our rules with: rpg evaluate {shlex.quote(str(path.parent))} --regrade --rules default",
        "dim",
    )


def _pairs(given: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for pair in given:
        name, sign, column = pair.partition("=")
        if not sign or not name.strip() or not column.strip():
            refuse(f"{option} {pair!r}: write name=column, e.g. {option} reward=train/reward")
        pairs[name.strip()] = column.strip()
    return pairs
