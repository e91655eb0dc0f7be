"""Commands that look: list, show, status, report, audit, paper, dashboard, doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rpg.cli.app import File, Home, Set, app, complain, console, error_console, say

Preset = Annotated[str, typer.Option("--preset", help="paper, or released where the released code differs.")]


@app.command("list", epilog="Examples: rpg list · rpg list rpg-reinforce-urkl")
def list_(
    name: Annotated[str | None, typer.Argument(help="One algorithm, in full.")] = None,
    preset: Preset = "paper",
) -> None:
    """The catalogue of algorithms: formula, objective, citation; every setting of one."""
    from rpg.catalogue.table import algorithm_table, catalogue_table

    console.print(algorithm_table(name, preset) if name else catalogue_table(preset))


@app.command(epilog="Example: rpg show quickstart --set training.steps=10")
def show(
    file: File,
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """The resolved form of a file, the runs it expands to, and what they will cost. Downloads nothing."""
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything of the hub's is imported
    import yaml

    from rpg.cli.cost import print_cost
    from rpg.config.errors import ConfigError
    from rpg.config.load import parse_assignments
    from rpg.config.sweep import load_file
    from rpg.planning.cost import cost
    from rpg.store import Layout
    from rpg.tasks import DataError
    from rpg.tasks.preparation import data_digest

    absent: dict[str, str] = {}

    def digest(spec) -> str:
        task = spec.task.model_dump_json()
        if task in absent:
            return ""
        try:
            return data_digest(spec)
        except DataError as error:  # what a file means can be looked at before its data is here
            if isinstance(error.__cause__, ConfigError):
                raise
            absent[task] = str(error)
            return ""

    sweep = load_file(file, parse_assignments(set_), digest)
    if as_json:
        runs = [{"run": r.folder, "run_id": r.run_id, "variant": r.variant, "spec": r.spec.model_dump(mode="json")}
                for r in sweep.runs]  # fmt: skip
        print(json.dumps({"name": sweep.spec.name, "baseline": sweep.baseline, "runs": runs}, indent=1))
        return
    first = sweep.runs[0].spec
    console.rule(f"first run, resolved ({sweep.runs[0].variant}, seed {first.seed})", align="left")
    print(yaml.safe_dump(first.model_dump(mode="json"), sort_keys=False), end="")
    console.rule(f"{len(sweep.runs)} runs", align="left")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("variant", "seed", "rollouts", "updates", "folder"):
        table.add_column(name, justify="right" if name in ("seed", "rollouts", "updates") else "left")
    for r in sweep.runs:
        c = cost(r.spec)
        table.add_row(r.variant, str(r.spec.seed), f"{c.rollouts:,}", f"{c.optimizer_steps:,}", r.folder)
    console.print(table, markup=False)
    print_cost(sweep, Layout.at(home))
    for reason in dict.fromkeys(absent.values()):
        complain(f"the data is not here, so folder names are not final: {reason}", "yellow")


def _known(sweep: str, layout) -> None:
    from rpg.config.errors import ConfigError, nearest

    known = layout.sweeps()
    if sweep not in known:
        there = f"There are: {', '.join(known)}" if known else "There are none yet"
        raise ConfigError(f"no sweep {sweep!r} in {layout.home}{nearest(sweep, known)} {there}")


@app.command(epilog="Example: rpg status quickstart")
def status(
    sweep: Annotated[str | None, typer.Argument(help="Sweep; all of them when left out.")] = None,
    home: Home = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing until Ctrl-C.")] = False,
) -> int:
    """What every run is doing, from the files."""
    import time

    from flows.live import Watch, headline, table
    from rpg.store import Layout, StoreError
    from rpg.store.current import sweep_folders

    layout = Layout.at(home)
    known = layout.sweeps()
    if sweep:
        _known(sweep, layout)
    if not known:
        console.print(
            f"no sweeps in {layout.home} yet; start one with: rpg sweep quickstart"
        )
        return 0
    watches = {}
    for name in [sweep] if sweep else known:
        try:
            watches[name] = Watch(sweep_folders(layout, name))
        except StoreError as error:
            complain(f"warning: {error}")
    while True:
        for name, one in watches.items():
            views = one.views()
            console.print(headline(name, views, "", None))
            console.print(table(views))
        if not watch:
            return 0
        time.sleep(2)


@app.command(epilog="Example: rpg report quickstart")
def report(
    sweep: Annotated[str, typer.Argument(help="Name of a sweep, e.g. quickstart.")],
    home: Home = None,
) -> int:
    """Last and best of every variant with intervals; writes the figure (PNG, SVG), HTML, Markdown and LaTeX."""
    from rpg.report import print_report, write_report
    from rpg.store import Layout
    from rpg.store.database import build

    layout = Layout.at(home)
    _known(sweep, layout)
    build(layout)
    write_report(layout, sweep)
    print_report(layout, sweep, console)
    return 0


@app.command(
    epilog="Examples: rpg audit · rpg audit rpg-urkl --figure audit.svg · rpg audit --json > audit.json"
)
def audit(
    name: Annotated[
        str | None, typer.Argument(help="One algorithm; the whole catalogue when left out.")
    ] = None,
    preset: Preset = "paper",
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable, everything.")] = False,
    figure: Annotated[
        Path | None, typer.Option(help="Draw bias and variance against drift: .png, .svg or .html.")
    ] = None,
    save: Annotated[bool, typer.Option(help="Keep the result for the database and the dashboard.")] = True,
    home: Home = None,
) -> int:
    """What each loss optimises, by exact enumeration: bias against every objective, and variance."""
    import rpg
    from rpg.auditing import audit as audit_one
    from rpg.auditing import audit_catalogue
    from rpg.config.errors import ConfigError
    from rpg.store import Layout, atomic_write_text

    if figure is not None and figure.suffix not in (".png", ".svg", ".html"):
        raise ConfigError(f"--figure {figure}: the name must end in .png, .svg or .html")
    algorithm = rpg.algorithm(name, preset) if name else None
    with error_console.status("auditing by enumeration ..."):
        report = audit_one(algorithm) if algorithm else audit_catalogue()
    text = report.to_json()
    if as_json:
        print(text)
    else:
        console.print(report.table(console.width))
    if save:
        file = f"{name or 'catalogue'}{'-released' if preset == 'released' else ''}.json"
        atomic_write_text(Layout.at(home).audits / file, text)
    if figure is not None:
        _draw(report.figure(), figure)
        complain(f"wrote {figure}")
    return 0


def _draw(chart, path: Path) -> None:
    """Save an Altair chart without network: PNG at twice the size, SVG, or a page that holds its own scripts."""
    if path.suffix == ".html":
        chart.save(path, inline=True)
    else:
        chart.save(path, **({"scale_factor": 2} if path.suffix == ".png" else {}))


@app.command(epilog="Examples: rpg paper · rpg paper lint")
def paper(
    what: Annotated[
        str, typer.Argument(help="tables, or lint: values that cannot be, found by rule.")
    ] = "tables",
) -> int:
    """The published tables of the RPG paper, and a lint of them."""
    from rpg.config.errors import ConfigError, nearest
    from rpg.paper import lint
    from rpg.paper.show import findings, tables

    if what not in ("tables", "lint"):
        raise ConfigError(
            f"paper {what!r}: not known{nearest(what, ('tables', 'lint'))} Accepted: tables, lint"
        )
    console.print(tables() if what == "tables" else findings(lint()))
    return 0


@app.command(epilog="Example: rpg dashboard --port 8600")
def dashboard(
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8501,
    address: Annotated[
        str, typer.Option(help="Address to listen on; everyone who reaches it can read.")
    ] = "127.0.0.1",
    home: Home = None,
) -> int:
    """Compare variants in the browser. Listens on loopback unless told otherwise; no telemetry."""
    import os
    import socket
    import subprocess

    from rpg.cli.extras import require

    require("streamlit")
    from flows.parts import streamlit
    from rpg.processes import python_module
    from rpg.store import Layout
    from rpg.store.database import build

    layout = Layout.at(home)
    build(layout)
    with socket.socket() as probe:
        if probe.connect_ex((address, port)) == 0:
            error_console.print(
                f"error: port {port} on {address} is in use; choose another: rpg dashboard --port {port + 1}"
            )
            return 2
    say(f"dashboard of {layout.home}: http://{address}:{port}  (Ctrl-C stops it)")
    environment = {**os.environ, "RPG_HOME": str(layout.home)}
    try:
        return subprocess.run(python_module(*streamlit(address, port)), env=environment).returncode
    except KeyboardInterrupt:
        return 0


@app.command(epilog="Example: rpg doctor")
def doctor(home: Home = None) -> int:
    """Is everything here that a sweep needs? Python, packages, cores, a writable data folder."""
    import os
    import shutil
    import tempfile
    from importlib.metadata import PackageNotFoundError, version

    from rpg.cli.extras import install_command
    from rpg.store import Layout

    bad = 0

    def line(good: bool, text: str) -> None:
        nonlocal bad
        bad += not good
        say(f"{'ok ' if good else 'NO '} {text}", None if good else "bold red")

    line((3, 11) <= sys.version_info[:2] <= (3, 13), f"Python {sys.version.split()[0]} (3.11 to 3.13 wanted)")
    for name in (
        "torch",
        "transformers",
        "safetensors",
        "schedulefree",
        "prefect",
        "duckdb",
        "altair",
        "streamlit",
    ):
        try:
            line(True, f"{name} {version(name)}")
        except PackageNotFoundError:
            line(False, f"{name} is not installed; install it with: {install_command(name)}")
    from rpg.cli.run import cores

    line(True, f"{cores()} cores: that many trainings at a time")
    folder = Layout.at(home).home
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free / 2**30
        line(free > 1, f"data folder {folder} is writable, {free:.0f} GB free")
    except OSError as error:
        line(False, f"data folder {folder}: {error.strerror}; set RPG_HOME or --home to a writable folder")
    url = os.environ.get("PREFECT_API_URL")
    line(
        True, f"Prefect server: {url}" if url else "Prefect server: a private one on loopback for each sweep"
    )
    return 1 if bad else 0
