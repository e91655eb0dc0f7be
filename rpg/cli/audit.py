"""The command `rpg audit`: what each loss optimises, by exact enumeration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import Home, Preset, app, complain, console, error_console

if TYPE_CHECKING:
    from rpg.auditing import Report


@app.command(
    epilog="Examples: rpg audit · rpg audit rpg-urkl --figure audit.svg · rpg audit --json > audit.json"
)
def audit(
    name: Annotated[str | None, typer.Argument(help="Algorithm; the whole catalogue if omitted.")] = None,
    preset: Preset = "paper",
    as_json: Annotated[bool, typer.Option("--json", help="Print the full report as JSON.")] = False,
    figure: Annotated[
        Path | None,
        typer.Option(help="Save a figure of bias and variance against drift (.png, .svg or .html)."),
    ] = None,
    save: Annotated[bool, typer.Option(help="Save the result for the database and the dashboard.")] = True,
    home: Home = None,
) -> int:
    """Compute by exact enumeration what each loss optimises: its bias for every objective, and its variance."""
    from rpg.auditing import audit as audit_one
    from rpg.auditing import audit_catalogue
    from rpg.catalogue import algorithm
    from rpg.config.errors import ConfigError
    from rpg.store import Layout, atomic_write_text

    if figure is not None and figure.suffix not in (".png", ".svg", ".html"):
        raise ConfigError(f"--figure {figure}: the name must end in .png, .svg or .html")
    chosen = algorithm(name, preset) if name else None
    with error_console.status("auditing by enumeration ..."):
        report = audit_one(chosen) if chosen else audit_catalogue()
    text = report.to_json()
    if as_json:
        print(text)
    else:
        console.print(report.table(console.width))
    if save:
        file = f"{name or 'catalogue'}{'-released' if preset == 'released' else ''}.json"
        atomic_write_text(Layout.at(home).audits / file, text)
    if figure is not None:
        _draw(report, figure)
        complain(f"wrote {figure}")
    return 0


def _draw(report: Report, path: Path) -> None:
    """Save the figure without a network: PNG at twice the size, SVG, or a page that contains its own scripts."""
    chart = report.figure()
    if path.suffix == ".html":
        chart.save(path, inline=True)
    else:
        chart.save(path, **({"scale_factor": 2} if path.suffix == ".png" else {}))
