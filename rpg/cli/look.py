"""Commands that look: list, show, status, report, sql, audit, paper, dashboard, doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rpg.cli.app import Home, Set, app, console, error_console


@app.command("list", epilog="Example: rpg list")
def list_() -> None:
    """The catalogue of algorithms: formula, objective, citation."""
    from rpg.catalogue_table import catalogue_table

    console.print(catalogue_table())


@app.command(epilog="Example: rpg show configs/sweeps/quickstart.yaml --set training.steps=10")
def show(
    file: Annotated[Path, typer.Argument(help="Run or sweep file.")],
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """The resolved form of a file, the runs it expands to, and what they will cost."""
    import yaml

    from rpg.config.load import parse_assignments, read_mapping
    from rpg.config.sweep import load_sweep, single_run
    from rpg.cost import cost, seconds_per_step
    from rpg.data import data_digest
    from rpg.store import Layout

    load = load_sweep if "name" in read_mapping(file) else single_run
    sweep = load(file, parse_assignments(set_), data_digest)
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
    total = cost(sweep.runs[0].spec)
    for r in sweep.runs[1:]:
        total = total + cost(r.spec)
    console.rule("cost", align="left")
    console.print(
        f"{total.rollouts:,} responses of at most {total.response_tokens_at_most:,} tokens in all, "
        f"{total.optimizer_steps:,} optimizer steps, {total.checkpoints_evaluated:,} checkpoints to evaluate",
        highlight=False,
    )
    layout = Layout.at(home)
    measured = [(seconds_per_step(r.spec, layout), r.spec.training.steps) for r in sweep.runs]
    if all(m for m, _ in measured):
        minutes = sum(m[0] * steps for m, steps in measured if m) / 60
        runs_like = min(m[1] for m, _ in measured if m)
        console.print(
            f"about {minutes:.1f} core-minutes of training, by {runs_like} or more finished runs of the same size here"
        )
    else:
        console.print("time: unknown until a run of this size has finished in this data folder")


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

    from flows.live import Watch, headline, sweep_folders, table
    from rpg.store import Layout, StoreError

    layout = Layout.at(home)
    known = layout.sweeps()
    if sweep:
        _known(sweep, layout)
    if not known:
        console.print(
            f"no sweeps in {layout.home} yet; start one with: rpg sweep configs/sweeps/quickstart.yaml"
        )
        return 0
    watches = {}
    for name in [sweep] if sweep else known:
        try:
            watches[name] = Watch(sweep_folders(layout, name))
        except StoreError as error:
            error_console.print(f"warning: {error}", markup=False, soft_wrap=True)
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


@app.command(epilog="Example: rpg doctor")
def doctor(home: Home = None) -> int:
    """Is everything here that a sweep needs? Python, packages, cores, a writable data folder."""
    import os
    import shutil
    import tempfile
    from importlib.metadata import PackageNotFoundError, version

    from rpg.store import Layout

    bad = 0

    def line(good: bool, text: str) -> None:
        nonlocal bad
        bad += not good
        console.print(
            f"{'ok ' if good else 'NO '} {text}",
            style=None if good else "bold red",
            markup=False,
            highlight=False,
        )

    line(sys.version_info[:2] in ((3, 11), (3, 12)), f"Python {sys.version.split()[0]} (3.11 or 3.12 wanted)")
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
            line(False, f"{name} is not installed; run: make setup")
    from rpg.cli.run import default_workers

    line(True, f"{default_workers()} cores: that many trainings at a time")
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
