"""Charts on light and dark backgrounds, and widgets whose selection lives in the address of the page, so that a copied link
shows the same.

Text from run folders is shown with `st.text`, in data frames, in charts or in escaped HTML, never as Markdown.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import altair as alt
import jinja2
import streamlit as st
from altair.utils.schemapi import disable_debug_mode

from rpg.report import theme
from rpg.report.linked_panels import PICKED, linked_panels, picked
from rpg.report.tables import Grid

disable_debug_mode()  # Altair would validate every part of every chart: a quarter of a page's time

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
HTML = jinja2.Environment(autoescape=True)
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


def fragment(run_every: float | None = None) -> Callable[[F], F]:
    """`st.fragment`: a part of a page that reruns alone, every `run_every` seconds if given."""
    return cast(Callable[[F], F], st.fragment(run_every=run_every))


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
    spec = {"usermeta": canvas} | chart.to_dict(validate=False) | {"config": theme.THEME}
    st.vega_lite_chart(data, theme.on_dark(spec) if dark() else spec, theme=None, key=key, width="stretch")


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


_TABLE = HTML.from_string("""
<style>
  .rpg { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
  .rpg th, .rpg td { padding: .28rem .8rem; text-align: right; white-space: nowrap; border: none; }
  .rpg th:first-child, .rpg td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere;
    min-width: 12rem; }
  .rpg thead th { border-top: 2px solid currentColor; border-bottom: 1px solid currentColor; font-weight: 600; }
  .rpg tbody tr:last-child td { border-bottom: 2px solid currentColor; }
  .rpg a { color: inherit; text-decoration: underline dotted; text-underline-offset: 3px; } .rpg .bold { font-weight: 700; }
  .rpg .better { color: {{ '#3fc79a' if dark else '#007a58' }}; font-weight: 600; }
  .rpg .worse { color: {{ '#ff9a5c' if dark else '#b34a00' }}; font-weight: 600; }
  .rpg .noise { opacity: .7; } .rpgscroll { overflow-x: auto; }
  .rpg.prose th, .rpg.prose td { text-align: left; } .rpg.prose td:last-child { white-space: normal; min-width: 16rem; }
</style>
<div class="rpgscroll"><table class="rpg {{ 'prose' if prose }}">
<thead><tr>{% for name in grid.header %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in grid.rows %}<tr>{% for cell in row %}
<td class="{{ 'bold' if cell.bold }} {{ kinds.get(cell.text, '') if not loop.first }}">
{%- if loop.first and cell.text in links -%}
<a href="{{ links[cell.text] }}" target="_self">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}</td>
{% endfor %}</tr>{% endfor %}</tbody></table></div>""")


SVG = {"embedOptions": {"renderer": "svg", "loader": {"target": "_self"}}}
"""Marks that are links need to be elements: a keyboard reaches them, and a screen reader names them."""
_ANSWER = HTML.from_string("""<div style="max-width: 62rem">
{% if question %}<div style="opacity: .75; overflow-wrap: anywhere">{{ question }}</div>{% endif %}
<div style="font-size: 1.45rem; line-height: 1.35; font-weight: 600; margin: .3rem 0; overflow-wrap: anywhere">
{{- answer }}</div>
</div>""")


def show_answer(question: str, answer: str) -> None:
    st.html(_ANSWER.render(question=question, answer=answer))


def notice(text: str) -> None:
    """One line about something that is missing or broken, as plain text."""
    with st.container(border=True):
        st.text(text)


def show_notices(lines: Sequence[str], what: str) -> None:
    """A notice per line; more than three are folded into one entry, "<number> <what>"."""
    with st.expander(f"{len(lines)} {what}") if len(lines) > 3 else st.container():
        for line in lines:
            notice(line)


def show_mathematics(text: str) -> None:
    """Text of a data set or a model with its formulas typeset; nothing else in it is markup."""
    st.markdown(mathematics(text))


def mathematics(text: str) -> str:
    """Markdown that shows the text verbatim, with what $, $$, \\( \\) and \\[ \\] enclose as formulas."""
    parts = []
    end = 0
    for match in _FORMULA.finditer(text):
        formula = next(group for group in match.groups() if group is not None)
        formula = " ".join(formula.split()).replace("$", r"\$")
        parts += [_escaped(text[end : match.start()]), f"${formula}$" if formula else _escaped(match.group())]
        end = match.end()
    return "".join([*parts, _escaped(text[end:])]).strip()


def _escaped(text: str) -> str:
    """Escapes all punctuation, so that nothing becomes a link, image, directive or HTML; keeps line breaks."""
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)
    return re.sub(r"[ \t]*\n[ \t]*", "  \n", escaped)  # a line indented by four blanks would be code


_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\d$])|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)


def show_grid(grid: Grid, prose: bool = False, links: Mapping[str, str] | None = None) -> None:
    """A table with all text escaped. `prose`: a table without numbers. `links`: targets of first cells."""
    kinds = {"better": "better", "worse": "worse", "within noise": "noise"}
    st.html(_TABLE.render(grid=grid, kinds=kinds, prose=prose, dark=dark(), links=links or {}))


def dark() -> bool:
    """Whether the reader's browser shows the page on a dark background."""
    return bool(st.context.theme.type == "dark")
