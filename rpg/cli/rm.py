"""The command `rpg rm`: move runs and sweeps to the trash."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, app, say


@app.command(epilog="Examples: rpg rm quickstart · rpg rm quickstart/grpo-s0-1a2b3c4d")
def rm(
    names: Annotated[list[str], typer.Argument(metavar="SWEEP|SWEEP/RUN...", help="What to remove.")],
    home: Home = None,
) -> int:
    """Move runs or whole sweeps to the trash of the data folder; `rpg gc` empties it."""
    from rpg.store import Layout
    from rpg.store.database import build
    from rpg.store.gc import remove

    layout = Layout.at(home)
    for name in names:
        say(f"{name} -> {remove(layout, name)}")
    build(layout)
    return 0
