"""The command `rpg nightly`: small sweeps from scratch, compared with earlier nights."""

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
        typer.Argument(
            metavar="[accept] [FOLDER]", help="Folder of sweep files. Default: the shipped nightly sweeps."
        ),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(help="With accept: why the numbers were meant to change."),
    ] = None,
    set_: Set = [],
    home: Home = None,
    workers: Workers = None,
    keep: Annotated[
        int, typer.Option(min=1, help="Number of nights whose runs stay on disk; the numbers always stay.")
    ] = 30,
) -> int:
    """Run small sweeps from scratch and compare their numbers with earlier nights. Exit code 1 if they have changed.

    `rpg nightly accept --why ...` accepts the newest night; later nights are compared with it.
    """
    from flows.nightly import accept, run_night
    from rpg.config.errors import ConfigError
    from rpg.config.load import parse_assignments
    from rpg.config.shipped import NIGHTLY
    from rpg.report.nightly_bands import ALREADY
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
        say(f"{ALREADY} in {layout.home}; this one is skipped")
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
        complain("if this change is intended: rpg nightly accept --why '...'")
    return 1 if night.red else 0
