"""The command `rpg gc`: free disk space."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, app, console, say


@app.command(epilog="Examples: rpg gc --dry-run · rpg gc --yes")
def gc(
    home: Home = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
) -> int:
    """Remove weights that `keep_checkpoints` does not keep, incomplete and damaged files, and the trash of `rpg rm`."""
    from rpg.store import Layout
    from rpg.store.gc import collect, garbage

    layout = Layout.at(home)
    items = garbage(layout)
    if not items:
        console.print("nothing to remove")
        return 0
    for why in dict.fromkeys(item.why for item in items):
        part = [item for item in items if item.why == why]
        say(f"{_bytes(sum(item.size for item in part)):>9}  {len(part)} x {why}")
        for item in part[:3]:
            say(f"           {item.path.relative_to(layout.home)}", "dim")
        if len(part) > 3:
            say(f"           and {len(part) - 3} more", "dim")
    say(f"{_bytes(sum(item.size for item in items)):>9}  in total, in {layout.home}")
    if dry_run or not (yes or typer.confirm("Remove them?")):
        return 0
    collect(items)
    console.print("removed")
    return 0


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
