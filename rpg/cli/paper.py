"""The command `rpg paper`: the published tables and a lint of them."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import app, console


@app.command(epilog="Examples: rpg paper · rpg paper lint")
def paper(
    what: Annotated[
        str, typer.Argument(help="tables, or lint: values that cannot be, found by rule.")
    ] = "tables",
) -> int:
    """The published tables of the RPG paper, and a lint of them."""
    from rpg.config.errors import ConfigError, nearest
    from rpg.paper import lint
    from rpg.paper.show import findings, tables

    if what not in ("tables", "lint"):
        raise ConfigError(
            f"paper {what!r}: not known{nearest(what, ('tables', 'lint'))} Accepted: tables, lint"
        )
    console.print(tables() if what == "tables" else findings(lint()))
    return 0
