"""Charts on light and dark backgrounds, and widgets whose selection lives in the address of the
page, so that a copied link shows the same.

Text from run folders is shown with `st.text`, in data frames, in charts or in escaped HTML, never
as Markdown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import altair as alt
import jinja2
import pandas
import streamlit as st

from dashboard import exporting
from rpg.report import theme
from rpg.report.curves import X_TITLES
from rpg.report.sweep_report import Section
from rpg.report.tables import Grid
from rpg.system.private_parts import MissingPartError, private_part

with suppress(MissingPartError):  # pages are slower, then
    # Altair would validate every part of every chart: a quarter of a page's time.
    private_part("disable_debug_mode")()
alt.data_transformers.disable_max_rows()

MOST = 20_000
"""Characters of a text that are shown; the file has the rest."""
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_LOADER = jinja2.FileSystemLoader(Path(__file__).with_name("elements"))
_ELEMENTS = jinja2.Environment(loader=_LOADER, autoescape=True)


def show_element(name: str, **values: Any) -> None:
    """A piece of HTML from `elements/`, in which all values are escaped."""
    st.html(_ELEMENTS.get_template(f"{name}.html").render(values))


def show_legend(labels: Sequence[str], shown: Sequence[str]) -> None:
    """A legend of the `shown` variants; all `labels` determine the colours, whatever is
    selected."""
    shades = theme.ON_DARK if dark() else {}
    styles = (
        (label, *style) for label, style in theme.line_styles(labels).items() if label in shown
    )
    entries = [(label, shades.get(colour, colour), dash) for label, colour, dash in styles]
    show_element("legend", entries=entries)


class Nothing(Exception):
    """Ends a page that has nothing more to show; its text says why."""


def rows_of(count: int, across: int = 3) -> Iterator[Any]:
    """Columns for `count` panels, row by row: on a narrow screen they are stacked in the same
    order."""
    for start in range(0, count, across):
        yield from st.columns(across)[: count - start]


def show_panels(panels: Sequence[Any], key: str = "curve", across: int = 3) -> None:
    """Panels side by side."""
    for place, (panel, column) in enumerate(zip(panels, rows_of(len(panels), across), strict=True)):
        with column:
            show_chart(panel, f"{key} {place}")


def fragment(run_every: float) -> Callable[[F], F]:
    """`st.fragment`: a part of a page that reruns alone, every `run_every` seconds."""
    return cast(Callable[[F], F], st.fragment(run_every=run_every))


def show_chart(chart: Any, key: str) -> None:
    """A chart, or its specification, in the common theme; its tool bar saves it as PNG."""
    # st.altair_chart would validate every chart against the schema of Vega-Lite again: half a
    # second a page.
    canvas = {
        "embedOptions": {"renderer": "canvas"}
    }  # thousands of SVG elements take seconds to paint
    drawn = chart if isinstance(chart, dict) else chart.to_dict(validate=False)
    exporting.remember(exporting.chart_name(key, drawn), drawn)
    spec = {"usermeta": canvas} | drawn | {"config": theme.THEME}
    st.vega_lite_chart(
        spec=theme.on_dark(spec) if dark() else spec, theme=None, key=key, width="stretch"
    )


def choose(
    label: str,
    options: Sequence[str],
    key: str,
    default: str | None = None,
    column: Any = None,
    **how: Any,
) -> str:
    """Select one option ("" if there is none); it is in the URL under `key` and is kept when the
    page changes. `how`: other parameters of Streamlit's box."""
    if not options:
        return ""
    with column or nullcontext():
        first = [default] if default in options else options[:1]
        _initialise(label, key, options, first, many=False, follows=default is not None)
        return linked(
            key, str(st.selectbox(label, options, key=key, persist_state="session", **how))
        )


def choose_many(
    label: str,
    options: Sequence[str],
    key: str,
    default: Sequence[str] | None = None,
    column: Any = None,
) -> list[str]:
    """Select several options (default: all); they are in the URL under `key`."""
    first = [name for name in (options if default is None else default) if name in options]
    with column or nullcontext():
        _initialise(label, key, options, first, many=True, follows=True)
        return linked(key, list(st.multiselect(label, options, key=key, persist_state="session")))


def choose_axis(column: Any) -> str:
    """Select what stands for compute, among the axes of curves."""
    titles = list(X_TITLES.values())
    title = choose("Compute", titles, "axis", X_TITLES["tokens"], column=column)
    return list(X_TITLES)[titles.index(title)]


def choose_part(options: Sequence[str], key: str, default: str | None = None) -> str:
    """A row of buttons that selects the part of the page to show; in the URL under `key`."""
    _initialise("Part", key, options, [default or options[0]], many=False, follows=False)
    buttons = st.segmented_control(
        "Show", options, key=key, required=True, label_visibility="collapsed"
    )
    return linked(key, str(buttons))


def _initialise(
    label: str,
    key: str,
    options: Sequence[str],
    default: Sequence[str | None],
    many: bool,
    follows: bool,
) -> None:
    """Set a widget's selection: its previous one, else (or after a step back in the browser) the
    one in the link, else `default`.

    A selection that `follows`, and that nobody has changed, is the default by now: another sweep's,
    or what a running one has added, too. Names that do not exist here are dropped, with a notice if
    they came from the link. Streamlit's own binding leaves defaults out of the address: a copied
    link would open whatever the default is by then.
    """
    state = st.session_state
    unchanged = f"default of {key}"
    run = private_part("get_script_run_ctx")()
    went_back = run is not None and run.is_history_navigation and key in st.query_params
    new = key not in state or went_back
    if new:
        requested = st.query_params.get_all(key)
    elif many:
        requested = state[key]
    else:
        requested = [state[key]]
    selected = [name for name in requested if name in options]
    if new and len(selected) < len(requested):
        missing = ", ".join(repr(name) for name in requested if name not in options)
        notice(f"{label}: nothing here is called {missing}; showing something else instead.")
    if (follows and requested == state.get(unchanged)) or not (
        selected or (many and not (new or requested))
    ):
        selected = list(default)
        new = True
    state[key] = selected if many else selected[0]
    if new:
        state[unchanged] = list(default)


def linked(key: str, value: T) -> T:
    """Write a value into the address, where a copied link keeps it."""
    texts = [
        str(item)
        for item in (value if isinstance(value, list) else [value])
        if item not in (None, "")
    ]
    if st.query_params.get_all(key) != texts:
        st.query_params[key] = texts
    return value


def address(page: str, **selection: str) -> str:
    """A link to another page; relative, so that it works under any host name."""
    return f"./{page}?{urlencode(selection, quote_via=quote)}"


SVG = {"embedOptions": {"renderer": "svg", "loader": {"target": "_self"}}}
"""Marks that are links need to be elements: a keyboard reaches them, and a screen reader names
them."""


def notice(text: str) -> None:
    """One line about something that is missing or broken, as plain text."""
    with st.container(border=True):
        st.text(text)


def show_notices(lines: Sequence[str], what: str) -> None:
    """A notice per line; more than three are folded into one entry, "<number> <what>"."""
    with st.expander(f"{len(lines)} {what}") if len(lines) > 3 else st.container():
        for line in lines:
            notice(line)


RUN_LINK = st.column_config.LinkColumn("run", display_text="run=(.*)$", width="medium")


def share_column(label: str) -> Any:
    """A column of shares, as bars."""
    return st.column_config.ProgressColumn(label, format="percent", min_value=0, max_value=1)


def accuracy_column(label: str) -> Any:
    """A column of accuracies, as bars."""
    return st.column_config.ProgressColumn(label, format="%.3f", min_value=0, max_value=1)


def show_table(
    frame: pandas.DataFrame, most: int, columns: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """A data frame without its index, as high as its rows are, but at most `most` pixels."""
    exporting.remember(f"table: {', '.join(map(str, frame.columns[:4]))}", frame)
    height = "content" if 38 + 35 * len(frame) <= most else most
    return st.dataframe(frame, hide_index=True, height=height, column_config=columns, **options)


def choose_row(
    frame: pandas.DataFrame,
    names: Sequence[str],
    key: str,
    columns: Mapping[str, Any] | None = None,
) -> int:
    """A table, and the number of its selected row: the one that was clicked, else that of the URL,
    else the first. Its name is in the URL under `key`."""
    rows = f"{key}s {hash(tuple(names))}"  # others are another table, in which a place says nothing
    event = show_table(
        frame, 330, columns, on_select="rerun", selection_mode="single-row", key=rows
    )
    clicked = [row for row in (event["selection"]["rows"] if event else []) if row < len(names)]
    requested = st.query_params.get(key)
    place = 0
    if clicked:
        place = clicked[0]
    elif requested in names:
        place = names.index(requested)
    if names:
        linked(key, names[place])
    return place


def show_text(text: str, markdown_of: Callable[[str], str] | None = None) -> bool:
    """A text of a data set or a model, verbatim or as the Markdown that `markdown_of` makes of it;
    whether it is cut off."""
    if markdown_of:
        with st.container(border=True):
            st.markdown(markdown_of(text[:MOST]))
    else:
        st.code(text[:MOST], language=None, wrap_lines=True)
    cut = len(text) > MOST
    if cut:
        st.text(f"{len(text) - MOST:,} more characters")
    return cut


def show_grid(grid: Grid, links: Mapping[str, str] | None = None) -> None:
    """A table with all text escaped. `links`: targets of first cells."""
    exporting.remember(f"table: {grid.title}", grid)
    kinds = {"better": "better", "worse": "worse", "within noise": "noise"}
    show_element("grid", grid=grid, kinds=kinds, dark=dark(), links=links or {})


def show_section(section: Section) -> None:
    """A part of a report; all text is shown as text."""
    st.subheader(section.title)
    for line in section.lines:
        st.text(line)
    for name, _, chart in section.charts:
        if isinstance(chart, list):
            show_panels([panel.properties(usermeta=SVG) for panel in chart], f"study {name}")
        else:
            show_chart(chart, f"study {name}")
    for grid in section.grids:
        if len(section.grids) > 1:
            st.text(grid.title)
        show_grid(grid)
    show_notices(section.notes, "notes")
    if section.caption:
        st.text(" ".join(section.caption))


def dark() -> bool:
    """Whether the reader's browser shows the page on a dark background."""
    return bool(st.context.theme.type == "dark")
