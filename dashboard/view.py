"""The newest results database, and cached answers to what the pages ask it."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas
import streamlit as st

from dashboard.text import notice, show_warnings
from rpg.report import frontier, intervals, shared_page, summary
from rpg.store import Layout, StoreError, queries
from rpg.store.database import open_file, usable
from rpg.store.run_folder import RunFolder
from rpg.store.samples import read_eval
from rpg.store.serve_health import read_problems

REFRESH = 3  # seconds between two checks for a newer database


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

    def shared(self, choice: shared_page.Choice) -> str:
        """The page of `rpg report` for what is chosen."""
        with _connection(self.version).cursor() as db:
            return shared_page.shared_page(self.layout, db, choice)


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


def with_results(page: Callable[[View], None]) -> Callable[[], None]:
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
