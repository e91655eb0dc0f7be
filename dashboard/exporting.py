"""What is on a page as files: every page ends with a button that saves any of its tables and
charts."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pandas
import streamlit as st

from rpg.report import exports
from rpg.report.tables import Grid

SHOWN = "shown on this page"
"""In the session: name -> table, or specification of a chart."""
MADE = "exported"
TABLE = ("CSV", "LaTeX")
CHART = ("SVG", "PNG", "CSV")
ENDINGS = {"CSV": "csv", "LaTeX": "tex", "SVG": "svg", "PNG": "png"}

Exported: TypeAlias = Grid | pandas.DataFrame | dict[str, Any]


def begin() -> None:
    """Before a page is drawn."""
    st.session_state[SHOWN] = {}


def remember(name: str, exported: Exported) -> None:
    """Something that is on the page, under a name for people; a later one of the same name replaces
    it."""
    st.session_state.setdefault(SHOWN, {})[name] = exported


def chart_name(key: str, spec: dict[str, Any]) -> str:
    """What a chart shows, from its text for screen readers."""
    described = spec.get("description")
    if isinstance(described, str) and described:
        return f"chart: {described.partition(':')[0]}"
    return f"chart: {key}"


def offer() -> None:
    """After a page is drawn. A file is made before it is offered: a page that checks for newer
    results would lose one that is made after the click."""
    shown: dict[str, Exported] = st.session_state.get(SHOWN, {})
    if not shown:
        return
    with st.popover("Export"):
        name = str(st.selectbox("What", list(shown), key="export what"))
        exported = shown.get(name)
        if exported is None:
            return
        formats = CHART if isinstance(exported, dict) else TABLE
        kind = str(
            st.segmented_control(
                "As", formats, default=formats[0], required=True, key=f"export as {formats}"
            )
        )
        if st.button("Make the file", key="export make"):
            st.session_state[MADE] = (name, kind), made(exported, name, kind)
        selected, file = st.session_state.get(MADE, (None, None))
        if selected == (name, kind):
            ending = ENDINGS[kind]
            words = f"Save {name} as {kind}".replace("[", "(").replace("]", ")")
            st.download_button(
                words, file, f"{file_name(name)}.{ending}", on_click="ignore", type="primary"
            )


def file_name(name: str) -> str:
    """Letters, digits and dashes."""
    kept = [letter if letter.isalnum() and letter.isascii() else "-" for letter in name.lower()]
    return "-".join(filter(None, "".join(kept).split("-")))[:80] or "page"


def made(exported: Exported, name: str, kind: str) -> str | bytes:
    """The contents of the file."""
    if isinstance(exported, dict):
        of_chart: dict[str, Callable[[dict[str, Any]], str | bytes]] = {
            "SVG": exports.chart_svg,
            "PNG": exports.chart_png,
            "CSV": exports.chart_csv,
        }
        return of_chart[kind](exported)
    if kind == "LaTeX":
        return exports.table_latex(exported, name)
    return exports.table_csv(exported)
