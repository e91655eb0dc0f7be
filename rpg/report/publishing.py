"""`rpg publish`: a page to give away, as files that need no server and ask for nothing.

`index.html` is written last and names the files beside it by their content. Whoever opens the
folder while it is written, or after that was interrupted, sees the old page or the new one.
"""

import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas

from rpg.errors import UserError, plural
from rpg.report.csv_text import csv_text
from rpg.report.format import accuracy
from rpg.report.night_charts import Night
from rpg.report.night_charts import table as night_table
from rpg.report.night_page import night_sections
from rpg.report.published_samples import Samples, collect, samples_page
from rpg.report.summary import Summary
from rpg.report.sweep_report import Section, document, sweep_curves, sweep_section
from rpg.report.tables import Grid, grid_of
from rpg.store import Layout, atomic_write_text, queries
from rpg.store.queries import Database

INDEX = "index.html"
GENERATOR = "rpg publish"
HOME = "$RPG_HOME"
"""What a page calls the data folder: its place on this machine is nobody's business."""
_BESIDE = re.compile(r"(samples|table|curves|trials|nights)-[0-9a-f]{12}\.(html|csv)")
_HEAD = 4096
"""Bytes of a page in which its generator is named."""


@dataclass(frozen=True)
class Publication:
    """What is published. `tables`: name -> CSV."""

    title: str
    sections: Sequence[Section]
    tables: dict[str, str]
    samples: Samples = field(default_factory=Samples)


def of_sweep(layout: Layout, db: Database, sweep: str, budget: int) -> Publication:
    """The report of a sweep with its runs, and samples up to `budget` bytes. Raises StoreError: the
    database does not hold the sweep, or a file cannot be read."""
    summary, section = sweep_section(layout, db, sweep)
    runs = Section("Runs", grids=[_runs(db, summary)])
    tables = {
        "table": csv_text(summary.table),
        "curves": csv_text(sweep_curves(db, summary)),
    }
    samples = collect(layout, db, sweep, summary.labels, budget)
    return Publication(sweep, [section, runs], tables, samples)


def of_nights(name: str, nights: Sequence[Night]) -> Publication:
    """A set of nights, of which there is at least one."""
    return Publication(name, night_sections(nights), {"nights": csv_text(night_table(nights))})


def _runs(db: Database, summary: Summary) -> Grid:
    """Every current run with its accuracy at the last step that was evaluated."""
    scores = queries.scores(db, summary.sweep)
    scores = scores[scores["benchmark"] == summary.headline].sort_values("step")
    last = scores.groupby("run")["accuracy"].last()
    rows = []
    for run in queries.runs(db, summary.sweep).itertuples():
        name = summary.labels.get(run.variant, run.variant or "")
        score = accuracy(last.get(run.run))
        step = "" if pandas.isna(run.step) else f"{run.step:.0f}"
        seed = "" if pandas.isna(run.seed) else f"{run.seed:.0f}"
        rows.append([run.run, name, seed, run.state, step, score])
    header = ["Run", "Variant", "Seed", "State", "Step", "Accuracy"]
    return grid_of(plural(len(rows), "run"), "runs", header, rows)


def write(publication: Publication, folder: Path, layout: Layout) -> list[Path]:
    """Write the page to a folder, which may hold other files; the written files, the page first.

    Files of the page before that nothing leads to any more are removed. Raises UserError: the
    folder has an index.html that is not of this command; StoreError: a file cannot be written.
    """
    _require_own(folder / INDEX)
    beside: dict[str, str] = {}
    links: dict[str, str] = {}
    samples = publication.samples
    if samples.rows:
        page = samples_page(publication.title, samples, INDEX)
        name = _named("samples", ".html", page)
        beside[name] = page
        links[f"Samples: {samples.count}"] = name
    for title, table in publication.tables.items():
        name = _named(title, ".csv", table)
        beside[name] = table
        links[f"{title}.csv"] = name
    sections = [_public(section, str(layout.home)) for section in publication.sections]
    index = document(publication.title, sections, links, GENERATOR)
    for name, text in beside.items():
        atomic_write_text(folder / name, text)
    atomic_write_text(folder / INDEX, index)
    for path in folder.iterdir():
        if _BESIDE.fullmatch(path.name) and path.name not in beside:
            path.unlink(missing_ok=True)
    return [folder / name for name in (INDEX, *beside)]


def _require_own(index: Path) -> None:
    if not index.exists():
        return
    with index.open(encoding="utf-8", errors="replace") as file:
        own = f'<meta name="generator" content="{html.escape(GENERATOR)}">' in file.read(_HEAD)
    if not own:
        raise UserError(
            f"{index}: is not a page of rpg publish and would be replaced; "
            "name another folder with --out"
        )


def _named(kind: str, ending: str, text: str) -> str:
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{ending}"


def _public(value: Any, home: str) -> Any:
    """The same with the data folder's place replaced in every text."""
    if isinstance(value, str):
        return value.replace(home, HOME)
    if isinstance(value, dict):
        return {_public(key, home): _public(each, home) for key, each in value.items()}
    if isinstance(value, list):
        return [_public(each, home) for each in value]
    if isinstance(value, tuple):
        parts = [_public(each, home) for each in value]
        make = getattr(value, "_make", tuple)
        return make(parts)
    return value
