"""The commands `rpg note` and `rpg tag`: notes and tags for sweeps and runs."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rpg.cli.app import Home, app, say

Where = Annotated[str, typer.Argument(metavar="SWEEP|SWEEP/RUN", help="The sweep or run.")]


@app.command(epilog="Examples: rpg note quickstart 'first with the new reward' · rpg note quickstart")
def note(
    where: Where,
    text: Annotated[
        str | None, typer.Argument(help="Text of the note. Default: print the existing notes.")
    ] = None,
    home: Home = None,
) -> int:
    """Add a note to a sweep or run, or print its notes. The dashboard's overview shows and searches them."""
    from rpg.store import Layout
    from rpg.store.notes import add_note, notes_and_tags, place

    folder = place(Layout.at(home), where)
    if text is not None:
        add_note(folder, text)
    notes = notes_and_tags(folder)["notes"]
    for entry in notes:
        say(
            f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(entry.get('time', 0)))}  {entry.get('text', '')}"
        )
    if not notes:
        say(f"{where}: no notes yet")
    return 0


@app.command(epilog="Examples: rpg tag quickstart paper final · rpg tag quickstart --remove final")
def tag(
    where: Where,
    tags: Annotated[list[str] | None, typer.Argument(help="Tags to add.")] = None,
    remove: Annotated[list[str], typer.Option("--remove", help="Tag to remove. Repeatable.")] = [],
    home: Home = None,
) -> int:
    """Add tags to a sweep or run, or remove them. The dashboard's overview can be searched by tags."""
    from rpg.store import Layout
    from rpg.store.notes import change_tags, place

    now = change_tags(place(Layout.at(home), where), tags or [], remove)
    say(f"{where}: {', '.join(now) or 'no tags'}")
    return 0
