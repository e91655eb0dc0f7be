"""The commands `rpg note` and `rpg tag`: words of people beside sweeps and runs."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rpg.cli.app import Home, app, say

Where = Annotated[str, typer.Argument(metavar="SWEEP|SWEEP/RUN", help="What it is about.")]


@app.command(epilog="Examples: rpg note quickstart 'first with the new reward' · rpg note quickstart")
def note(
    where: Where,
    text: Annotated[
        str | None, typer.Argument(help="The note; without it, those that are there are printed.")
    ] = None,
    home: Home = None,
) -> int:
    """Write a note beside a sweep or run; the dashboard's overview shows and searches it."""
    from rpg.store import Layout
    from rpg.store.notes import add_note, notes_and_tags, place

    folder = place(Layout.at(home), where)
    if text is not None:
        add_note(folder, text)
    notes = notes_and_tags(folder)["notes"]
    for one in notes:
        say(f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(one.get('time', 0)))}  {one.get('text', '')}")
    if not notes:
        say(f"{where}: no notes yet")
    return 0


@app.command(epilog="Examples: rpg tag quickstart paper final · rpg tag quickstart --remove final")
def tag(
    where: Where,
    tags: Annotated[list[str] | None, typer.Argument(help="Tags to add.")] = None,
    remove: Annotated[list[str], typer.Option("--remove", help="A tag to take away. Repeatable.")] = [],
    home: Home = None,
) -> int:
    """Tag a sweep or run; the dashboard's overview finds it by its tags."""
    from rpg.store import Layout
    from rpg.store.notes import change_tags, place

    now = change_tags(place(Layout.at(home), where), tags or [], remove)
    say(f"{where}: {', '.join(now) or 'no tags'}")
    return 0
