"""The command `rpg merge`: merge the results of other data folders into this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, app, complain, say


@app.command(epilog="Example: rpg merge /mnt/gpu-node/rpg-data ~/laptop/rpg-data")
def merge(
    homes: Annotated[
        list[Path],
        typer.Argument(metavar="HOME...", help="Data folders to merge; they stay unchanged."),
    ],
    home: Home = None,
) -> int:
    """Copy the results of other data folders: identical runs once, contradictions reported (exit code 1)."""
    from rpg.store import Layout
    from rpg.store.database import build
    from rpg.store.merge import merge as take_over

    layout, left = Layout.at(home), 0
    for other in homes:
        merged = take_over(layout, Layout.at(other))
        counts = f"{len(merged.copied)} runs copied, {len(merged.replaced)} completed"
        say(f"{other}: {counts}, {len(merged.same)} were here already")
        for name, why in merged.left.items():
            complain(f"! {name}: {why}", "yellow")
        left += len(merged.left)
    build(layout)
    return 1 if left else 0
