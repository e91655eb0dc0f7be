"""The command `rpg list`: the catalogue of algorithms."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Preset, app, console


@app.command("list", epilog="Examples: rpg list · rpg list rpg-reinforce-urkl")
def list_(
    name: Annotated[str | None, typer.Argument(help="One algorithm, in full.")] = None,
    preset: Preset = "paper",
) -> None:
    """The catalogue of algorithms: formula, objective, citation; every setting of one."""
    from rpg.catalogue.table import algorithm_table, catalogue_table

    console.print(algorithm_table(name, preset) if name else catalogue_table(preset))
