"""Commands on the data folder: `aggregate`, `merge`, `note`, `tag`, `rm` and `gc`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, app, complain, console, layout_at, refuse, say, size_text
from rpg.cli.recorded import result
from rpg.errors import see
from rpg.store import Layout
from rpg.store.notes import change, dated, place, read_marks


@app.command()
def aggregate(home: Home = None) -> None:
    """Update the results database from the run folders. Commands that read the database do this
    automatically.

    With RPG_ARCHIVE=s3://..., runs that are only in the archive are fetched first, without their
    checkpoints.
    """
    from rpg.cli.archive import fetch_results
    from rpg.store.database import build

    fetch_results(layout := layout_at(home))
    say(f"{build(layout)}")


@app.command()
def merge(
    homes: Annotated[list[Path], typer.Argument(metavar="HOME...")], home: Home = None
) -> int:
    """Copy the results of other data folders: identical runs once, contradictions reported (exit
    code 1).

    Args:
        homes: Data folders to merge; they stay unchanged.
    """
    from rpg.interop.importing.merge import merge as take_over
    from rpg.store.database import build

    layout = layout_at(home)
    left = 0
    taken = {}
    for other in homes:
        merged = take_over(layout, Layout.at(other))
        taken[str(other)] = merged
        counts = f"{len(merged.copied)} runs copied, {len(merged.replaced)} completed"
        say(f"{other}: {counts}, {len(merged.same)} were here already")
        for name, why in merged.left.items():
            complain(f"! {name}: {why}", "yellow")
        left += len(merged.left)
    result(homes=taken)
    build(layout)
    return 1 if left else 0


Where = Annotated[str, typer.Argument(metavar="SWEEP|SWEEP/RUN", help="The sweep or run.")]


@app.command()
def note(
    where: Where, text: Annotated[str | None, typer.Argument()] = None, home: Home = None
) -> None:
    """Add a note to a sweep or run, or print its notes. The dashboard's overview shows and searches
    them.

    Args:
        text: Text of the note. Default: print the existing notes.
    """
    folder = place(layout_at(home), where)
    notes = (read_marks(folder) if text is None else change(folder, text))["notes"]
    result(notes=notes)
    for line in [dated(entry) for entry in notes] or [f"{where}: no notes yet"]:
        say(line)


@app.command()
def tag(
    where: Where,
    tags: Annotated[list[str] | None, typer.Argument()] = None,
    remove: list[str] = [],
    label: str | None = None,
    home: Home = None,
) -> None:
    """Add tags to a sweep or run, or remove them; or rename it. The dashboard can be searched by
    tags and labels.

    Args:
        tags: Tags to add. The dashboard's lists leave out sweeps and runs tagged `hidden`.
        remove: Tag to remove. Repeatable.
        label: Title that the dashboard shows before the name; "" removes it.
    """
    folder = place(layout_at(home), where)
    for absent in sorted(set(remove) - set(read_marks(folder)["tags"])):
        complain(f"! {where}: has no tag {absent!r}", "yellow")
    now = change(folder, add=tags or [], remove=remove, label=label)
    result(tags=now["tags"], label=now["label"])
    say(
        f"{where}: "
        f"{', '.join(now['tags']) or 'no tags'}{now['label'] and ', called ' + now['label']}"
    )


@app.command()
def rm(
    names: Annotated[list[str], typer.Argument(metavar="SWEEP|SWEEP/RUN...")], home: Home = None
) -> None:
    """Move runs or whole sweeps to the trash of the data folder; `rpg gc` empties it.

    Args:
        names: What to remove.
    """
    from rpg.cli.archive import VARIABLE
    from rpg.store.database import build
    from rpg.store.gc import remove

    layout = layout_at(home)
    for name in names:
        remove(layout, name, only_check=True)
    for name in sorted(
        dict.fromkeys(names), key=lambda name: "/" not in name
    ):  # runs before their sweep
        say(f"{name} -> {remove(layout, name)}")
    url = os.environ.get(VARIABLE)
    if url:
        complain(
            f"! what {url} still has of it is fetched by the next rpg aggregate{see('results')}",
            "yellow",
        )
    build(layout)


@app.command()
def gc(
    home: Home = None,
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y")] = False,
) -> None:
    """Remove weights that `keep_checkpoints` does not keep, incomplete and damaged files, and the
    trash of `rpg rm`.

    Args:
        dry_run: Only print what would be removed.
        yes: Remove without asking.
    """
    from rpg.store.gc import collect, garbage

    layout = layout_at(home)
    items = garbage(layout)
    result(items=[{"path": item.path, "size": item.size, "why": item.why} for item in items])
    if not items:
        console.print("nothing to remove")
        return
    for why in dict.fromkeys(item.why for item in items):
        part = [item for item in items if item.why == why]
        say(f"{size_text(sum(item.size for item in part)):>9}  {len(part)} x {why}")
        for item in part[:3]:
            say(f"           {item.path.relative_to(layout.home)}", "dim")
        if len(part) > 3:
            say(f"           and {len(part) - 3} more", "dim")
    say(f"{size_text(sum(item.size for item in items)):>9}  in total, in {layout.home}")
    try:
        if dry_run or not (yes or typer.confirm("Remove them?")):
            return
    except typer.Abort:
        if not os.isatty(0):
            refuse(
                "there is no terminal to ask for confirmation; --yes removes without asking, "
                "--dry-run only prints"
            )
        raise
    collect(items)
    console.print("removed")
