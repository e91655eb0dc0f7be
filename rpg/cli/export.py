"""The command `rpg export`: write the results database as files, or send sweeps to trackers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import Home, app, complain, require_sweep, say

if TYPE_CHECKING:
    from rpg.store import Layout


class Target(StrEnum):
    """A file format, or a tracker."""

    parquet = "parquet"
    csv = "csv"
    tensorboard = "tensorboard"
    wandb = "wandb"
    mlflow = "mlflow"


@app.command(
    epilog="Examples: rpg export results --to csv · rpg export --to tensorboard --sweep quickstart · "
    "rpg export http://127.0.0.1:5000 --to mlflow --sweep quickstart"
)
def export(
    where: Annotated[
        str | None,
        typer.Argument(
            help="Folder for the files (csv, parquet), address of the server (mlflow), or project (wandb; default: rpg)."
        ),
    ] = None,
    to: Annotated[Target, typer.Option("--to", "--format", help="File format, or tracker.")] = Target.parquet,
    sweep: Annotated[list[str], typer.Option("--sweep", help="Sweep to send to a tracker. Repeatable.")] = [],
    online: Annotated[
        bool, typer.Option("--online", help="wandb: upload directly instead of writing offline files.")
    ] = False,
    home: Home = None,
) -> int:
    """Write the results database as files for other tools, or send finished sweeps to a tracker."""
    from rpg.config.errors import ConfigError
    from rpg.store import Layout

    layout = Layout.at(home)
    if to in (Target.parquet, Target.csv):
        if where is None:
            raise ConfigError("WHERE: name a folder for the files, e.g. rpg export results --to csv")
        return _files(layout, Path(where), to.value)
    return _send(layout, to, where, sweep, online)


def _files(layout: Layout, folder: Path, ending: str) -> int:
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
    return 0


def _send(layout: Layout, to: Target, where: str | None, sweeps: list[str], online: bool) -> int:
    from rpg.config.errors import ConfigError
    from rpg.config.tracking import tracker_of
    from rpg.tracking.follower import Follower, tracking_folder

    if not sweeps:
        raise ConfigError(
            f"--sweep: name a sweep to send to {to.value}. There are: {', '.join(layout.sweeps()) or 'none'}"
        )
    value: dict[str, str] = {"type": to.value}
    if to is Target.mlflow:
        value |= {"uri": where or ""}
    elif to is Target.wandb:
        value |= {"mode": "online" if online else "offline"} | ({"project": where} if where else {})
    elif where is not None:
        raise ConfigError(
            f"WHERE: {where!r}; tensorboard files go to {tracking_folder(layout) / 'tensorboard'}"
        )
    tracker = tracker_of(value)
    failed = 0
    for name in sweeps:
        require_sweep(name, layout)
        follower = Follower(layout, name, complain, (tracker,), imported=True)
        count = follower.pass_over()
        follower.close()
        failed += bool(follower.failures)
        say(f"{name}: {count} steps and evaluations sent to {to.value}")
    return 1 if failed else 0
