"""The commands `rpg sql` and `rpg export`: the results database as tables and files, or sent to trackers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.text import Text

from rpg.cli.app import Home, app, columns, complain, console, layout_at, refuse, require_sweep, say

if TYPE_CHECKING:
    from rpg.store import Layout


@app.command()
def sql(
    query: str, out: Path | None = None, rows: Annotated[int, typer.Option(min=1)] = 50, home: Home = None
) -> None:
    """Query the results database. It is updated first; queries cannot change it.

    Args:
        query: DuckDB SQL. docs/database.md describes the tables.
        out: Write the whole result to a file (.csv, .parquet or .json).
        rows: Number of rows to print.
    """
    import duckdb

    from rpg.store import atomic_path
    from rpg.store.database import build, connect

    writers = {".csv": "to_csv", ".parquet": "to_parquet", ".json": "to_json"}
    if out is not None and out.suffix not in writers:
        refuse(f"--out {out}: the name must end in .csv, .parquet or .json")
    layout = layout_at(home)
    build(layout)
    with connect(layout) as db:
        try:
            result = db.execute(query)
        except duckdb.Error as error:
            refuse(f"sql: {str(error).strip()}")
        if out is not None:
            frame = result.df()
            with atomic_path(out.absolute()) as temporary:
                options = {"orient": "records"} if out.suffix == ".json" else {"index": False}
                getattr(frame, writers[out.suffix])(temporary, **options)
            say(f"wrote {len(frame):,} rows to {out}")
            return
        names, lines = [column[0] for column in result.description or ()], result.fetchall()
    table = columns(*(escape(str(name)) for name in names))
    for line in lines[:rows]:
        table.add_row(*(Text(_shown(value)) for value in line))
    console.print(table)
    if len(lines) > rows:
        console.print(f"... {len(lines) - rows:,} more rows; --rows N or --out FILE shows them", style="dim")


def _shown(value: object) -> str:
    """A value; null is empty."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


Target = Literal["parquet", "csv", "tensorboard", "wandb", "mlflow", "inspect"]


@app.command()
def export(
    where: Annotated[str | None, typer.Argument()] = None,
    to: Annotated[Target, typer.Option("--to", "--format")] = "parquet",
    sweep: list[str] = [],
    online: Annotated[bool, typer.Option("--online")] = False,
    home: Home = None,
) -> int:
    """Write the results database as files for other tools, or send finished sweeps to a tracker.

    Args:
        where: Folder (csv, parquet, inspect), address of the server (mlflow), or project (wandb; default: rpg).
        to: File format, or tracker.
        sweep: Sweep to send to a tracker, or to write as logs of Inspect AI (default there: evaluations by hand).
            Repeatable.
        online: wandb: upload directly instead of writing offline files.
    """
    layout = layout_at(home)
    if to in ("parquet", "csv", "inspect"):
        if where is None:
            refuse(f"WHERE: name a folder for the files, e.g. rpg export results --to {to}")
        if to == "inspect":
            _logs(layout, Path(where), sweep)
        else:
            _files(layout, Path(where), to)
        return 0
    return _send(layout, to, where, sweep, online)


def _files(layout: Layout, folder: Path, ending: str) -> None:
    from rpg.store import atomic_path
    from rpg.store.database import build, connect
    from rpg.store.schema import TABLES, VIEWS

    build(layout)
    with connect(layout, external=True) as db:
        for name in (*TABLES, *VIEWS):
            with atomic_path(folder.absolute() / f"{name}.{ending}") as temporary:
                query = db.sql(f"SELECT * FROM {name}")
                write = query.write_parquet if ending == "parquet" else query.write_csv
                write(str(temporary))
                say(f"{folder / name}.{ending}")


def _logs(layout: Layout, folder: Path, sweeps: list[str]) -> None:
    from rpg.integrations.inspect import export_logs

    for name in sweeps:
        require_sweep(name, layout)
    written = 0
    for path in export_logs(layout, folder, sweeps):
        written += 1
        say(str(path))
    if not written:
        refuse(
            "no graded samples to export; name a sweep with --sweep, or evaluate a model first: rpg evaluate"
        )
    say(f"view them with: inspect view --log-dir {shlex.quote(str(folder))}", "dim")


def _send(layout: Layout, to: Target, where: str | None, sweeps: list[str], online: bool) -> int:
    from rpg.config.tracking import tracker_of
    from rpg.tracking.follower import Follower, tracking_folder

    if not sweeps:
        refuse(f"--sweep: name a sweep to send to {to}. There are: {', '.join(layout.sweeps()) or 'none'}")
    value: dict[str, str] = {"type": to}
    if to == "mlflow":
        value |= {"uri": where or ""}
    elif to == "wandb":
        value |= {"mode": "online" if online else "offline"} | ({"project": where} if where else {})
    elif where is not None:
        refuse(f"WHERE: {where!r}; tensorboard files go to {tracking_folder(layout) / 'tensorboard'}")
    tracker = tracker_of(value)
    failed = 0
    for name in sweeps:
        require_sweep(name, layout)
        follower = Follower(layout, name, complain, (tracker,), imported=True)
        count = follower.pass_over()
        follower.close()
        failed += bool(follower.failures)
        say(f"{name}: {count} steps and evaluations sent to {to}")
    return 1 if failed else 0
