"""The command `rpg report`: the comparison of a sweep's variants, as a table and as files."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, app, console, require_sweep


@app.command(epilog="Example: rpg report quickstart")
def report(
    sweep: Annotated[str, typer.Argument(help="Name of the sweep, e.g. quickstart.")],
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="Print older runs of this name too, as variants of their own."),
    ] = False,
    home: Home = None,
) -> int:
    """Compare the variants of a sweep: last and best with intervals. Writes PNG, SVG, HTML, Markdown and LaTeX."""
    from rpg.report import print_report, write_report
    from rpg.store import Layout
    from rpg.store.database import build

    layout = Layout.at(home)
    require_sweep(sweep, layout)
    build(layout)
    write_report(layout, sweep)
    print_report(layout, sweep, console, superseded)
    return 0
