"""Every evaluation beside the others: those of sweeps, of checkpoints trained elsewhere, and by
hand (rpg evaluate)."""

import streamlit as st

from dashboard.view import View
from dashboard.widgets import Nothing, choose_many, show_table
from rpg.next_steps import command

SHARES = {
    "accuracy": "mean@k",
    "standard_error": "± (s.e.)",
    "pass_at_k": "pass@k",
    "maj_at_k": "maj@k",
    "truncated": "cut off",
    "unread": "unread",
    "second_reading": "mean@k with a second reader",
}


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
        name: st.column_config.NumberColumn(label, format="percent")
        for name, label in SHARES.items()
    }
    names = {"rules": "graded by", "draws": "samples/"}
    tokens = {"tokens": st.column_config.NumberColumn(format="%.1f")}
    show_table(table.dropna(axis=1, how="all"), 700, {**shares, **names, **tokens})
    st.text(
        f"{len(table)} evaluations. The error is that of mean@k over problems. The samples of evaluations with the same "
        "folder under samples/ are the same. Unread answers count as wrong; a second reader, a computer algebra "
        "system, judges those that are one formula, and what it finds is shown apart."
    )
