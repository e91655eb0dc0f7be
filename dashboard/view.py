"""The newest results database, and cached answers to what the pages ask it."""

import functools
import gc
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import duckdb
import streamlit as st

from dashboard import exporting
from dashboard.widgets import Nothing, choose, fragment, notice, show_element, show_notices
from rpg.next_steps import command
from rpg.report import labels, summary
from rpg.report.shared_page import shared_page
from rpg.report.spending import remedy
from rpg.store import Layout, StoreError, queries
from rpg.store.database import build, open_file, usable
from rpg.store.live_status import read_problems
from rpg.store.notes import HIDDEN, titled

ALL = "with hidden"
REFRESH = 3  # seconds between two checks for a newer database
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def cached(max_entries: int, **options: Any) -> Callable[[F], F]:
    """`st.cache_data` without a spinner."""
    return cast(
        Callable[[F], F], st.cache_data(max_entries=max_entries, show_spinner=False, **options)
    )


class View(NamedTuple):
    """The data folder and one version of its database: all that a page shows comes from the same
    version."""

    layout: Layout
    version: str

    def ask(self, query: str, *arguments: Any) -> Any:
        """The result of `rpg.store.queries.<query>(db, *arguments)`, cached for this version."""
        return self.compute(getattr(queries, query), *arguments)

    def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of `function(db, *arguments)`, cached for this version."""
        return _compute(self.version, function, arguments)

    def draw(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of `function(self, *arguments)`, cached for this version."""
        return cast(T, _draw(self, function, arguments))

    def called(self, name: str) -> str:
        """`SWEEP`, or the RUN of `SWEEP/RUN`, after its label if it has one."""
        return titled(name.rpartition("/")[2], self.ask("marks").get(name, ("", []))[0])

    def hidden(self, name: str, key: str = "") -> bool:
        """Whether lists leave out this sweep or `SWEEP/RUN`: not what the address names under
        `key`, nor all on request."""
        tags = self.ask("marks").get(name, ("", []))[1]
        asked = st.session_state.get(ALL) or name.rpartition("/")[2] in st.query_params.get_all(key)
        return HIDDEN in tags and not asked

    def summary(
        self, sweep: str, baseline: str | None = None, benchmarks: Sequence[str] | None = None
    ) -> summary.Summary:
        terms = summary.terms_of(self.layout, sweep)
        made: summary.Summary = self.compute(summary.summarise, sweep, baseline, benchmarks, terms)
        summary.record_look(self.layout, made, terms)
        return made._replace(notes=[*made.notes, *remedy(self.layout, made)])

    def shared_page(self, *chosen: Any) -> str:
        """:func:`rpg.report.shared_page.shared_page` of what is chosen."""
        with _connection(self.version).cursor() as db:
            return shared_page(self.layout, db, *chosen)


_connection: Callable[[str], duckdb.DuckDBPyConnection] = st.cache_resource(
    lambda version: open_file(Path(version)), max_entries=3, show_spinner=False
)


BY_NAME = {types.FunctionType: lambda function: (function.__module__, function.__name__)}


@cached(800, hash_funcs=BY_NAME)
def _compute(version: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    with _connection(version).cursor() as db:
        return function(db, *arguments)


@cached(60, hash_funcs=BY_NAME | {View: lambda view: view.version})
def _draw(view: View, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(view, *arguments)


def newest_view() -> View | None:
    """The newest version; None, with a notice on the page, if there is none yet."""
    layout = Layout.at()
    for _ in range(2):  # between reading CURRENT and opening the file a builder may have pruned it
        try:
            path = usable(layout)
            if path is None:
                start = command("sweep", "quickstart", layout=layout)
                notice(f"No results in {layout.home} yet. Start with: {start}")
                return None
            _connection(str(path))
            return View(layout, str(path))
        except StoreError as error:
            problem = str(error)
    notice(problem)
    return None


SUBJECTS = ("run", "sweep", "study", "set")
"""What an address may name that a page is about, the most particular first."""


def with_results(page: Callable[[View], None], title: str = "") -> Callable[[], None]:
    """A page that gets the newest view, reruns when there is a newer one, and reports errors in one
    line. Its heading, and what the browser's tab is called, say what it is about."""

    @functools.wraps(page)
    def run() -> None:
        heading = st.empty()
        exporting.begin()
        for problem in read_problems(Layout.at().home):
            notice(f"rpg serve: {problem}")
        view = newest_view()
        if view is not None:
            try:
                for part in (page, _show_left_out):
                    _show(part, view)
            except duckdb.Error as error:
                a_mistake_of_ours = duckdb.ProgrammingError | duckdb.DataError
                if isinstance(error, a_mistake_of_ours):
                    raise
                # The database is damaged: a new one is built, and the page is shown from that.
                build(view.layout, damaged=Path(view.version))
        exporting.offer()
        _entitle(title, heading)
        rerun_when_changed(lambda: str(usable(Layout.at()) or ""), view.version if view else "")

    return run


def _entitle(title: str, heading: Any) -> None:
    """After the page, which by then has written its selection into the address."""
    named = [st.query_params[key] for key in SUBJECTS if key in st.query_params]
    parts = [part for part in (*named[:1], title) if part]
    with heading:
        show_element("heading", text=": ".join(reversed(parts)))
    st.set_page_config(page_title=" · ".join([*parts, "rpg-lab"]))


def _show(part: Callable[[View], None], view: View) -> None:
    """A part of a page, or in one line why it is missing."""
    try:
        part(view)
    except Nothing as why:
        st.text(str(why))
    except StoreError as error:
        notice(str(error))


def _show_left_out(view: View) -> None:
    show_notices(view.ask("warnings"), "files or lines could not be read")
    hidden = [name for name, (_, tags) in view.ask("marks").items() if HIDDEN in tags]
    runs = sum("/" in name for name in hidden)
    if hidden:
        line = f"Show what is hidden from lists (sweeps: {len(hidden) - runs}, runs: {runs})"
        st.toggle(line, key=ALL, persist_state="session")


@fragment(run_every=REFRESH)
def rerun_when_changed(state: Callable[[], str], shown: str) -> None:
    with suppress(StoreError):
        if state() != shown:
            st.rerun()


@functools.cache
def freeze_imports() -> None:
    """Once per process: exempts everything imported from garbage collection, which Streamlit runs
    after every rerun."""
    gc.freeze()


def choose_sweep(view: View, column: Any = None) -> str:
    """Select a sweep. Raises Nothing: there is none."""
    sweeps = [name for name in view.ask("sweeps")["sweep"] if not view.hidden(name, "sweep")]
    if not sweeps:
        start = command("sweep", "quickstart", layout=view.layout)
        by_hand = len(view.ask("evaluations"))
        others = ""
        if by_hand:
            others = f"\nEvaluations by hand ({by_hand}) are under Samples, Evaluations."
        raise Nothing(f"No sweeps in {view.layout.home} yet. Start with: {start}{others}")
    before = st.session_state.get("sweep", sweeps[0])
    if before not in sweeps:
        notice(f"Sweep: {before} is no longer here; showing something else instead.")
    return choose("Sweep", sweeps, "sweep", column=column, format_func=view.called)


def series_labels(view: View, sweeps: Sequence[str]) -> dict[queries.Series, str]:
    """Every variant of these sweeps with its label, baselines first; with several sweeps the label
    names the sweep."""
    variants = view.ask("variants", tuple(sweeps))
    return labels.series_labels(variants, view.ask("sweeps").set_index("sweep")["baseline"], sweeps)
