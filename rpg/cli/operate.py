"""Commands that operate: serve, nightly, aggregate, reconcile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, Set, app, complain, console, say
from rpg.cli.run import Workers, execute


@app.command(epilog="Example: rpg serve --port 4200 --dashboard-port 8501")
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect UI and API.")] = 4200,
    dashboard_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the dashboard.")] = 8501,
    database: Annotated[
        str | None,
        typer.Option(
            help="postgresql+asyncpg://user:password@host/name; default: SQLite in the data folder."
        ),
    ] = None,
    nightly: Annotated[
        str, typer.Option(help="Cron line of the nightly reproductions; empty: none.")
    ] = "0 2 * * *",
    home: Home = None,
) -> int:
    """Prefect server and UI, deployments, worker and dashboard on loopback, until Ctrl-C."""
    from rpg.cli.extras import require

    require("prefect", "streamlit")
    from flows.parts import Plan
    from flows.serve import serve as run
    from rpg.store import Layout

    return run(Layout.at(home), Plan(port, dashboard_port, database, nightly), say)


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


@app.command(epilog="Example: rpg aggregate")
def aggregate(home: Home = None) -> int:
    """Bring the results database up to date with the run folders."""
    from rpg.store import Layout
    from rpg.store.database import build

    built = build(Layout.at(home))
    say(f"{built.path}")
    return 0


@app.command(epilog="Example: rpg reconcile")
def reconcile(home: Home = None) -> int:
    """Repair what a crash left behind: orphans, stale leases, flow runs that are `Running` without a process."""
    from flows.reconcile import reconcile
    from rpg.store import Layout

    done = reconcile(Layout.at(home))
    for line in done:
        say(line)
    console.print(f"{len(done)} repaired" if done else "nothing to repair")
    return 0
