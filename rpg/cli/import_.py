"""The command `rpg import`: runs that were trained elsewhere, beside one's own."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, app, say

_SHOWN = 12
"""Columns that are named when they are not taken over; verl logs more than a hundred."""


class LogKind(StrEnum):
    """Whose log it is."""

    trl = "trl"
    verl = "verl"
    wandb = "wandb"
    csv = "csv"


@app.command(
    "import",
    epilog="Examples: rpg import trl trainer_state.json --sweep quickstart --variant 'TRL GRPO' --seed 0 · "
    "rpg import verl verl.jsonl --sweep quickstart --variant 'verl DAPO' --seed 0 "
    "--eval gsm8k=val-core/openai/gsm8k/acc/mean@1",
)
def import_(
    kind: Annotated[
        LogKind, typer.Argument(help="Whose log it is; csv for any table with a column of steps.")
    ],
    file: Annotated[
        Path, typer.Argument(help="The log: trainer_state.json, JSON lines, console output, CSV.")
    ],
    sweep: Annotated[str | None, typer.Option("--sweep", help="The sweep it joins, or a new one.")] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="Its name in tables and figures.")] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Its seed (default 0); seeds of a variant are averaged."),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="What trained it, if it has a name.")
    ] = None,
    axis: Annotated[
        list[str],
        typer.Option(
            "--axis", "-a", help="A value of the sweep's axes, e.g. algorithm.beta=0.01. Repeatable."
        ),
    ] = [],
    map_: Annotated[
        list[str],
        typer.Option(
            "--map", "-m", help="Our name of a metric=its column, e.g. reward=train/acc. Repeatable."
        ),
    ] = [],
    eval_: Annotated[
        list[str],
        typer.Option("--eval", "-e", help="Benchmark=the column of its accuracy (0 to 1). Repeatable."),
    ] = [],
    updates: Annotated[
        int | None,
        typer.Option(
            "--updates",
            min=1,
            help="So many of its steps are one of ours, a rollout. TRL counts optimizer steps: "
            "steps_per_generation * num_iterations / gradient_accumulation_steps. Default 1.",
        ),
    ] = None,
    told: Annotated[
        Path | None,
        typer.Option(
            "--as",
            help="YAML file with sweep, variant, seed, algorithm, axes, map, eval, updates; options go over it.",
        ),
    ] = None,
    home: Home = None,
) -> int:
    """Take over a run that was trained elsewhere: its curves and scores stand beside your own, marked as imported.

    It has no samples, so its scores have no interval over problems and no paired test; evaluate its checkpoints with
    `rpg evaluate CHECKPOINT --join SWEEP/RUN --step N` for those.
    """
    from rpg.config.errors import nearest
    from rpg.config.imports import read_import
    from rpg.config.load import parse_assignments
    from rpg.importing import own_benchmarks, read, take_over
    from rpg.store import Layout
    from rpg.store.database import build

    options: dict[str, object] = {"sweep": sweep, "variant": variant, "seed": seed, "algorithm": algorithm}
    options["updates"] = updates
    tables = {"axes": parse_assignments(axis), "map": _pairs(map_, "--map"), "eval": _pairs(eval_, "--eval")}
    given = {k: v for k, v in options.items() if v is not None} | {k: v for k, v in tables.items() if v}
    chosen = read_import(told, given)
    log = read(kind.value, file, chosen.map, chosen.eval, chosen.updates)
    layout = Layout.at(home)
    folder = take_over(
        layout,
        log,
        kind=kind.value,
        source=file,
        sweep=chosen.sweep,
        variant=chosen.variant,
        seed=chosen.seed,
        algorithm=chosen.algorithm,
        axes=chosen.axes,
        updates=chosen.updates,
    )
    build(layout)
    metrics = sorted({name for row in log.steps for name in row if name != "step"})
    last = f", the last is {log.steps[-1]['step']:,}" if log.steps else ""
    say(f"{folder.path}: {len(log.steps)} steps{last}: {', '.join(metrics)}")
    for name, found in log.scores.items():
        say(f"{name}: {len(found)} evaluations, without samples")
    own = own_benchmarks(layout, chosen.sweep)
    for name in log.scores:
        if own and name not in own:
            say(
                f"! {name}: the sweep's own runs are not evaluated on it{nearest(name, own)} Theirs: {', '.join(own)}",
                "yellow",
            )
    if log.offered:
        say(f"these look like scores: {', '.join(log.offered)}; --eval BENCHMARK=COLUMN takes one")
    rest = [name for name in log.others if name not in log.offered]
    rest.sort(key=lambda name: name.startswith(("eval", "val-")))  # of the training first
    if rest:
        more = f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
        say(f"not taken over: {', '.join(rest[:_SHOWN])}{more}; --map NAME=COLUMN takes one", "dim")
    return 0


def _pairs(given: list[str], option: str) -> dict[str, str]:
    from rpg.config.errors import ConfigError

    found = {}
    for pair in given:
        name, sign, column = pair.partition("=")
        if not sign or not name.strip() or not column.strip():
            raise ConfigError(f"{option} {pair!r}: write name=column, e.g. {option} reward=train/reward")
        found[name.strip()] = column.strip()
    return found
