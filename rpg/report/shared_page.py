"""Several sweeps, or a selection from one, as one HTML file that can be sent to somebody.

Every sweep has its own tables and tests: its variants share problems and seeds, those of another
sweep may not.
"""

from collections.abc import Collection, Mapping, Sequence

import altair as alt

from rpg.report import curves, tables
from rpg.report.format import accuracy, with_interval
from rpg.report.spending import refusals, unequal
from rpg.report.summary import Summary, record_look, summarise, terms_of
from rpg.report.sweep_report import POINTS, Section, curve_data, document, score_names, section
from rpg.report.theme import specification
from rpg.store import Layout, queries
from rpg.store.notes import HIDDEN, titled
from rpg.store.queries import Database


def shared_page(
    layout: Layout,
    db: Database,
    shown: Mapping[queries.Series, str],
    panels: Sequence[str],
    x: str = "step",
) -> str:
    """The page of the variants `shown`, with their labels. panels: benchmarks (`mean`: their mean)
    and metrics. Raises StoreError: the database does not hold a sweep."""
    sweeps = list(dict.fromkeys(key.sweep for key in shown))
    summaries = [_summary(db, layout, sweep, shown, panels) for sweep in sweeps]
    marks = queries.marks(db)
    titles = [titled(sweep, marks.get(sweep, ("", []))[0]) for sweep in sweeps]
    chart = _curves(db, sweeps, shown, panels, x)
    drawn = None if chart is None else specification(chart)
    if len(summaries) == 1:
        sections = [section(summaries[0], drawn)]
    else:
        benchmarks = [set(summary.benchmarks) for summary in summaries]
        common = set.intersection(*benchmarks)
        total = set.union(*benchmarks)
        overlap = f"{len(common)} of {len(total)} benchmarks in common"
        lines = [
            f"{len(summaries)} sweeps with {'the same benchmarks' if common == total else overlap}."
        ]
        all_curves = [("curves", "Curves", drawn)] if drawn else []
        sections = [Section("", lines, [_overview(summaries)], all_curves, [_SEVERAL])]
        sections += [
            section(summary, title=title) for summary, title in zip(summaries, titles, strict=True)
        ]
    return document(", ".join(titles), sections)


_SEVERAL = (
    "Variants are tested only within their sweep, against its baseline (below): other "
    "sweeps may have used other problems, "
    "seeds or budgets."
)


def _summary(
    db: Database,
    layout: Layout,
    sweep: str,
    chosen: Collection[queries.Series],
    panels: Sequence[str],
) -> Summary:
    """A sweep's summary with the chosen variants and benchmarks; tests are corrected for all of its
    variants."""
    benchmarks = [name for name in queries.benchmarks(db, [sweep]) if name in panels]
    terms = terms_of(layout, sweep)
    summary = summarise(db, sweep, names=benchmarks or None, terms=terms)
    record_look(layout, summary, terms)
    notes = [*summary.notes, *layout.read_data_notes(sweep), *_marks(db, sweep)]
    kept = [variant for variant in summary.variants if queries.Series(sweep, variant) in chosen]
    if len(kept) < len(summary.variants):
        shown = f"{len(kept)} of {len(summary.variants)} variants are shown"
        notes.append(f"{shown}; tests are corrected for all of them")
    table = summary.table[summary.table["variant"].isin(kept)].reset_index(drop=True)
    labels = {summary.labels[variant] for variant in kept}
    parts = []
    for part in summary.equal:
        refused = {label: reason for label, reason in part.refused.items() if label in labels}
        rows = part.table[part.table["variant"].isin(kept)]
        parts.append(part._replace(table=rows, refused=refused))
        notes = [note for note in notes if note not in refusals(part)]
        notes += refusals(parts[-1])
    equal = tuple(parts)
    spending = unequal(table, summary.labels)
    return summary._replace(table=table, variants=kept, notes=notes, equal=equal, spending=spending)


def _curves(
    db: Database,
    sweeps: Sequence[str],
    shown: Mapping[queries.Series, str],
    panels: Sequence[str],
    x: str,
) -> alt.ConcatChart | None:
    """All panels in one figure; None if there is nothing to draw."""
    scores = score_names(queries.benchmarks(db, sweeps))
    data = curve_data(db, shown, [name for name in panels if name in scores], panels, x, POINTS)
    if data.empty:
        return None
    data = curves.by_reference(data, queries.references(db, sweeps))
    varied, constants = curves.folded(data, panels, scores)
    drawn = curves.panels(data, list(shown.values()), varied, scores, x)
    missing = filter(None, [curves.undrawn(data, list(shown.values()), x)])
    explained = curves.explanation(data, varied, scores)
    return curves.figure(drawn, ", ".join(sweeps), [*explained, *missing, *constants])


def _overview(summaries: Sequence[Summary]) -> tables.Grid:
    """All variants of all sweeps: last and best, as means over a sweep's benchmarks."""
    rows = []
    for summary in summaries:
        names = summary.benchmarks
        benchmarks = ", ".join(names) if len(names) < 4 else f"{len(names)} benchmarks"
        for row in summary.table[summary.table["benchmark"] == summary.headline].itertuples():
            last = with_interval(row.last, row.low, row.high)
            texts = (
                summary.sweep,
                row.label,
                str(row.seeds),
                str(row.step),
                last,
                accuracy(row.best),
            )
            rows.append([*texts, benchmarks])
    header = ["Sweep", "Variant", "Seeds", "Step", "Last", "Best", "Accuracy on"]
    return tables.grid_of("All sweeps", "sweeps", header, rows)


def _marks(db: Database, sweep: str) -> list[str]:
    """What people have added to a sweep and its runs; means and tests count hidden runs, too."""
    hidden = [name for name, (_, tags) in queries.marks(db).items() if HIDDEN in tags]
    runs = [run for of, _, run in (name.partition("/") for name in hidden) if of == sweep and run]
    added = queries.sweeps(db).set_index("sweep").loc[sweep]
    tags = [f"tags: {added['tags']}"] if added["tags"] else []
    counted = [f"hidden from lists, but counted here: {', '.join(runs)}"] if runs else []
    return [*tags, *counted, *(f"note: {line}" for line in added["notes"].splitlines())]
