"""Every evaluation beside the others, with its samples: those of sweeps, of checkpoints trained
elsewhere, and by hand (rpg evaluate)."""

import pandas
import streamlit as st

from dashboard import samples
from dashboard.view import View
from dashboard.widgets import Nothing, choose_many, choose_row
from rpg.errors import plural
from rpg.next_steps import command
from rpg.store import Layout
from rpg.store.sample_texts import samples_path

SHARES = {
    "accuracy": "mean@k",
    "standard_error": "standard error",
    "pass_at_k": "pass@k",
    "maj_at_k": "maj@k",
    "truncated": "cut off",
    "unread": "unread",
    "second_reading": "mean@k with a second reader",
}
PLACE = ["sweep", "run", "step"]
"""Where an evaluation's samples are; the table names the model instead."""


def page(view: View) -> None:
    table = view.ask("evaluations")
    if table.empty:
        by_hand = command("evaluate", "MODEL", layout=view.layout)
        raise Nothing(f"Nothing has been evaluated yet. By hand: {by_hand}")
    left, right = st.columns(2)
    origins = sorted(table["origin"].unique())
    others = [origin for origin in origins if origin != "sweep"]
    chosen = choose_many("Origin", origins, "origin", others or origins, column=left)
    benchmarks = sorted(table["benchmark"].unique())
    on = choose_many("Benchmarks", benchmarks, "benchmarks", benchmarks, column=right)
    table = table[table["origin"].isin(chosen) & table["benchmark"].isin(on)]
    shares = {
        name: st.column_config.NumberColumn(label, format="%.3f") for name, label in SHARES.items()
    }
    names = {"rules": "graded by", "draws": "samples/"}
    tokens = {"tokens": st.column_config.NumberColumn(format="%.1f")}
    parts = table[["model", "benchmark", "rules"]].itertuples(index=False)
    called = [" · ".join(part for part in each if isinstance(part, str)) for each in parts]
    place = choose_row(
        table.drop(columns=PLACE).dropna(axis=1, how="all"),
        called,
        "evaluation",
        {**shares, **names, **tokens},
    )
    st.text(
        f"{plural(len(table), 'evaluation')}. Error: the standard error of mean@k over problems. "
        "Evaluations with the same folder under samples/ share their samples. "
        "Answers that could not be read count as wrong. If such an answer is a single formula, a "
        "computer algebra system (the second reader) judges it, too, in a column of its own."
    )
    if called:
        _samples(view.layout, table.iloc[place], called[place])


def _samples(layout: Layout, evaluation: pandas.Series, called: str) -> None:
    st.subheader("Samples")
    st.text(called)
    path = samples_path(
        layout,
        str(evaluation["sweep"]),
        str(evaluation["run"]),
        str(evaluation["benchmark"]),
        int(evaluation["step"]),
    )
    if evaluation["origin"] == "imported" or not path.exists():
        raise Nothing("Its samples are not here: it was imported as a number.")
    samples.browse(samples.read(path))
