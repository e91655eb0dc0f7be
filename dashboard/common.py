"""What the pages share: the database of this moment, cached questions, selections that live in the URL.

Text from run folders is shown with `st.text`, in data frames, in charts or in escaped HTML, never as Markdown.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import duckdb
import jinja2
import pandas
import streamlit as st
from altair.utils.schemapi import disable_debug_mode

from rpg.report import charts, intervals, summary
from rpg.report.tables import Grid
from rpg.store import Layout, StoreError, queries
from rpg.store.database import open_file, usable
from rpg.store.health import read_problems

disable_debug_mode()  # Altair would validate every part of every chart: a quarter of a page's time

REFRESH = 3  # seconds between looks at CURRENT

_HTML = jinja2.Environment(autoescape=True)
_TABLE = _HTML.from_string("""
<style>
  .rpg { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
  .rpg th, .rpg td { padding: .28rem .8rem; text-align: right; white-space: nowrap; border: none; }
  .rpg th:first-child, .rpg td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere;
    min-width: 12rem; }
  .rpg thead th { border-top: 2px solid #333; border-bottom: 1px solid #333; font-weight: 600; }
  .rpg tbody tr:last-child td { border-bottom: 2px solid #333; }
  .rpg .bold { font-weight: 700; }
  .rpg .better { color: #007a58; font-weight: 600; } .rpg .worse { color: #b34a00; font-weight: 600; }
  .rpg .noise { color: #666; } .rpgscroll { overflow-x: auto; }
  .rpg.prose th, .rpg.prose td { text-align: left; } .rpg.prose td:last-child { white-space: normal; }
</style>
<div class="rpgscroll"><table class="rpg {{ 'prose' if prose }}">
<thead><tr>{% for name in grid.header %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in grid.rows %}<tr>{% for cell in row %}
<td class="{{ 'bold' if cell.bold }} {{ kinds.get(cell.text, '') if not loop.first }}">{{ cell.text }}</td>
{% endfor %}</tr>{% endfor %}</tbody></table></div>""")
_LEGEND = _HTML.from_string("""
<div style="display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .88rem">
{% for label, colour, dash in entries %}<span style="white-space: nowrap"><svg width="34" height="8"
 style="margin-right: 7px; vertical-align: middle"><line x1="1" y1="4" x2="33" y2="4" stroke="{{ colour }}"
 stroke-width="3" stroke-dasharray="{{ dash }}"/></svg>{{ label }}</span>{% endfor %}</div>""")


class View(NamedTuple):
    """The data folder and one version of its database: all that a page shows comes from the same version."""

    layout: Layout
    version: str

    def ask(self, question: str, *arguments: Any) -> Any:
        """The answer of `rpg.store.queries.<question>(db, *arguments)`, cached for this version."""
        return _ask(self.version, question, arguments)

    def summary(self, sweep: str, baseline: str | None, benchmarks: Sequence[str] | None) -> summary.Summary:
        names = tuple(benchmarks) if benchmarks is not None else None
        return _summary(self.version, sweep, baseline, names)

    def scores(self, series: Sequence[queries.Series], names: Sequence[str], x: str) -> pandas.DataFrame:
        return _scores(self.version, tuple(series), tuple(names), x)


@st.cache_resource(max_entries=3, show_spinner=False)
def _connection(version: str) -> duckdb.DuckDBPyConnection:
    return open_file(Path(version))


@st.cache_data(max_entries=300, show_spinner=False)
def _ask(version: str, question: str, arguments: tuple) -> Any:
    with _connection(version).cursor() as db:
        return getattr(queries, question)(db, *arguments)


@st.cache_data(max_entries=100, show_spinner=False)
def _scores(version: str, series: tuple, names: tuple, x: str) -> pandas.DataFrame:
    with _connection(version).cursor() as db:
        return intervals.score_curves(db, series, names, x)


@st.cache_data(max_entries=100, show_spinner=False)
def _summary(version: str, sweep: str, baseline: str | None, benchmarks: tuple | None) -> summary.Summary:
    with _connection(version).cursor() as db:
        return summary.summarise(db, sweep, baseline, benchmarks)


def view() -> View | None:
    """The newest version, or None (said on the page) before there is any."""
    layout = Layout.at()
    for _ in range(2):  # between reading CURRENT and opening the file a builder may have pruned it
        try:
            path = usable(layout)
            if path is None:
                break
            _connection(str(path))
            return View(layout, str(path))
        except StoreError as error:
            problem = str(error)
    else:
        notice(problem)
        return None
    notice(f"No results in {layout.home} yet. Start with: rpg sweep quickstart")
    return None


def guarded(page: Callable[[View], None]) -> Callable[[], None]:
    """A page that gets the newest view, reruns when there is a newer one, and says what is wrong in one line."""

    @functools.wraps(page)
    def run() -> None:
        for problem in problems_shown(Layout.at().home):
            notice(problem)
        found = view()
        if found is not None:
            try:
                page(found)
            except StoreError as error:
                notice(str(error))
            show_warnings(found.ask("warnings"))
        _watch(found.version if found else "")

    return run


def problems_shown(home: Path) -> list[str]:
    """What `rpg serve` says is wrong with itself."""
    return [f"rpg serve: {problem}" for problem in read_problems(home)]


@st.fragment(run_every=REFRESH)
def _watch(version: str) -> None:
    try:
        newest = usable(Layout.at())
    except StoreError:
        return
    if str(newest or "") != version:
        st.rerun()


def notice(text: str) -> None:
    """One line about something that is missing or broken, as plain text."""
    with st.container(border=True):
        st.text(text)


def show_warnings(lines: Sequence[str]) -> None:
    """What could not be read; many lines are folded."""
    place = (
        st.expander(f"{len(lines)} files or lines could not be read") if len(lines) > 3 else st.container()
    )
    with place:
        for line in lines:
            notice(line)


def choose(label: str, options: Sequence[str], key: str, default: str | None = None) -> str | None:
    """Select one; the selection is in the URL under `key` and stays when the page changes."""
    if not options:
        return None
    _forget_unknown(key, options)
    index = list(options).index(default) if default in options else 0
    return st.selectbox(label, options, index=index, key=key, bind="query-params", persist_state="session")


def choose_many(
    label: str, options: Sequence[str], key: str, default: Sequence[str] | None = None
) -> list[str]:
    """Select several (default: all); the selection is in the URL under `key`."""
    _forget_unknown(key, options)
    chosen = [name for name in (options if default is None else default) if name in options]
    return st.multiselect(
        label, options, default=chosen, key=key, bind="query-params", persist_state="session"
    )


def _forget_unknown(key: str, options: Sequence[str]) -> None:
    """Another sweep has other variants: drop a selection that is no longer there."""
    kept = st.session_state.get(key)
    if isinstance(kept, list):
        known = [name for name in kept if name in options]
        if known != kept:
            del st.session_state[key]
            if known:
                st.session_state[key] = known
    elif kept is not None and kept not in options:
        del st.session_state[key]


def choose_sweep(view: View) -> str | None:
    sweeps = view.ask("sweeps")["sweep"].tolist()
    return choose("Sweep", sweeps, "sweep")


def series_labels(view: View, sweeps: Sequence[str], superseded: bool = False) -> dict[queries.Series, str]:
    """Every variant of these sweeps with its label; with several sweeps the label says which. Baselines first."""
    found = view.ask("variants", tuple(sweeps), superseded)
    baselines = view.ask("sweeps").set_index("sweep")["baseline"]
    names: dict[queries.Series, str] = {}
    for sweep in sweeps:
        mine = found[found["sweep"] == sweep]
        labels = summary.labels(mine)
        for variant in sorted(labels, key=lambda name: (name != baselines[sweep], name)):
            prefix = f"{sweep} · " if len(sweeps) > 1 else ""
            names[queries.Series(sweep, variant)] = prefix + labels[variant]
    return names


def show_grid(grid: Grid, prose: bool = False) -> None:
    """A table; every text is escaped. `prose`: no numbers."""
    kinds = {"better": "better", "worse": "worse", "within noise": "noise"}
    st.html(_TABLE.render(grid=grid, kinds=kinds, prose=prose))


def show_legend(labels: Sequence[str], shown: Sequence[str]) -> None:
    """The lines of the `shown` variants; colours follow from all `labels`, whatever is selected."""
    looks = charts.looks(labels)
    entries = [
        (label, looks[label][0], "" if looks[label][1] == [1, 0] else " ".join(map(str, looks[label][1])))
        for label in labels
        if label in shown
    ]
    st.html(_LEGEND.render(entries=entries))


def show_chart(chart: Any, key: str) -> None:
    """A chart with our own look; its tool bar saves it as PNG."""
    if chart.data is alt.Undefined:
        st.altair_chart(charts.themed(chart), theme=None, key=key, width="stretch")
        return
    # st.altair_chart would validate every chart against the schema of Vega-Lite again: half a second a page.
    data, chart.data = chart.data, alt.Undefined
    canvas = {"embedOptions": {"renderer": "canvas"}}  # thousands of SVG elements take seconds to paint
    spec = chart.to_dict(validate=False) | {"config": charts.THEME, "usermeta": canvas}
    st.vega_lite_chart(data, spec, theme=None, key=key, width="stretch")
