"""A sweep at a glance: what it asks, what it has found, at what price, whether its runs are sound;
and every run."""

import time
from datetime import datetime
from typing import Any

import altair as alt
import pandas
import streamlit as st

from dashboard import widgets
from dashboard.annotating import show_annotations
from dashboard.view import View, choose_sweep
from rpg.report import charts, curves, sweep_report, tables
from rpg.report.conclusion import conclusion
from rpg.report.selection import MEAN
from rpg.report.summary import Summary
from rpg.store import StoreError
from rpg.store.live_status import clock
from rpg.store.run_folder import UNREADABLE, RunFolder

ORDER = ["running", "failed", UNREADABLE, "interrupted", "queued", "pending", "done"]


def page(view: View) -> None:
    sweeps = view.ask("sweeps")
    sweeps = sweeps[[not view.hidden(name) for name in sweeps["sweep"]]]
    left, middle, right = st.columns([4, 1, 1], vertical_alignment="bottom")
    sweep = choose_sweep(view, left)
    with middle:
        show_annotations(view, sweep)
    with right.popover(f"All sweeps ({len(sweeps)})", width="stretch"):
        _all_sweeps(sweeps)
    summary = view.summary(sweep)
    widgets.show_element("answer", question=summary.question, answer=conclusion(summary))
    _pictures(view, summary)
    grid = tables.spending_table(summary)
    if grid:
        if summary.spending:
            st.text(summary.spending)  # above: the title of what unfolds would be Markdown
        with st.expander(grid.title):
            widgets.show_grid(grid)
    _live(view, sweep)
    flow_run = view.layout.flow_run_url(sweep)
    if flow_run:
        st.link_button("Flow run in Prefect", flow_run)


def _all_sweeps(sweeps: pandas.DataFrame) -> None:
    shown = sweeps.assign(
        created=sweeps["created"].map(datetime.fromtimestamp, na_action="ignore"),
        share=sweeps["done"] / sweeps["runs"].clip(lower=1),
        open=[widgets.address("", sweep=name) for name in sweeps["sweep"]],
    )
    columns = (
        "open share description runs done running failed interrupted pending superseded "
        "variants created"
    ).split()
    added = [name for name in ("label", "tags", "notes") if shown[name].any()]
    hint = "words of a name, a label, a tag or a note"
    words = st.text_input("Search", key="words", placeholder=hint).casefold().split()
    texts = [" ".join(row).casefold() for row in shown[["sweep", *added]].itertuples(index=False)]
    shown = shown.loc[[all(word in text for word in words) for text in texts]]
    named = {
        "open": st.column_config.LinkColumn("sweep", display_text="sweep=(.*)$"),
        "share": widgets.share_column("finished"),
        "created": st.column_config.DatetimeColumn("started", format="YYYY-MM-DD HH:mm"),
    }
    widgets.show_table(shown[columns + added], 400, named)


def _pictures(view: View, summary: Summary) -> None:
    """What is real, and how it came about: every mark leads to the samples of two variants, or to a
    run."""
    sweep = summary.sweep
    name = summary.headline
    labels = list(summary.series.values())
    left, right = st.columns(2)
    against = {"sweep": sweep, "against": summary.baseline_label}
    links = {label: widgets.address("problems", **against, variant=label) for label in labels}
    differences = charts.differences(summary, links)
    if differences:
        with left:
            st.text("Differences: better or worse (filled), within noise (hollow)")
            widgets.show_chart(differences.properties(usermeta=widgets.SVG), "differences")
    with right if differences else st.container():
        x = widgets.choose("Mean accuracy over", ["step", "tokens", "hours"], "x")
        data = view.compute(sweep_report.curve_data, summary.series, [name], [], x, None)
        if data.empty:
            st.text(f"No checkpoint of known {curves.X_TITLES[x]} has been evaluated yet.")
            return
        first = view.ask("runs", sweep).drop_duplicates("variant").set_index("variant")["run"]
        names = [first.get(variant, "") for variant in data["variant"]]
        runs = [widgets.address("run", sweep=sweep, run=name) for name in names]
        data = data.assign(link=runs)
        chart = curves.panel(
            data, labels, name=name, x=x, points=True, style=curves.Style(legend=False, height=300)
        )
        chart.title = alt.Undefined
        widgets.show_chart(chart.properties(usermeta=widgets.SVG), "accuracy")
        widgets.show_legend(labels, [label for label in labels if label in set(data["label"])])
        missing = curves.undrawn(data, labels, x)
        if missing:
            st.text(missing)


@widgets.fragment(run_every=2)
def _live(view: View, sweep: str) -> None:
    scores = view.ask("scores", sweep)
    last = (
        scores[scores["benchmark"] == MEAN]
        .sort_values("step")
        .groupby("run")["accuracy"]
        .last()
        .to_dict()
    )
    names = view.summary(sweep).labels
    runs = view.ask("runs", sweep).to_dict("records")
    rows = [
        _row(view, record, last) for record in runs if not view.hidden(f"{sweep}/{record['run']}")
    ]
    rows = [row | {"variant": names.get(row["variant"], row["variant"])} for row in rows]
    if not rows:
        st.text("This sweep has no runs.")
        return
    table = pandas.DataFrame(rows)
    table["order"] = table["state"].map(ORDER.index)
    table = table.sort_values(["order", "variant", "seed"]).drop(columns="order")
    counts = table["state"].value_counts()
    st.text(" · ".join(f"{counts[state]} {state}" for state in ORDER if state in counts))
    for row in table[table["error"] != ""].itertuples():
        widgets.notice(f"{row.run}: {row.error}")
    warnings = (*view.summary(sweep).health, *view.ask("differences", sweep))
    widgets.show_notices([f"! {line}" for line in warnings], "warnings about these runs")
    if "running" not in counts:
        table = table.drop(columns=["reward", "left"])
    if "queued" not in counts:
        table = table.drop(columns="waits")
    table["label"] = [view.ask("marks").get(f"{sweep}/{name}", ("",))[0] for name in table["run"]]
    table = table.drop(columns=[name for name in ("where", "label") if not table[name].any()])
    table["run"] = [widgets.address("run", sweep=sweep, run=name) for name in table["run"]]
    columns = {
        "run": widgets.RUN_LINK,
        "progress": widgets.share_column("progress"),
        "accuracy": st.column_config.NumberColumn("last mean accuracy", format="%.3f"),
        "reward": st.column_config.NumberColumn("reward", format="%.3f"),
        "where": st.column_config.TextColumn("running", width="medium"),
        "waits": st.column_config.TextColumn("waits for", width="large"),
    }
    widgets.show_table(table.drop(columns="error"), 460, columns)


def _row(view: View, record: dict[str, Any], accuracy: dict[str, float]) -> dict[str, Any]:
    """One run in its current state: from its files, or from the database if it is done."""
    row = {name: record[name] for name in ("run", "variant", "seed", "state", "step", "steps")}
    row |= {"accuracy": accuracy.get(record["run"]), "reward": None}
    row |= dict.fromkeys(("left", "waits", "where"), "")
    row["error"] = record["error"] if isinstance(record["error"], str) else ""
    folder = view.layout.run(record["sweep"], record["run"])
    if record["state"] != "done":
        try:
            row |= _current(folder, row)
        except StoreError as error:
            row["error"] = str(error)
    has_progress = pandas.notna(row["step"]) and pandas.notna(row["steps"]) and row["steps"] > 0
    return row | {"progress": row["step"] / row["steps"] if has_progress else 0.0}


def _current(folder: RunFolder, row: dict[str, Any]) -> dict[str, Any]:
    """The cells of a row that the files of an unfinished run decide."""
    cells: dict[str, Any] = {"state": folder.state()}
    tail = folder.last_metrics()
    if tail:
        last = tail[-1]
        cells |= {"step": last["step"], "reward": last.get("reward")}
        seconds = last.get("seconds_step")
        steps = row["steps"]
        if cells["state"] == "running" and isinstance(seconds, int | float) and pandas.notna(steps):
            since = time.time() - last["time"]
            cells["left"] = clock(max(0, seconds * max(0, steps - last["step"]) - since))
    if cells["state"] == "failed":
        cells["error"] = (folder.read_failed() or {}).get("error", "")
    if cells["state"] == "running":
        cells["where"] = (folder.elsewhere() or "").removeprefix("running ")
    if cells["state"] != "done" and (why := folder.waiting()):
        cells |= {"state": "queued", "waits": why}
    return cells
