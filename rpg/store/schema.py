"""Tables and views of the results database, with the meaning of every column.

A test compares docs/database.md with them.
"""

import re
from pathlib import Path

from rpg.metrics import METRICS

# raise it when a table changes: databases of another version are rebuilt from the run folders
VERSION = 18

CREATE_TABLES = Path(__file__).with_suffix(".sql").read_text("utf-8")
_COLUMN = re.compile(r"^    (\w+) (\S+?),?  -- (.*)$", re.MULTILINE)

TABLES: dict[str, dict[str, tuple[str, str]]] = {
    table: {name: (kind, meaning) for name, kind, meaning in _COLUMN.findall(columns)}
    for table, columns in re.findall(r"(?ms)^CREATE TABLE (\w+) \(\n(.*?)^\);", CREATE_TABLES)
}
"""Table -> column -> (type, meaning), from schema.sql."""

SAMPLE_TEXTS = {
    "prompt": "the problem (in `rpg sql` only)",
    "answer": "right answer (likewise)",
    "response": "response (likewise)",
}
"""Columns of `samples` in `rpg sql`, read from the samples' files (rpg.store.sample_texts)."""

# Columns of `metrics` that are not measurements. Measurements become DOUBLE columns as they appear
# in the files.
KEYS = tuple(TABLES["metrics"])

_VIEWS_SQL = Path(__file__).with_name("views.sql").read_text("utf-8")
_VIEW = re.compile(
    r"^((?:-- [^\n]*\n)+)(CREATE OR REPLACE VIEW (\w+) AS\n.*?;)$", re.MULTILINE | re.DOTALL
)

VIEWS: dict[str, tuple[str, str]] = {
    name: (comment.replace("\n-- ", " ").removeprefix("-- ").strip(), sql)
    for comment, sql, name in _VIEW.findall(_VIEWS_SQL)
}
"""View -> (what its rows are, the SQL that creates it), from views.sql."""


def quote(name: str) -> str:
    """A name as an SQL identifier, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def create_views(measurements: bool) -> str:
    """SQL that creates the views; without measurement columns there is nothing to unpivot in
    `curves`."""
    views = {name: sql for name, (_, sql) in VIEWS.items()}
    if not measurements:
        columns = ", ".join(
            f"NULL AS {name}" for name in ("variant", "seed", *KEYS, "metric", "value")
        )
        views["curves"] = f"CREATE OR REPLACE VIEW curves AS SELECT {columns} WHERE false;"
    return "".join(views.values())


def documentation() -> str:
    """The tables and views as Markdown, as docs/database.md holds them."""
    lines = []
    for table, columns in TABLES.items():
        lines += [f"### `{table}`", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in columns.items()]
        if table == "samples":
            lines += [
                f"| `{name}` | VARCHAR | {meaning} |" for name, meaning in SAMPLE_TEXTS.items()
            ]
        if table == "metrics":
            meanings = {
                name: metric.meaning.replace("|", "\\|") for name, metric in METRICS.items()
            }
            lines += [f"| `{name}` | DOUBLE | {meaning} |" for name, meaning in meanings.items()]
        lines.append("")
    lines += ["### Views", "", "| view | rows |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, (meaning, _) in VIEWS.items()]
    return "\n".join(lines) + "\n"
