"""The published tables next to our runs of the same rows."""

import json
from typing import Any

import pandas
import streamlit as st

import rpg.report.paper
from dashboard.view import View, choose_sweep
from dashboard.widgets import choose, show_grid
from rpg.report.format import points, with_interval
from rpg.report.tables import Cell, Grid

Row = dict[str, Any]


def page(view: View) -> None:
    entries = rpg.report.paper.frame()
    each = entries.drop_duplicates("table").itertuples()
    titles = {f"{row.table}: {row.model}, {row.context} context": row.table for row in each}
    left, right = st.columns([3, 2])
    table = titles[choose("Published table", list(titles), "table", column=left)]
    sweep = choose_sweep(view, column=right) if len(view.ask("sweeps")) else ""
    results = ours(view, sweep) if sweep else {}
    show_grid(grid(entries[entries["table"] == table], results))
    if not any((row.row, row.benchmark) in results for row in entries.itertuples()):
        st.text(
            "The selected sweep has no variant and benchmark in common with the paper: only "
            "published values are shown."
        )
    else:
        st.text(f"Our model: {model(view, sweep)}")
    error = rpg.report.paper.sampling_error(1 / 3, 30, 32)
    st.caption(
        "Published: one seed, Mean@32; the last step is 400. Sampling alone moves a Mean@32 of "
        "1/3 over 30 problems by "
        f"about {error:.3f} (one standard error). Ours: last with its 95 % interval; the "
        "interval of the difference "
        "combines ours with that sampling error of the published value. Some published values "
        "cannot be right; rpg paper lint lists them."
    )


def model(view: View, sweep: str) -> str:
    """The model section of the sweep's first run; published rows may be of another model."""
    names = view.ask("runs", sweep).dropna(subset="variant")["run"]
    spec = json.loads(view.ask("run", sweep, names.iloc[0])["spec"] or "{}") if len(names) else {}
    return json.dumps(spec.get("model", "unknown"), ensure_ascii=False)


def ours(view: View, sweep: str) -> dict[tuple[str, str], Row]:
    """Our numbers by published row and benchmark; of several variants with the same display name,
    the first."""
    names = view.ask("variants", (sweep,)).set_index("variant")["display_name"]
    rows = {}
    for row in view.summary(sweep).table.to_dict("records"):
        name = names[row["variant"]]
        for entry in rpg.report.paper.match(str(name), row["benchmark"]):
            if row["variant"] == min(names.index[names == name]):
                rows[entry.row, entry.benchmark] = row
    return rows


def grid(entries: pandas.DataFrame, results: dict[tuple[str, str], Row]) -> Grid:
    """Published last and best per benchmark, with ours and the difference if we have the row."""
    benchmarks = list(dict.fromkeys(entries["benchmark"]))
    with_ours = [name for name in benchmarks if any(benchmark == name for _, benchmark in results)]
    header = ["Published row"]
    for name in benchmarks:
        header += [f"{name} last", f"{name} best"]
        if name in with_ours:
            header += [f"{name} ours", "points over last"]
    rows = []
    for row in dict.fromkeys(entries["row"]):
        cells = [Cell(row)]
        for name in benchmarks:
            [entry] = entries[(entries["row"] == row) & (entries["benchmark"] == name)].itertuples()
            cells += [Cell(f"{value:.4f}") for value in (entry.last, entry.best)]
            if name in with_ours:
                cells += _ours(entry, results.get((row, name)))
        rows.append(cells)
    return Grid("", header, rows)


def _ours(entry: Any, result: Row | None) -> list[Cell]:
    if result is None:
        return [Cell(""), Cell("")]
    difference = result["last"] - entry.last
    error = 1.96 * rpg.report.paper.sampling_error(entry.last, entry.problems, entry.samples)
    half = (
        max(result["last"] - result["low"], result["high"] - result["last"]) ** 2 + error**2
    ) ** 0.5
    text = with_interval(result["last"], result["low"], result["high"])
    ahead = with_interval(difference, difference - half, difference + half, points)
    return [Cell(text), Cell(ahead)]
