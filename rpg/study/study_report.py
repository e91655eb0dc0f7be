"""The report of a study, part by part: what its page in the dashboard shows, and files that print in a paper as they are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import duckdb
import pandas
import vl_convert

from rpg.report import compute_curves, study_charts, tables
from rpg.report.summary import history, summarise
from rpg.report.sweep_report import Section, document, section
from rpg.report.tables import Cell, Grid, plus_minus, signed
from rpg.report.theme import specification, themed
from rpg.store import Layout, atomic_write_bytes, atomic_write_text, queries
from rpg.store.database import connect
from rpg.study import analysis
from rpg.study.registration import Registration, registration
from rpg.study.spec import Space
from rpg.study.trials import read_study, trials, tuning_from, tuning_sweep

NOT_YET = "Nothing is registered yet: variants are compared after tuning."
HELD_NOTE = (
    "A pruned trial was trained to the end with fewer seeds and cannot win: it counts with its accuracy so far, or with the "
    "lowest that finished in its batch if that is lower. A failed one counts as 0. Good: the share of the searched space "
    "whose nearest trial finished within the difference that matters of the best."
)
EFFORT_NOTE = (
    "The highest accuracy on the tuning problems that k of the trials are expected to contain (Dodge et al. 2019, Tang et al. "
    "2020), with 95 % intervals up to a quarter of the trials; beyond, the few best decide and no interval holds. It is "
    "chosen on these problems, so it is optimistic, most where few trials and seeds stand behind it."
)
PROBLEMS_NOTE = (
    "Rank: all pairs of variants are tested as one family, and all intervals hold together. Interquartile mean: of the "
    "middle half of all scores of seeds and problems. Improvement: chance that a training beats one of the baseline on the "
    "same problem, a tie counting half (Agarwal et al. 2021). Intervals are 95 %, over seeds and problems."
)
COMPONENTS_NOTE = (
    "Standard deviations in accuracy, by the method of moments (0 where the estimate of the variance is below it). Sampling "
    "is that of one answer. A seed brings its own initial model, unless that is crossed or fixed."
)


class Part(NamedTuple):
    """A part of the report: sentences, tables, charts by file name and title, and what they mean."""

    title: str
    lines: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    charts: Sequence[tuple[str, str, Any]] = ()
    caption: Sequence[str] = ()
    notes: Sequence[str] = ()


class Material(NamedTuple):
    """What all parts are made of."""

    study: str
    record: Mapping[str, Any]
    trials: pandas.DataFrame
    spaces: dict[str, Space]
    registered: Registration | None


def material(layout: Layout, study: str) -> Material:
    """From the files of a study. Raises StoreError: there is none of this name, or a file cannot be read."""
    record = read_study(layout, study)
    spaces = {one["variant"]: tuning_from(one).space for one in record["tuning"]}
    return Material(study, record, trials(layout, study), spaces, registration(layout, study))


def registered(found: Material) -> Part:
    """What was registered, and whether what there is follows from it."""
    plan = found.registered
    if plan is None:
        return Part("Registered", [NOT_YET])
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(plan.registered_at))
    departs = f"with {len(plan.deviations)} deviations, below" if plan.deviations else "and nothing departs from it"
    lines = [
        f"{'Registered' if not plan.deviations else 'Registered, then changed'}: {when}, digest {plan.digest}, {departs}.",
        f"Seeds {', '.join(map(str, plan.seeds))} on {', '.join(plan.benchmarks)}; the smallest difference that matters is "
        f"{plan.matters:g}; looks: {plan.looks}; sweep {plan.sweep}.",
    ]
    fields = list(dict.fromkeys(field for settings in plan.variants.values() for field in settings))
    rows = [
        [Cell(name), *(Cell(_value(settings.get(field))) for field in fields)]
        for name, settings in plan.variants.items()
    ]
    grid = Grid("Settings that are compared", ["Variant", *fields], rows, "settings")
    return Part("Registered", lines, [grid], notes=plan.deviations)


def search(found: Material, fields: Sequence[str] | None = None) -> Part:
    """The trials as pictures, and what they say about each variant; `fields`: the one or two that span the first picture."""
    data, spaces = _drawn(found), found.spaces
    if data.empty:
        return Part("Search", ["No trial has been proposed yet."])
    numeric = searched(found)
    matters = float(found.record["spec"]["report"]["matters"])
    names = list(dict.fromkeys(field for space in spaces.values() for field in space))
    header = ["Variant", "Trials", "Pruned", "Failed", "Best accuracy", *map(_short, names), "Good"]
    rows = []
    for variant, part in data.groupby("variant", sort=False):
        best, states = analysis.winner(part), part["state"].value_counts()
        ended = [str(int(states.get(state, 0))) for state in ("pruned", "failed")]
        accuracy = tables.number(part.loc[best, "objective"]) if best is not None else ""
        at = [_value(part.loc[best, name]) if best is not None and name in spaces[variant] else "" for name in names]
        share = analysis.good_share(part, spaces[variant], matters)
        texts = [str(variant), str(len(part)), *ended, accuracy, *at, "" if share != share else f"{share:.0%}"]
        rows.append([Cell(text) for text in texts])
    drawn = []
    if numeric:
        shown = [field for field in fields or list(numeric)[:2] if field in numeric]
        log = [numeric[field] for field in shown]
        drawn.append(("search", "Search", study_charts.search(data, shown, log)))
        if (data["state"] == "finished").any():
            drawn.append(("sensitivity", "Sensitivity", study_charts.sensitivity(data, list(numeric), list(numeric.values()))))
    note = HELD_NOTE.partition(" Good:")[2]
    return Part("Search", (), [Grid("Best of the trials", header, rows, "search")], drawn, [f"Good:{note}"])


def searched(found: Material) -> dict[str, bool]:
    """Numeric field that some variant searches -> whether in logarithms."""
    ranges = [item for space in found.spaces.values() for item in space.items()]
    return {field: values.log is not None for field, values in ranges if values.choices is None}


def _drawn(found: Material) -> pandas.DataFrame:
    """The trials with whether each is its variant's best, and a link to its first run."""
    best = {analysis.winner(part) for _, part in found.trials.groupby("variant")}
    links = [
        tables_link(tuning_sweep(found.study), runs[0]) if len(runs) else "" for runs in found.trials["run_ids"]
    ]
    return found.trials.assign(best=[index in best for index in found.trials.index], link=links)


def more_trials(found: Material) -> Part:
    """What the best of k trials is expected to reach, and who wins at k."""
    made = analysis.effort_curves(found.trials)
    if made is None:
        return Part("With fewer trials", ["Two variants with two ended trials each are needed."])
    variants, effort = made
    count = effort.best.shape[1]
    rows = [
        (label, k, best, best - half, best + half)
        for label, bests, halves in zip(variants, effort.best, effort.half, strict=True)
        for k, (best, half) in enumerate(zip(bests, halves, strict=True), 1)
    ]
    data = pandas.DataFrame(rows, columns=["label", "x", "mean", "low", "high"])
    table = []
    for k in sorted({2**power for power in range(12) if 2**power <= count} | {count}):
        first, lead, half = effort.lead(k)
        reached = tables.number(effort.best[first, k - 1])
        table.append([Cell(text) for text in (str(k), variants[first], reached, plus_minus(lead, lead - half, lead + half, signed))])
    grid = Grid("Best with k trials", ["Trials", "Variant", "Expected best", "Ahead of the next by"], table, "effort")
    chart = study_charts.curves(data, variants, x="trials", y="expected best accuracy", whole=True)
    return Part(
        "With fewer trials", (), [grid], [("expected-best", "Expected best", chart)], [EFFORT_NOTE, HELD_NOTE.partition(" Good:")[0]]
    )


def over_problems(found: Material, scores: analysis.Reported) -> Part:
    """Ranks, interquartile means, chances of improvement, and profiles over problems."""
    plan = found.registered
    assert plan is not None
    rows = []
    for one in analysis.over_all_problems(scores, plan.baseline):
        chance = plus_minus(*one.improvement[:1], *one.improvement[3:5]) if one.improvement else "baseline"
        rank = f"{one.rank.place} [{one.rank.low}, {one.rank.high}]"
        texts = one.variant, rank, plus_minus(one.middle.mean, one.middle.low, one.middle.high), chance
        rows.append([Cell(text) for text in texts])
    grid = Grid("Over problems", ["Variant", "Rank", "Interquartile mean", "Improvement over the baseline"], rows, "problems")
    chart = study_charts.curves(
        analysis.profiles(scores), scores.variants, x="score of a problem (share of right samples)",
        y="share of seeds and problems above it", step=True,
    )  # fmt: skip
    return Part("Over problems", (), [grid], [("profiles", "Performance profiles", chart)], [PROBLEMS_NOTE])


def variance(found: Material, scores: analysis.Reported) -> Part:
    """What the spread of answers is made of."""
    made = analysis.components(scores, list(found.registered.factors if found.registered else ()))
    if not made:
        return Part("Where the variance is", ["Two seeds, two problems and two levels of each factor are needed."])
    header = ["Variant", *next(iter(made.values()))]
    rows = [[Cell(name), *(Cell(f"{max(value, 0) ** 0.5:.3f}") for value in each.values())] for name, each in made.items()]
    return Part("Where the variance is", (), [Grid("Variance components", header, rows, "variance")], caption=[COMPONENTS_NOTE])


def cost(found: Material, spent: pandas.DataFrame, runs: Mapping[str, Sequence[str]]) -> Part:
    table = analysis.costs(found.trials, spent, runs)
    header = ["Variant", "Trials", "Tokens, tuning", "Seconds, tuning", "Tokens, reported", "Seconds, reported"]
    amounts = [
        [Cell(str(name)), *(Cell("" if value != value else f"{value:,.0f}") for value in row)]
        for name, row in zip(table.index, table.to_numpy(float), strict=True)
    ]
    return Part("Cost", (), [Grid("What it took", header, amounts, "cost")])


def compute(db: duckdb.DuckDBPyConnection, plan: Registration, x: str = "tokens") -> Part:
    """Fitted curves of accuracy over compute, of the reported runs."""
    known = queries.runs(db, plan.sweep)
    labels = {
        queries.Series(plan.sweep, variant): plan.runs[run]["variant"]
        for run, variant in zip(known["run"], known["variant"], strict=True)
        if run in plan.runs and isinstance(variant, str)
    }
    return compute_part(db, labels, list(plan.variants), plan.benchmarks, x)


def sections(db: duckdb.DuckDBPyConnection, layout: Layout, found: Material, x: str = "tokens") -> list[Part | Section]:
    """Everything, in the order of the report; the table of verdicts is that of the reported sweep's own report."""
    parts: list[Part | Section] = [registered(found)]
    plan = found.registered
    scores, spent = None, pandas.DataFrame(columns=["run", "step", "tokens", "seconds"])
    if plan and plan.sweep in set(queries.sweeps(db)["sweep"]):
        parts.append(section(summarise(db, plan.sweep, past=history(layout, plan.sweep)), title="Verdicts"))
        scores, spent = analysis.reported(db, plan), queries.spending(db, plan.sweep)
    if scores and plan:
        parts += [over_problems(found, scores), compute(db, plan, x), variance(found, scores)]
    return [*parts, search(found), more_trials(found), cost(found, spent, scores.runs if scores else {})]
