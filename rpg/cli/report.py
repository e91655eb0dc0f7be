"""The command `rpg report`: compare the variants of one or several sweeps, as tables and files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, app, console, require_sweep, say


@app.command(
    epilog="Examples: rpg report quickstart · rpg report stress kl-weight · "
    "rpg report quickstart --variant grpo --variant rpg-urkl --panel mean --panel reward --html for-anna.html"
)
def report(
    sweeps: Annotated[
        list[str], typer.Argument(help="Names of sweeps, e.g. quickstart.", metavar="SWEEP...")
    ],
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="Also show superseded runs, as separate variants."),
    ] = False,
    variant: Annotated[list[str], typer.Option("--variant", help="Only this variant. Repeatable.")] = [],
    panel: Annotated[
        list[str],
        typer.Option("--panel", help="Only this benchmark (mean: the mean of all) or metric. Repeatable."),
    ] = [],
    baseline: Annotated[
        str | None, typer.Option(help="Compare with this variant instead of the sweep's baseline.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write the selection to this self-contained file."),
    ] = None,
    home: Home = None,
) -> int:
    """Compare the variants of a sweep: last and best with intervals. Writes PNG, SVG, HTML, Markdown and LaTeX.

    Several sweeps, or a selection of variants and panels, become one HTML file that can be shared.
    """
    from rpg.config.errors import ConfigError
    from rpg.report.shared_page import Choice, default_path, print_shared, write_shared
    from rpg.report.sweep_report import print_report, write_report
    from rpg.store import Layout
    from rpg.store.database import build

    layout = Layout.at(home)
    sweeps = list(dict.fromkeys(sweeps))
    for name in sweeps:
        require_sweep(name, layout)
    chosen = len(sweeps) > 1 or bool(variant or panel or baseline or html)
    if html is not None and html.suffix not in (".html", ".htm"):
        raise ConfigError(f"--html {html}: the name must end in .html")
    build(layout)
    if not chosen:
        write_report(layout, sweeps[0])
        print_report(layout, sweeps[0], console, superseded)
        return 0
    choice = Choice(tuple(sweeps), tuple(variant), tuple(panel), baseline, superseded=superseded)
    path = write_shared(layout, choice, (html or default_path(layout, choice)).absolute())
    print_shared(layout, choice, console)
    say(f"wrote {path}")
    return 0
