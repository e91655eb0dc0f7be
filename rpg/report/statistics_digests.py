"""Digests of what a night reports: functions of rpg.stats, and of each sweep the tables, tests,
curves and database rows.

A fault in a test, a view or a table changes no bit of any run. Numbers are digested to nine digits,
as a database adds up in any order.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas

from rpg import stats
from rpg.report import tables
from rpg.report.spending import not_measured
from rpg.report.summary import summarise
from rpg.report.sweep_report import sweep_curves
from rpg.stats import times
from rpg.stats.sampled import answers_of
from rpg.store import Layout, StoreError, queries
from rpg.store.database import build, connect
from rpg.store.queries import Database
from rpg.store.run_folder import by_clock
from rpg.store.schema import TABLES, VIEWS

Statistics = dict[str, dict[str, str]]
"""Name of a statistic -> part (a column, a metric, a function) -> digest."""

_KEYS = "run variant label seed benchmark name metric step problem_id sample direction".split()
"""By what rows are put in order."""
_OF_A_NIGHT = {
    "sweep",
    "run_id",
    "code",
    "git_revision",
    "versions",
    "machine",
    "axes",
    "spec",
    "identity",
    "source",
    "log",
    "created",
    "finished",
    "attempts",
    "begun",
    "fingerprint",
    "model",
    "draws",
    "imported",
}
"""Columns that no two nights have in common: names and paths with the date, times, and what runs
were computed with."""
_DECIMALS = dict.fromkeys(("per_response", "per_response_se", "per_token", "per_token_se"), 6)
"""Of KLs, which of equal models are rounding: it depends on which responses were drawn together."""


def statistics(layout: Layout, sweeps: Mapping[str, str]) -> Statistics:
    """Of finished sweeps (label -> name), after bringing the database up to date; nothing of one
    that it cannot report. Raises StoreError: the database cannot be written.
    """
    build(layout)
    digests = {"functions of rpg.stats": _functions()}
    with connect(layout) as db:
        for label, sweep in sweeps.items():
            with suppress(StoreError):
                digests |= {
                    f"{label} / {name}": parts for name, parts in _of_sweep(db, sweep).items()
                }
    return digests


def digest(value: Any) -> str:
    """8 hexadecimal digits of a number, a text, or any nesting of them; numbers to nine digits."""
    return hashlib.sha256("\n".join(_texts(value)).encode()).hexdigest()[:8]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.items())
    if isinstance(value, list | tuple | np.ndarray | pandas.Series):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, float | np.floating):
        yield f"{0.0 if abs(float(value)) < 1e-12 else value:.9g}"
    else:
        yield str(value)


def _of_sweep(db: Database, sweep: str) -> Statistics:
    summary = summarise(db, sweep)
    # Superseded ones, too: their folders have other names each night, by which rows would be put
    # in order.
    every_run = queries.runs(db, sweep, superseded=True)
    runs = {row.run: f"{row.variant} / seed {row.seed}" for row in every_run.itertuples()}
    # Which variants were measured at equal seconds is decided by the clock.
    by_the_clock = not_measured("seconds")
    lasting = [note for note in summary.notes if not note.startswith(by_the_clock)]
    notes = " ".join([summary.spending, *lasting, *tables.caption(summary)])
    for run, name in runs.items():
        notes = notes.replace(run, name)
    digests = {
        "table": _parts(summary.table, runs),
        "printed tables": {
            f"{grid.key}: {name}": digest([row[place] for row in grid.rows])
            for grid in tables.grids(summary)
            for place, name in enumerate(grid.header)
            if name != "Seconds"
        },
        "notes": {"text": digest(notes)},
        "curves": _parts(sweep_curves(db, summary), runs),
        "references": {
            variant: digest(name) for (_, variant), name in queries.references(db, [sweep]).items()
        },
    }
    for equal in summary.equal:
        if equal.axis != "seconds":
            digests[f"equal {equal.axis}"] = _parts(equal.table, runs)
    for name in (*TABLES, *VIEWS):
        columns = [column for column, *_ in db.execute(f"DESCRIBE {name}").fetchall()]
        if "sweep" in columns and name not in _OF_THIS_NIGHT:
            rows = queries.frame(db, f"SELECT * FROM {name} WHERE sweep = ?", [sweep])
            digests[f"{'view' if name in VIEWS else 'table'} {name}"] = _parts(rows, runs)
    return digests


_OF_THIS_NIGHT = ("attempts", "file_records")
"""Tables of times, and of sizes of files that hold times."""


def _parts(frame: pandas.DataFrame, runs: Mapping[str, str]) -> dict[str, str]:
    """Of each column; where rows are those of one metric each, of each metric. `runs`: folder ->
    variant and seed. Columns without any value are those of other sweeps."""
    frame = frame.dropna(axis=1, how="all").round(_DECIMALS)
    if "run" in frame:
        frame = frame.assign(run=frame["run"].map(runs))
    kept = [name for name in map(str, frame) if name not in _OF_A_NIGHT and not by_clock(name)]
    frame = frame[kept].sort_values([name for name in _KEYS if name in kept])
    names_of_metrics = [name for name in ("metric", "name") if name in kept]
    if not names_of_metrics:
        return {name: digest(frame[name]) for name in kept}
    parts = {}
    for metric, part in frame.groupby(names_of_metrics[0]):
        if not by_clock(str(metric)):
            parts[str(metric)] = digest([part[column] for column in part])
    return parts


def _functions() -> dict[str, str]:
    """On made-up accuracies, because the sweeps of a set need not have enough seeds for every
    test."""
    scores = np.round(2 + 2 * np.sin(np.arange(180.0) ** 1.5)).reshape(3, 5, 12) / 4
    scores[2] = np.maximum(scores[2], 0.5)
    strata = [scores[..., :8], scores[..., 8:]]
    sizes = ((3, 5), (2, 3), (2, 1))
    families = [stats.family([part[None, :v, :s] for part in strata]) for v, s in sizes]
    spread = stats.spreads(strata, 4)
    runs = [f"run {number}" for number in range(15)]
    designs = [stats.Design(variants, seeds, (8, 4), 4) for variants, seeds in (*sizes, (8, 20))]
    look = stats.Look("here", runs[:6], 15, 1, 0.01, ["one"], spread, {})
    votes = (["1", "2", "2", None], [False, True, True, False]), (["1", "2"], [False, True])
    clusters = [["a", "a", "b", "c", "d", "d", "e", "f"], None]
    clustered = stats.family([part[None] for part in strata], clusters=clusters)
    right = np.round(8 * scores.mean(axis=1)).astype(int)
    sampled = stats.sampled_family([answers_of(right[None], np.full(right.shape, 8))])
    seeds = {"one": {0: 0.5, 1: 0.52, 2: 0.49, 3: 0.1}, "two": {0: 0.4, 1: 0.42, 2: 0.41, 3: 0.4}}
    reached = [
        times.Times((3, 5, 6), (9,)),
        times.Times((7, 8), (9, 9)),
        times.Times((2, 2, 3)),
    ]
    values = {
        "family": [
            [family.difference, *family.intervals(0.05), family.familywise_p(), family.mixed_p()]
            for family in families
        ],
        "holm": stats.holm(np.array([0.04, 0.01, np.nan, 0.02])),
        "verdict": [
            stats.verdict(low, high) for low, high in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1))
        ],
        "judge": [
            [list(vars(each).values()) for each in stats.judge(family, scope)]
            for family in (*families, clustered, sampled)
            for scope in (stats.OTHERS, stats.THESE)
        ],
        "collapsed": [list(vars(each).values()) for each in stats.collapsed(seeds)],
        "share_collapsed": [stats.share_collapsed(gone, 4) for gone in (0, 1, 4)],
        "smallest_found": [
            stats.smallest_found(sampled, scope) for scope in (stats.OTHERS, stats.THESE)
        ],
        "median_time": [times.median_time(each) for each in reached],
        "compare_times": [times.compare_times(reached[0], other) for other in reached],
        "accuracy": [stats.accuracy([part[0, :seeds] for part in strata]) for seeds in (5, 1)],
        "crossed": stats.crossed([scores[1] - scores[0]]),
        "pass_at_k": stats.pass_at_k([4, 4, 8], [0, 1, 3], 2),
        "majority_at_k": [stats.majority_at_k(*each) for each in votes],
        "detectable": [
            stats.detectable(plan, each) for plan in designs for each in (spread, stats.ASSUMED)
        ],
        "sentence": [stats.sentence(design, stats.ASSUMED, 0.02) for design in designs],
        "next_look": [
            stats.next_look(at, "here", runs[:n], 20)[1:] for at in ([], [look]) for n in (8, 15)
        ],
    }
    return {name: digest(value) for name, value in values.items()}
