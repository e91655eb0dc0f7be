"""The published tables next to our runs of the same rows, and what the lint finds in them."""

import functools
import json

import pandas
import streamlit as st

import rpg.paper
from dashboard.selection import choose, choose_sweep
from dashboard.text import show_grid
from dashboard.view import View
from rpg.report.tables import Cell, Grid, number, plus_minus, signed


def page(view: View) -> None:
    entries = rpg.paper.frame()
    titles = {
        f"{row.table}: {row.model}, {row.context} context": row.table
        for row in entries.drop_duplicates("table").itertuples()
    }
    left, right = st.columns([3, 2])
    with left:
        table = titles[choose("Published table", list(titles), "table")]
    with right:
        sweep = choose_sweep(view)
    mine = ours(view, sweep) if sweep else {}
    show_grid(grid(entries[entries["table"] == table], mine))
    if not any((row.row, row.benchmark) in mine for row in entries.itertuples()):
        st.text(
            "The chosen sweep has no variant and benchmark of the paper: only published values are shown."
        )
    else:
        st.text(f"Our model: {model(view, sweep)}")
    error = rpg.paper.sampling_error(1 / 3, 30, 32)
    st.caption(
        f"Published: one seed, Mean@32, last is step 400. Sampling alone moves a Mean@32 of 1/3 over 30 problems by "
        f"about {error:.3f} (one standard error). Ours: last with its 95 % interval; the difference carries our "
        f"interval and that sampling error of the published value. † cannot be: see below."
    )
    st.subheader("Values that cannot be, or ask for a second look")
    rows = [[Cell(text) for text in one] for one in rpg.paper.lint()]
    show_grid(Grid("", ["Rule", "Table", "Row", "Benchmark", "Column", "What is wrong"], rows), prose=True)


def model(view: View, sweep: str) -> str:
    """The model section of the sweep's first run: published rows are of another model unless it says so."""
    names = view.ask("runs", sweep).dropna(subset="variant")["run"]
    spec = json.loads(view.ask("run", sweep, names.iloc[0])["spec"] or "{}") if len(names) else {}
    return json.dumps(spec.get("model", "unknown"), ensure_ascii=False)


def ours(view: View, sweep: str) -> dict[tuple[str, str], dict]:
    """Our numbers by published row and benchmark."""
    found = view.summary(sweep, None, None)
    named = view.ask("variants", (sweep,)).set_index("variant")["display_name"]
    rows = {}
    for row in found.table.to_dict("records"):
        for entry in rpg.paper.match(str(named[row["variant"]]), row["benchmark"]):
            if row["variant"] == min(name for name in named.index if named[name] == named[row["variant"]]):
                rows[entry.row, entry.benchmark] = row
    return rows


def grid(entries: pandas.DataFrame, mine: dict[tuple[str, str], dict]) -> Grid:
    """Published last and best per benchmark; where we have the row, ours and the difference."""
    benchmarks = list(dict.fromkeys(entries["benchmark"]))
    with_ours = [name for name in benchmarks if any(key[1] == name for key in mine)]
    header = ["Published row"]
    for name in benchmarks:
        header += [f"{name} last", f"{name} best"] + (
            [f"{name} ours", "ours − last"] if name in with_ours else []
        )
    rows = []
    for row in dict.fromkeys(entries["row"]):
        cells = [Cell(row)]
        for name in benchmarks:
            [entry] = entries[(entries["row"] == row) & (entries["benchmark"] == name)].itertuples()
            cells += [Cell(f"{value:.4f}{mark(entry, column)}") for column, value in
                      (("last", entry.last), ("best", entry.best))]  # fmt: skip
            if name in with_ours:
                cells += _ours(entry, mine.get((row, name)))
        rows.append(cells)
    return Grid("", header, rows)


def mark(entry, column: str) -> str:
    """A dagger where the lint finds a value that cannot be."""
    return " †" if (entry.table, entry.row, entry.benchmark, column) in impossible() else ""


@functools.cache
def impossible() -> set[tuple[str, str, str, str]]:
    return {
        (one.table, one.row, one.benchmark, column)
        for one in rpg.paper.lint()
        for column in ("last", "best")
        if one.rule in ("unattainable", "last above best") and column in one.column
    }


def _ours(entry, found: dict | None) -> list[Cell]:
    if found is None:
        return [Cell(""), Cell("")]
    difference = found["last"] - entry.last
    error = 1.96 * rpg.paper.sampling_error(entry.last, entry.problems, entry.samples)
    half = (max(found["last"] - found["low"], found["high"] - found["last"]) ** 2 + error**2) ** 0.5
    text = plus_minus(found["last"], found["low"], found["high"])
    return [Cell(text), Cell(f"{signed(difference)} ± {number(half)}")]
