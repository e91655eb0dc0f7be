"""The command `rpg paper`: the published tables, and a check of them."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import app, console


@app.command(epilog="Examples: rpg paper · rpg paper lint")
def paper(
    what: Annotated[
        str, typer.Argument(help="tables, or lint: list published values that cannot be correct.")
    ] = "tables",
) -> int:
    """Show the published tables of the RPG paper, or check them for impossible values."""
    from rpg.config.errors import ConfigError, nearest
    from rpg.paper import lint
    from rpg.paper.lint import in_terminal
    from rpg.paper.published import tables

    if what not in ("tables", "lint"):
        raise ConfigError(
            f"paper {what!r}: not known{nearest(what, ('tables', 'lint'))} Accepted: tables, lint"
        )
    console.print(tables() if what == "tables" else in_terminal(lint()))
    return 0
