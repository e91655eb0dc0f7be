"""The command `rpg nightly`: small reproductions against the last 30 nights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, Set, app, complain, say
from rpg.cli.execution import Workers, execute


@app.command(epilog="Examples: rpg nightly · rpg nightly my-nightly-sweeps/")
def nightly(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of sweep files; default: configs/nightly.")
    ] = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
    workers: Workers = None,
    keep: Annotated[
        int, typer.Option(min=1, help="Nights whose runs stay on disk; numbers always stay.")
    ] = 30,
) -> int:
    """Small reproductions, afresh, against the last 30 nights; exit code 1 when a number leaves its band."""
    from flows.nightly import run_night
    from rpg.config.load import parse_assignments
    from rpg.config.shipped import NIGHTLY
    from rpg.report.nightly import ALREADY
    from rpg.store import Layout

    layout = Layout.at(home)
    night = run_night(
        layout, folder or NIGHTLY, parse_assignments(set_), lambda one: execute(one, home, workers), keep
    )
    if night is None:
        say(f"{ALREADY} in {layout.home}; this one is left out")
        return 0
    say(night.table.read_text(encoding="utf-8"))
    for name, why in night.failed.items():
        complain(f"failed: {name}: {why}")
    for finding in night.findings:
        if finding.red:
            complain(f"failed: {finding}")
    return 1 if night.red else 0
