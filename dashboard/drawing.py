"""Charts on a page, on light and dark backgrounds."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import streamlit as st
from altair.utils.schemapi import disable_debug_mode

from dashboard.selection import linked
from dashboard.text import HTML, dark
from rpg.report import charts, theme

disable_debug_mode()  # Altair would validate every part of every chart: a quarter of a page's time

_LEGEND = HTML.from_string("""
<div style="display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .88rem">
{% for label, colour, stops in entries %}<span><span style="display: inline-block; width: 34px; height: 3px;
 margin-right: 7px; vertical-align: middle;
 background: repeating-linear-gradient(90deg, {% for kind, start, end in stops %}{{ ', ' if not loop.first }}{{
 colour if kind else 'transparent' }} {{ start }}px {{ end }}px{% endfor %})"></span>{{ label }}</span>{% endfor %}</div>""")


def show_legend(labels: Sequence[str], shown: Sequence[str]) -> None:
    """The lines of the `shown` variants; colours follow from all `labels`, whatever is selected."""
    styles = theme.looks(labels)
    shades = theme.ON_DARK if dark() else {}
    entries = [
        (label, shades.get(styles[label][0], styles[label][0]), _stops(styles[label][1]))
        for label in labels
        if label in shown
    ]
    st.html(_LEGEND.render(entries=entries))


def _stops(dash: Sequence[int]) -> list[tuple[bool, int, int]]:
    """A dash as CSS draws it: (drawn, from, to) in pixels."""
    ends = list(itertools.accumulate(dash))
    return [
        (place % 2 == 0, end - length, end)
        for place, (length, end) in enumerate(zip(dash, ends, strict=True))
    ]


def rows_of(count: int, across: int = 3) -> Iterator[Any]:
    """So many places for panels, row by row: on a narrow screen they stand below each other in their order."""
    for start in range(0, count, across):
        yield from st.columns(across)[: count - start]


def show_panels(panels: Sequence[alt.LayerChart], labels: Sequence[str], key: str) -> None:
    """Panels that zoom and hover together; their tool bar saves them as PNG.

    Which of the `labels` in the legend are clicked is in the address.
    """
    spec = charts.linked(panels, labels)
    _panels(theme.on_dark(spec) if dark() else spec, labels, key)


@st.fragment
def _panels(spec: dict[str, Any], labels: Sequence[str], key: str) -> None:
    """The chart by itself: a click in its legend computes nothing else of the page.

    The chart that is sent knows what was clicked before it; after a click it is not sent again, so that its zoom stays.
    """
    state = st.session_state
    if not state.pop("clicked", False):
        state["standing"] = state.get(charts.PICKED, st.query_params.get_all(charts.PICKED))
    chart = st.vega_lite_chart(
        spec=charts.picked(spec, state["standing"]), theme=None, key=key, width="stretch",
        on_select=lambda: state.update(clicked=True), selection_mode=charts.PICKED,
    )  # fmt: skip
    told = chart.selection.get(charts.PICKED) or {}
    state[charts.PICKED] = linked(
        charts.PICKED, [one for one in told.get("labels", state["standing"]) if one in labels]
    )


def show_chart(chart: Any, key: str) -> None:
    """A chart with our own look; its tool bar saves it as PNG."""
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
