"""Asking the results database: frames of pandas, with values that are bound, never inserted into
the SQL text."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import duckdb
import pandas

from rpg.store.schema import KEYS

Database = duckdb.DuckDBPyConnection
"""A connection to the results database."""


class Series(NamedTuple):
    """A curve: a variant of a sweep, over its seeds."""

    sweep: str
    variant: str


def frame(db: Database, sql: str, parameters: Sequence[Any] = ()) -> pandas.DataFrame:
    try:
        return db.execute(sql, list(parameters)).df()
    except (duckdb.InterruptException, RuntimeError) as error:
        if "interrupted" in str(error).lower():  # DuckDB's words for Ctrl-C
            raise KeyboardInterrupt from None
        raise


def metric_names(db: Database) -> list[str]:
    """Measurements in the database, in the order of their columns."""
    return [name for name, *_ in db.execute("DESCRIBE metrics").fetchall() if name not in KEYS]


def columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Rows as a list for each of `count` columns, which can be bound."""
    return [[row[column] for row in rows] for column in range(count)]
