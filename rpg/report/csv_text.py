"""CSV for spreadsheets, which run a cell as a formula if its text begins like one."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas

_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""The last four, of double width, are the first four to some spreadsheets."""


def csv_text(frame: pandas.DataFrame) -> str:
    """The frame as CSV without its index; texts that would be formulas begin with an apostrophe."""
    text: str = without_formulas(frame).to_csv(index=False)
    return text


def without_formulas(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The frame with an apostrophe before every text, name of a column included, that a spreadsheet
    would run. Numbers written as text stay."""
    safe = frame.copy()
    for name in safe.columns:
        if not pandas.api.types.is_numeric_dtype(safe[name]):
            safe[name] = safe[name].map(_plain, na_action="ignore").astype(safe[name].dtype)
    return safe.rename(columns=_plain_name)


def select_without_formulas(table: str, columns: Mapping[str, str]) -> str:
    """A query for a table of DuckDB with an apostrophe before the same texts; `columns`: name ->
    type. A table of samples is too large for a frame."""
    starts = " OR ".join(f"starts_with(value, {_literal(start)})" for start in _STARTS)
    is_formula = f"({starts}) AND TRY_CAST(value AS DOUBLE) IS NULL"
    selected = []
    for name, kind in columns.items():
        column = f'"{name}"'
        if kind == "VARCHAR":
            escaped = is_formula.replace("value", column)
            column = f"CASE WHEN {escaped} THEN chr(39) || {column} ELSE {column} END AS {column}"
        selected.append(column)
    return f"SELECT {', '.join(selected)} FROM {table}"


def _literal(start: str) -> str:
    """A character as DuckDB reads it."""
    return f"chr({ord(start)})"


def _plain(value: Any) -> Any:
    is_formula = isinstance(value, str) and value.startswith(_STARTS) and not _is_number(value)
    return f"'{value}" if is_formula else value


def _plain_name(name: Hashable) -> Any:
    return _plain(name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
