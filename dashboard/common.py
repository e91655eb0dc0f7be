"""What the pages share: the database of this moment, cached questions, selections that live in the URL.

Text from run folders is shown with `st.text`, in data frames, in charts or in escaped HTML, never as Markdown.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import altair as alt
import duckdb
import jinja2
import pandas
import streamlit as st
from altair.utils.schemapi import disable_debug_mode

from rpg.report import charts, frontier, intervals, look, shared, summary
from rpg.report.tables import Grid
from rpg.store import Layout, StoreError, queries
from rpg.store.database import open_file, usable
from rpg.store.run_folder import RunFolder
from rpg.store.samples import read_eval
from rpg.store.serve_health import read_problems

disable_debug_mode()  # Altair would validate every part of every chart: a quarter of a page's time

T = TypeVar("T")
REFRESH = 3  # seconds between looks at CURRENT

_HTML = jinja2.Environment(autoescape=True)
_TABLE = _HTML.from_string("""
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
_LEGEND = _HTML.from_string("""
<div style="display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .88rem">
{% for label, colour, stops in entries %}<span><span style="display: inline-block; width: 34px; height: 3px;
 margin-right: 7px; vertical-align: middle;
 background: repeating-linear-gradient(90deg, {% for kind, start, end in stops %}{{ ', ' if not loop.first }}{{
 colour if kind else 'transparent' }} {{ start }}px {{ end }}px{% endfor %})"></span>{{ label }}</span>{% endfor %}</div>""")


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

    def over_k(self, sweep: str, variants: Sequence[str]) -> pandas.DataFrame:
        """pass@k and maj@k of these variants over k; its labels are the variants."""
        return _over_k(self.version, sweep, tuple(variants))

    def mean_over(self, sweep: str, variants: Sequence[str], benchmark: str) -> Any:
        """Accuracy of these variants together, with its interval."""
        return _mean_over(self.version, sweep, tuple(variants), benchmark)

    def scores(self, series: Sequence[queries.Series], names: Sequence[str], x: str) -> pandas.DataFrame:
        return _scores(self.version, tuple(series), tuple(names), x)

    def shared(self, choice: shared.Choice) -> str:
        """The page of `rpg report` for what is chosen."""
        with _connection(self.version).cursor() as db:
            return shared.shared_page(self.layout, db, choice)


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


@st.cache_data(max_entries=100, show_spinner=False)
def _mean_over(version: str, sweep: str, variants: tuple, benchmark: str) -> Any:
    with _connection(version).cursor() as db:
        return frontier.mean_over(db, sweep, variants, benchmark)


@st.cache_data(max_entries=100, show_spinner=False)
def _over_k(version: str, sweep: str, variants: tuple) -> pandas.DataFrame:
    with _connection(version).cursor() as db:
        return frontier.over_k(db, sweep, {variant: variant for variant in variants})


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
    show_notices(lines, "files or lines could not be read")


def show_notices(lines: Sequence[str], what: str) -> None:
    """A line each; more than three are folded under how many there are of `what`."""
    with st.expander(f"{len(lines)} {what}") if len(lines) > 3 else st.container():
        for line in lines:
            notice(line)


def choose(label: str, options: Sequence[str], key: str, default: str | None = None) -> str | None:
    """Select one; the selection is always in the URL under `key`, and stays when the page changes."""
    if not options:
        return None
    _begin(label, key, options, [default] if default in options else options[:1], many=False)
    return linked(key, st.selectbox(label, options, key=key, persist_state="session"))


def choose_many(
    label: str, options: Sequence[str], key: str, default: Sequence[str] | None = None
) -> list[str]:
    """Select several (default: all); the selection is always in the URL under `key`."""
    first = [name for name in (options if default is None else default) if name in options]
    _begin(label, key, options, first, many=True)
    return linked(key, st.multiselect(label, options, key=key, persist_state="session"))


def choose_part(options: Sequence[str], key: str, default: str | None = None) -> str:
    """Which part of the page is shown, as buttons in a row; in the URL under `key`."""
    _begin("Part", key, options, [default or options[0]], many=False)
    return linked(
        key, st.segmented_control("Show", options, key=key, required=True, label_visibility="collapsed")
    )


def _begin(label: str, key: str, options: Sequence[str], first: Sequence[str], many: bool) -> None:
    """Give a widget its selection: what it had, else what the link asks for, else `first`.

    What is not there (another sweep has other variants) is left out; if the link asked for it, that is said. Streamlit's
    own binding leaves a widget's default out of the address, so that a copied link would open whatever is the default by
    then.
    """
    state = st.session_state
    wanted = st.query_params.get_all(key) if key not in state else state[key] if many else [state[key]]
    known = [name for name in wanted if name in options]
    if key not in state and len(known) < len(wanted):
        missing = ", ".join(repr(name) for name in wanted if name not in options)
        notice(f"{label}: nothing here is called {missing}; this is what there is instead.")
    chosen = known if known or (many and key in state and not wanted) else list(first)
    state[key] = chosen if many else (chosen or [None])[0]


def linked(key: str, value: T) -> T:
    """Write a value into the address, where a copied link keeps it."""
    texts = [str(one) for one in (value if isinstance(value, list) else [value]) if one not in (None, "")]
    if st.query_params.get_all(key) != texts:
        st.query_params[key] = texts
    return value


def address(page: str, **selection: str) -> str:
    """A link to another page, relative so that it holds behind any host name."""
    return f"./{page}?{urlencode(selection, quote_via=quote)}"


def choose_sweep(view: View) -> str | None:
    sweeps = view.ask("sweeps")["sweep"].tolist()
    return choose("Sweep", sweeps, "sweep")


def series_labels(view: View, sweeps: Sequence[str], superseded: bool = False) -> dict[queries.Series, str]:
    """Every variant of these sweeps with its label; with several sweeps the label says which. Baselines first."""
    found = view.ask("variants", tuple(sweeps), superseded)
    return summary.series_labels(found, view.ask("sweeps").set_index("sweep")["baseline"], sweeps)


def samples(folder: RunFolder, benchmark: str, step: int) -> pandas.DataFrame:
    """The graded samples of one evaluation, kept until its file changes: it may be extended or drawn anew.

    Raises:
        StoreError: it is gone or cannot be read.
    """
    path = folder.eval_path(benchmark, step)
    try:
        now = path.stat()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _samples(str(path), now.st_mtime_ns, now.st_size, folder, benchmark, step)


@st.cache_data(max_entries=8, show_spinner=False, hash_funcs={RunFolder: str})
def _samples(
    path: str, changed: int, size: int, folder: RunFolder, benchmark: str, step: int
) -> pandas.DataFrame:
    return read_eval(folder, benchmark, step).to_pandas()


def show_mathematics(text: str) -> None:
    """Text of a data set or of a model, its formulas set; nothing else in it is markup."""
    st.markdown(mathematics(text))


def mathematics(text: str) -> str:
    """Markdown that shows the text as it is, with what stands between $, $$, \\( \\) and \\[ \\] as formulas."""
    parts = []
    end = 0
    for found in _FORMULA.finditer(text):
        formula = next(group for group in found.groups() if group is not None).strip()
        parts.append(_plain(text[end : found.start()]))
        shown = " ".join(formula.split()).replace("$", r"\$")
        parts.append(f"${shown}$" if shown else _plain(found.group()))
        end = found.end()
    return "".join([*parts, _plain(text[end:])]).strip()


def _plain(text: str) -> str:
    """Every mark escaped, so that no link, image, directive or HTML comes of it; line breaks kept."""
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)
    return re.sub(r"[ \t]*\n[ \t]*", "  \n", escaped)  # a line that begins with four blanks would be code


_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\d$])|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)


def show_grid(grid: Grid, prose: bool = False, links: Mapping[str, str] | None = None) -> None:
    """A table; every text is escaped. `prose`: no numbers. `links`: where the first cell of a row leads."""
    kinds = {"better": "better", "worse": "worse", "within noise": "noise"}
    st.html(_TABLE.render(grid=grid, kinds=kinds, prose=prose, dark=dark(), links=links or {}))


def show_legend(labels: Sequence[str], shown: Sequence[str]) -> None:
    """The lines of the `shown` variants; colours follow from all `labels`, whatever is selected."""
    looks = look.looks(labels)
    shades = look.ON_DARK if dark() else {}
    entries = [
        (label, shades.get(looks[label][0], looks[label][0]), _stops(looks[label][1]))
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


def dark() -> bool:
    """Whether the reader's browser shows the page on a dark ground."""
    return bool(st.context.theme.type == "dark")


def show_panels(panels: Sequence[alt.LayerChart], labels: Sequence[str], key: str) -> None:
    """Panels that zoom and hover together; their tool bar saves them as PNG.

    Which of the `labels` in the legend are clicked is in the address.
    """
    spec = charts.linked(panels, labels)
    _panels(look.on_dark(spec) if dark() else spec, labels, key)


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
        whole = look.themed(chart)
        if dark():
            whole = type(whole).from_dict(look.on_dark(whole.to_dict(validate=False)), validate=False)
        st.altair_chart(whole, theme=None, key=key, width="stretch")
        return
    # st.altair_chart would validate every chart against the schema of Vega-Lite again: half a second a page.
    data, chart.data = chart.data, alt.Undefined
    canvas = {"embedOptions": {"renderer": "canvas"}}  # thousands of SVG elements take seconds to paint
    spec = chart.to_dict(validate=False) | {"config": look.THEME, "usermeta": canvas}
    st.vega_lite_chart(data, look.on_dark(spec) if dark() else spec, theme=None, key=key, width="stretch")
