"""What a page shows as files: tables as CSV and LaTeX, charts as PNG and SVG, with their data."""

from collections.abc import Mapping
from typing import Any

import pandas
import vl_convert

from rpg.report.csv_text import csv_text
from rpg.report.format import measured
from rpg.report.tables import PREAMBLE, Grid, grid_of, latex_table
from rpg.report.theme import THEME


def frame_of(grid: Grid) -> pandas.DataFrame:
    """The texts of a table."""
    rows = [[cell.text for cell in row] for row in grid.rows]
    return pandas.DataFrame(rows, columns=grid.header)


def grid_of_frame(title: str, frame: pandas.DataFrame) -> Grid:
    """A data frame as a table of texts; numbers with four digits."""
    rows = [[_text(value) for value in row] for row in frame.itertuples(index=False)]
    return grid_of(title, "page", [str(name) for name in frame.columns], rows)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return measured(value)
    return "" if value is None else str(value)


def table_csv(table: Grid | pandas.DataFrame) -> str:
    return csv_text(frame_of(table) if isinstance(table, Grid) else table)


def table_latex(table: Grid | pandas.DataFrame, title: str) -> str:
    grid = table if isinstance(table, Grid) else grid_of_frame(title, table)
    return "\n".join([PREAMBLE, *latex_table(title, grid)])


def chart_svg(spec: Mapping[str, Any]) -> str:
    """A chart in Vega-Lite as it looks before anybody touches it, on white."""
    drawn = {name: value for name, value in spec.items() if name != "usermeta"}
    if "layer" in drawn:
        drawn["layer"] = [layer for layer in drawn["layer"] if not _is_invisible(layer)]
    return str(vl_convert.vegalite_to_svg({**drawn, "config": THEME}))


def _is_invisible(layer: Mapping[str, Any]) -> bool:
    """Whether a layer is there for the pointer only."""
    mark = layer.get("mark")
    return isinstance(mark, Mapping) and mark.get("opacity") == 0.0


def chart_png(spec: Mapping[str, Any]) -> bytes:
    return bytes(vl_convert.svg_to_png(chart_svg(spec), scale=2))


def chart_csv(spec: Mapping[str, Any]) -> str:
    """The largest of the chart's data sets."""
    datasets = list(spec.get("datasets", {}).values())
    largest: list[dict[str, Any]] = max(datasets, key=len, default=[])
    return csv_text(pandas.DataFrame(largest))
