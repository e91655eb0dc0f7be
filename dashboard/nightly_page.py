"""Nightly runs: a calendar of nights, and of the newest one what moved most, from what to what,
since which commit, how to accept it, and all numbers with their bands."""

import os
from collections.abc import Sequence
from pathlib import Path

import pandas
import streamlit as st

from dashboard.view import View
from dashboard.widgets import Nothing, choose, notice, show_chart, show_element, show_table
from rpg.errors import UserError
from rpg.next_steps import command
from rpg.report.night_charts import (
    ACCEPTED,
    COLOURS,
    GREEN,
    RED,
    Change,
    Night,
    by_movement,
    calendar,
    called,
    chart,
    colour,
    headline,
    row,
    sentences,
    table,
)
from rpg.report.nightly_bands import Number, accept, judge, read_nights
from rpg.report.run_digests import reference

SHIPPED = "shipped sweeps (configs/nightly)"


def page(view: View) -> None:
    home = view.layout.home / "nightly"
    folders = {
        SHIPPED: home,
        **{path.name: path for path in sorted(home.glob("*")) if path.is_dir()},
    }
    sets = {name: folder for name, folder in folders.items() if read_nights(folder, "")}
    if not sets:
        raise Nothing(f"No nights yet. Run one with: {command('nightly', layout=view.layout)}")
    chosen = choose("Set of sweeps", list(sets), "set")
    nights = read_nights(sets[chosen], "")
    newest, before = nights[-1], nights[:-1]
    numbers = judge(newest, before)[0] if "digests" in newest else []
    moved = by_movement(numbers, reference(before))
    _say(newest, numbers, moved)
    if colour(newest) == RED:
        _offer_acceptance(view, "" if chosen == SHIPPED else chosen, sets[chosen], newest)
    st.subheader("Nights")
    show_chart(calendar(nights), key="calendar")
    with st.expander(f"All {len(nights)} nights"):
        show_table(table(nights), 380)
    st.subheader("Numbers")
    names = [change.number.name for change in moved]
    name = choose("Number", names, "number", names[0] if names else None, format_func=called)
    if name:
        show_chart(chart(name, nights, numbers), key="nightly")
    show_table(pandas.DataFrame([row(change) for change in moved]), 460)


def _say(night: Night, numbers: Sequence[Number], moved: Sequence[Change]) -> None:
    kind = colour(night)
    show_element(
        "night",
        colour=COLOURS[kind],
        mark={GREEN: "✓", ACCEPTED: "✓", RED: "✗"}[kind],
        headline=headline(night, numbers),
        lines=sentences(night, moved),
    )


def _offer_acceptance(view: View, named: str, folder: Path, night: Night) -> None:
    """The command, and where the page asks for a password a button."""
    if night.get("failed"):
        return
    folders = [named] if named else []
    st.text("If this change is intended:")
    accepting = command("nightly", "accept", *folders, "--why", "...", layout=view.layout)
    # Without wrapping it scrolls on a phone, and Streamlit's block cannot be reached by keyboard
    # (github.com/react-syntax-highlighter/react-syntax-highlighter/issues/528).
    st.code(accepting, language=None, wrap_lines=True)
    if "RPG_LOGOUT" not in os.environ:  # whoever reaches loopback may read, and no more
        return
    with st.form("accept", border=False):
        why = st.text_input("Why the numbers were meant to change", key="why")
        if st.form_submit_button("Accept this night"):
            try:
                accept(folder, why)
            except UserError as error:
                notice(str(error))
            else:
                st.rerun()
