"""The texts of graded samples in SQL. They stay in the samples' files, because they would make
every copy of the database slow; a query reads those of the rows that it asks for."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from rpg.store.atomic_files import StoreError
from rpg.store.layout import Layout
from rpg.store.samples import read_samples
from rpg.store.schema import SAMPLE_TEXTS, TABLES, quote

_FILES = 8
"""Files whose texts are kept in memory. Rows of a file follow each other in the table."""
_KEY = ("sweep", "run", "benchmark", "step", "problem_id", "sample")
_STORED_AS = {"prompt": "problem"}
"""Column in SQL -> column of the file, where the names differ."""

Texts = dict[tuple[str, int], dict[str, str | None]]
"""(problem_id, sample) -> column in SQL -> text."""


def samples_path(layout: Layout, sweep: str, run: str, benchmark: str, step: int) -> Path:
    """The file of an evaluation's samples; without a sweep, that of an evaluation by hand."""
    if not sweep:
        return layout.evaluations / run / f"{benchmark}.parquet"
    return layout.run(sweep, run).eval_path(benchmark, step)


def add_texts(db: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    """Give `samples` of this connection the columns of SAMPLE_TEXTS.

    A text is null where the file has gone since the database was built.
    """

    @lru_cache(_FILES)
    def read(path: Path) -> Texts:
        try:
            return _texts(path)
        except StoreError:
            return {}

    def text(
        name: str, sweep: str, run: str, benchmark: str, step: int, problem: str, sample: int
    ) -> str | None:
        texts = read(samples_path(layout, sweep, run, benchmark, step))
        return texts.get((problem, sample), {}).get(name)

    arguments: list[Any] = ["VARCHAR", *(TABLES["samples"][name][0] for name in _KEY)]
    null_handling: Any = "special"  # A text may be null.
    db.create_function("sample_text", text, arguments, "VARCHAR", null_handling=null_handling)
    [(database,)] = db.execute("SELECT current_database()").fetchall()
    key = ", ".join(_KEY)
    columns = ", ".join(f"sample_text('{name}', {key}) AS {name}" for name in SAMPLE_TEXTS)
    db.execute(
        f"CREATE TEMP VIEW samples AS SELECT *, {columns} FROM {quote(database)}.main.samples"
    )


def _texts(path: Path) -> Texts:
    rows = read_samples(path).to_pylist()
    return {
        (row["problem_id"], row["sample"]): {
            name: row[_STORED_AS.get(name, name)] for name in SAMPLE_TEXTS
        }
        for row in rows
    }
