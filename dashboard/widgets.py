"""Charts on light and dark backgrounds, and widgets whose selection lives in the address of the page, so that a copied link
shows the same.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import altair as alt
import streamlit as st
from altair.utils.schemapi import disable_debug_mode

from dashboard.text import HTML, dark, notice
from dashboard.view import View, fragment
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


T = TypeVar("T")


def choose(
    label: str, options: Sequence[str], key: str, default: str | None = None, column: Any = None
) -> str:
    """Select one option ("" if there is none); it is in the URL under `key` and is kept when the page changes."""
    if not options:
        return ""
    with column or nullcontext():
        _initialise(label, key, options, [default] if default in options else options[:1], many=False)
        return linked(key, str(st.selectbox(label, options, key=key, persist_state="session")))


def choose_many(
    label: str, options: Sequence[str], key: str, default: Sequence[str] | None = None, column: Any = None
) -> list[str]:
    """Select several options (default: all); they are in the URL under `key`."""
    first = [name for name in (options if default is None else default) if name in options]
    with column or nullcontext():
        _initialise(label, key, options, first, many=True)
        return linked(key, list(st.multiselect(label, options, key=key, persist_state="session")))


def choose_part(options: Sequence[str], key: str, default: str | None = None) -> str:
    """A row of buttons that selects the part of the page to show; in the URL under `key`."""
    _initialise("Part", key, options, [default or options[0]], many=False)
    buttons = st.segmented_control("Show", options, key=key, required=True, label_visibility="collapsed")
    return linked(key, str(buttons))


def _initialise(
    label: str, key: str, options: Sequence[str], default: Sequence[str | None], many: bool
) -> None:
    """Set a widget's selection: its previous one, else the one in the link, else `default`.

    Names that do not exist here (another sweep has other variants) are dropped, with a notice if they came from the link.
    Streamlit's own binding leaves defaults out of the address: a copied link would open whatever the default is by then.
    """
    state = st.session_state
    requested = st.query_params.get_all(key) if key not in state else state[key] if many else [state[key]]
    selected = [name for name in requested if name in options]
    if key not in state and len(selected) < len(requested):
        missing = ", ".join(repr(name) for name in requested if name not in options)
        notice(f"{label}: nothing here is called {missing}; showing something else instead.")
    if not selected and not (many and key in state and not requested):
        selected = list(default)
    state[key] = selected if many else selected[0]


def linked(key: str, value: T) -> T:
    """Write a value into the address, where a copied link keeps it."""
    texts = [str(item) for item in (value if isinstance(value, list) else [value]) if item not in (None, "")]
    if st.query_params.get_all(key) != texts:
        st.query_params[key] = texts
    return value


def address(page: str, **selection: str) -> str:
    """A link to another page; relative, so that it works under any host name."""
    return f"./{page}?{urlencode(selection, quote_via=quote)}"


def choose_sweep(view: View, column: Any = None) -> str:
    """Select a sweep; "", with a line on the page, if there is none."""
    sweeps = view.ask("sweeps")["sweep"].tolist()
    if not sweeps:
        (column or st).text("No sweeps yet.")
    return choose("Sweep", sweeps, "sweep", column=column)
