"""The command `rpg nightly`: small reproductions against the last 30 nights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, Set, app, complain, say
from rpg.cli.execution import Workers, execute


@app.command(
    epilog="Examples: rpg nightly · rpg nightly my-sweeps/ · rpg nightly accept --why 'new default of the clip'"
)
def nightly(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[accept] [FOLDER]", help="Folder of sweep files; default: configs/nightly."),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(help="With accept: why the numbers of the newest night were meant to change."),
    ] = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
    workers: Workers = None,
    keep: Annotated[
        int, typer.Option(min=1, help="Nights whose runs stay on disk; numbers always stay.")
    ] = 30,
) -> int:
    """Small reproductions, afresh, against the nights before; exit code 1 when bits or a number have changed.

    `rpg nightly accept --why ...` makes the newest night what later ones are compared with.
    """
    from flows.nightly import accept, run_night
    from rpg.config.errors import ConfigError
    from rpg.config.load import parse_assignments
    from rpg.config.shipped import NIGHTLY
    from rpg.report.nightly import ALREADY
    from rpg.store import Layout

    layout = Layout.at(home)
    words = list(words or [])
    accepting = words[:1] == ["accept"]
    folders = words[1:] if accepting else words
    if len(folders) > 1:
        raise ConfigError(f"nightly {' '.join(words)}: expected one folder; for several sets, one call each")
    folder = Path(folders[0]) if folders else NIGHTLY
    if accepting:
        say(f"accepted: night {accept(layout, folder, why or '')}; later nights are compared with it")
        return 0
    if why is not None:
        raise ConfigError("--why goes with accept: rpg nightly accept --why '...'")
    night = run_night(layout, folder, parse_assignments(set_), lambda one: execute(one, home, workers), keep)
    if night is None:
        say(f"{ALREADY} in {layout.home}; this one is left out")
        return 0
    say(night.table.read_text(encoding="utf-8"))
    for name, reason in night.failed.items():
        complain(f"failed: {name}: {reason}")
    if night.bits:
        complain(f"failed: {night.said}")
    for finding in night.findings:
        if finding.red:
            complain(f"failed: {finding}")
    if night.red and not night.failed:
        complain("meant? then: rpg nightly accept --why '...'")
    return 1 if night.red else 0
