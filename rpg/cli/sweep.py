"""The command `rpg sweep`."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, Set, SweepFile, app
from rpg.cli.execution import Fresh, Name, Workers, execute


@app.command(
    epilog="Examples: rpg sweep quickstart · rpg sweep stress --set training.steps=10 --axis seed=[0,1]"
)
def sweep(
    file: SweepFile,
    set_: Set = [],
    axis: Annotated[
        list[str], typer.Option("--axis", "-a", help="Replace or add an axis, e.g. seed=[0,1,2]. Repeatable.")
    ] = [],
    name: Name = None,
    home: Home = None,
    workers: Workers = None,
    fresh: Fresh = False,
) -> int:
    """Run a sweep: train, evaluate, report. Run it again and it does only what is missing."""
    from rpg.config.load import parse_assignments, parse_axes
    from rpg.config.sweep_spec import load_sweep
    from rpg.tasks.preparation import data_digest

    axes = parse_axes(axis)
    planned = load_sweep(file, parse_assignments(set_), data_digest, axes=axes, name=name)
    return execute(planned, home, workers, fresh)
