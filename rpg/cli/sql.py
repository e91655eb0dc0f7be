"""The command `rpg sql`: query the results database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from rpg.cli.app import Home, app, console, say


@app.command(epilog='Example: rpg sql "select variant, seed, state from runs" --out runs.csv')
def sql(
    query: Annotated[str, typer.Argument(help="DuckDB SQL. docs/database.md describes the tables.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the whole result to a file (.csv, .parquet or .json).")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows to print.")] = 50,
    home: Home = None,
) -> int:
    """Query the results database. It is updated first; queries cannot change it."""
    import duckdb

    from rpg.config.errors import ConfigError
    from rpg.store import Layout, atomic_path
    from rpg.store.database import build, connect

    writers = {".csv": "to_csv", ".parquet": "to_parquet", ".json": "to_json"}
    if out is not None and out.suffix not in writers:
        raise ConfigError(f"--out {out}: the name must end in .csv, .parquet or .json")
    layout = Layout.at(home)
    build(layout)
    with connect(layout) as db:
        try:
            result = db.execute(query)
        except duckdb.Error as error:
            raise ConfigError(f"sql: {str(error).strip()}") from None
        if out is not None:
            frame = result.df()
            with atomic_path(out.absolute()) as temporary:
                options = {"orient": "records"} if out.suffix == ".json" else {"index": False}
                getattr(frame, writers[out.suffix])(temporary, **options)
            say(f"wrote {len(frame):,} rows to {out}")
            return 0
        names, lines = [column[0] for column in result.description or ()], result.fetchall()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(Text(str(name)))
    for line in lines[:rows]:
        table.add_row(*(Text(_shown(value)) for value in line))
    console.print(table)
    if len(lines) > rows:
        console.print(f"... {len(lines) - rows:,} more rows; --rows N or --out FILE shows them", style="dim")
    return 0


def _shown(value: object) -> str:
    """A value; null is empty."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
