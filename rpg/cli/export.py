"""The command `rpg export`: the results database as files for other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, app, say


class FileKind(StrEnum):
    """What `rpg export` writes."""

    parquet = "parquet"
    csv = "csv"


@app.command(epilog="Example: rpg export results --format csv")
def export(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; created if it does not exist.")],
    format: Annotated[FileKind, typer.Option(help="File format.")] = FileKind.parquet,
    home: Home = None,
) -> int:
    """Write every table and view of the results database to its own file, for other tools."""
    from rpg.store import Layout, atomic_path
    from rpg.store.database import build, connect
    from rpg.store.schema import TABLES, VIEWS

    layout = Layout.at(home)
    build(layout)
    with connect(layout, external=True) as db:
        for name in (*TABLES, *VIEWS):
            with atomic_path(folder.absolute() / f"{name}.{format.value}") as temporary:
                query = db.sql(f"SELECT * FROM {name}")
                query.write_parquet(str(temporary)) if format is FileKind.parquet else query.write_csv(
                    str(temporary)
                )
                say(f"{folder / name}.{format.value}")
    return 0
