"""The command `rpg aggregate`: update the database."""

from __future__ import annotations

from rpg.cli.app import Home, app, say


@app.command(epilog="Example: rpg aggregate")
def aggregate(home: Home = None) -> int:
    """Update the results database from the run folders. Commands that read the database do this automatically."""
    from rpg.store import Layout
    from rpg.store.database import build

    built = build(Layout.at(home))
    say(f"{built.path}")
    return 0
