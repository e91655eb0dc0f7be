"""The command `rpg list`: the catalogue of algorithms."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Preset, app, console


@app.command("list", epilog="Examples: rpg list · rpg list rpg-reinforce-urkl")
def list_(
    name: Annotated[str | None, typer.Argument(help="Show all settings of this algorithm.")] = None,
    preset: Preset = "paper",
) -> None:
    """List the algorithms with formula, objective and citation, or show one with all its settings."""
    from rpg.catalogue.listing import algorithm_table, catalogue_table

    console.print(algorithm_table(name, preset) if name else catalogue_table(preset))
