"""Charts on a page, on light and dark backgrounds."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import streamlit as st
from altair.utils.schemapi import disable_debug_mode

from dashboard.selection import linked
from dashboard.text import HTML, dark
from dashboard.view import fragment
from rpg.report import theme
from rpg.report.linked_panels import PICKED, linked_panels, picked

disable_debug_mode()  # Altair would validate every part of every chart: a quarter of a page's time

_LEGEND = HTML.from_string("""
<div style="display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .88rem">
{% for label, colour, stops in entries %}<span><span style="display: inline-block; width: 34px; height: 3px;
 margin-right: 7px; vertical-align: middle;
 background: repeating-linear-gradient(90deg, {% for kind, start, end in stops %}{{ ', ' if not loop.first }}{{
 colour if kind else 'transparent' }} {{ start }}px {{ end }}px{% endfor %})"></span>{{ label }}</span>{% endfor %}</div>""")


def show_legend(labels: Sequence[str], shown: Sequence[str]) -> None:
    """A legend of the `shown` variants; all `labels` determine the colours, whatever is selected."""
    shades = theme.ON_DARK if dark() else {}
    entries = [
        (label, shades.get(colour, colour), _stops(dash))
        for label, (colour, dash) in theme.line_styles(labels).items()
        if label in shown
    ]
    st.html(_LEGEND.render(entries=entries))


def _stops(dash: Sequence[int]) -> list[tuple[bool, int, int]]:
    """A dash pattern as CSS draws it: (drawn, from, to) in pixels."""
    ends = itertools.accumulate(dash)
    return [(i % 2 == 0, end - length, end) for i, (length, end) in enumerate(zip(dash, ends, strict=True))]


def rows_of(count: int, across: int = 3) -> Iterator[Any]:
    """Columns for `count` panels, row by row: on a narrow screen they are stacked in the same order."""
    for start in range(0, count, across):
        yield from st.columns(across)[: count - start]


def show_panels(panels: Sequence[alt.LayerChart], labels: Sequence[str], key: str) -> None:
    """Panels that zoom and hover together, with a tool bar that saves them as PNG; the URL keeps clicks in the legend."""
    spec = linked_panels(panels, labels)
    _panels(theme.on_dark(spec) if dark() else spec, labels, key)


@fragment()
def _panels(spec: dict[str, Any], labels: Sequence[str], key: str) -> None:
    """The chart as a fragment: a click in its legend recomputes nothing else on the page.

    The chart is sent with the labels that are clicked already; after a click it is not sent again, which keeps its zoom.
    """
    state = st.session_state
    if not state.pop("clicked", False):
        state["initially picked"] = state.get(PICKED, st.query_params.get_all(PICKED))
    chart = st.vega_lite_chart(
        spec=picked(spec, state["initially picked"]), theme=None, key=key, width="stretch",
        on_select=lambda: state.update(clicked=True), selection_mode=PICKED,
    )  # fmt: skip
    reported = (chart.selection.get(PICKED) or {}).get("labels", state["initially picked"])
    state[PICKED] = linked(PICKED, [label for label in reported if label in labels])


def show_chart(chart: Any, key: str) -> None:
    """A chart in the common theme; its tool bar saves it as PNG."""
    if chart.data is alt.Undefined:
        whole = theme.themed(chart)
        if dark():
            whole = type(whole).from_dict(theme.on_dark(whole.to_dict(validate=False)), validate=False)
        st.altair_chart(whole, theme=None, key=key, width="stretch")
        return
    # st.altair_chart would validate every chart against the schema of Vega-Lite again: half a second a page.
    data, chart.data = chart.data, alt.Undefined
    canvas = {"embedOptions": {"renderer": "canvas"}}  # thousands of SVG elements take seconds to paint
    spec = chart.to_dict(validate=False) | {"config": theme.THEME, "usermeta": canvas}
    st.vega_lite_chart(data, theme.on_dark(spec) if dark() else spec, theme=None, key=key, width="stretch")
