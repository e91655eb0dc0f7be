"""The report of a study, part by part: what its page in the dashboard shows, and files that print
in a paper as they are."""

import math
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import vl_convert

from rpg.config.variant_names import value_text
from rpg.report import compute_curves, frontier, study_charts, tables
from rpg.report import format as written
from rpg.report.csv_text import csv_text
from rpg.report.published_samples import collect
from rpg.report.publishing import Publication
from rpg.report.summary import record_look, summarise, terms_of
from rpg.report.sweep_report import Section, document, section
from rpg.report.tables import POINTS, grid_of
from rpg.report.theme import specification, themed
from rpg.stats import accuracy, over_problems, searches
from rpg.store import Layout, atomic_write_bytes, atomic_write_text, queries
from rpg.store.database import connect
from rpg.store.queries import Database
from rpg.study import analysis
from rpg.study.registration import Registration, is_at_a_look, registration, runs_done
from rpg.study.spec import Space
from rpg.study.trials import read_study, trials, tunings_from

NOTES: dict[str, str] = tomllib.loads(Path(__file__).with_name("notes.toml").read_text("utf-8"))
"""What stands below tables and figures."""


class Material(NamedTuple):
    """What the files of a study hold, as of now."""

    study: str
    question: str
    baseline: str
    matters: float
    trials: pandas.DataFrame
    spaces: dict[str, Space]
    registered: Registration | None


def material(layout: Layout, study: str) -> Material:
    """Raises StoreError: there is no study of this name, or a file cannot be read."""
    record = read_study(layout, study)
    spec = record["spec"]
    spaces = {tuning.variant: tuning.space for tuning in tunings_from(record)}
    matters = float(spec["report"]["matters"])
    rows = trials(layout, study)
    baseline = str(spec["report"].get("baseline") or next(iter(spaces)))
    return Material(
        study, str(spec["question"]), baseline, matters, rows, spaces, registration(layout, study)
    )


def _in_colours(variants: Iterable[str], baseline: str) -> list[str]:
    """In the order that gives a variant the colour that it has in the report of the reported
    sweep."""
    return sorted(variants, key=lambda variant: (variant != baseline, variant))


def registered(material: Material) -> Section:
    """What was registered, and how what there is departs from it."""
    plan = material.registered
    if plan is None:
        return Section(
            "Registered", ["Nothing is registered yet: variants are compared after tuning."]
        )
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(plan.registered_at))
    changed = "; changed since, see below" if plan.deviations else "; unchanged since"
    seeds = ", ".join(map(str, plan.seeds))
    benchmarks = ", ".join(plan.benchmarks)
    lines = [
        f"Registered {when}, digest {plan.digest}{changed}.",
        f"Seeds {seeds} on {benchmarks}; differences of {written.size_in_points(plan.matters)} "
        f"points matter; looks: {plan.looks}; sweep {plan.sweep}.",
    ]
    fields = list(dict.fromkeys(field for settings in plan.variants.values() for field in settings))
    rows = []
    for name, settings in plan.variants.items():
        cells = [_text(settings.get(field, "")) for field in fields]
        rows.append([name, *cells])
    grid = grid_of("Settings that are compared", "settings", ["Variant", *fields], rows)
    return Section("Registered", lines, [grid], notes=plan.deviations)


def numeric_fields(material: Material) -> dict[str, bool]:
    """Numeric field that some variant searches -> whether in logarithms."""
    ranges = [item for space in material.spaces.values() for item in space.items()]
    return {field: values.log is not None for field, values in ranges if values.choices is None}


def search(material: Material, views: Sequence[Sequence[str]] | None = None) -> Section:
    """The trials as pictures, and the best of each variant. `views`: the one or two fields that
    span each picture (null: the first two, and each alone). Where the trials have a column `link`,
    a click leads there."""
    if material.trials.empty:
        return Section("Search", ["No trial has been proposed yet."])
    log = numeric_fields(material)
    data = material.trials.assign(link=material.trials.get("link"))
    if views is None:
        views = [list(log)[:2]]
        if len(log) > 1:
            views += [[field] for field in log]
    charts = []
    for place, view in enumerate(filter(None, views), 1):
        panels = study_charts.search(data, {field: log[field] for field in view})
        charts.append((f"search-{place}", " and ".join(view), panels))
    names = list(dict.fromkeys(field for space in material.spaces.values() for field in space))
    header = ["Variant", "Trials", "Pruned", "Failed", "Best accuracy"]
    header += map(study_charts.short, names)
    header.append("Good")
    rows = []
    for name, part in data.groupby("variant", sort=False):
        rows.append(_best(material, str(name), part, names))
    grid = grid_of("Best of the trials", "search", header, rows)
    return Section("Search", (), [grid], charts, [NOTES["good"]])


def _best(
    material: Material, variant: str, part: pandas.DataFrame, names: Sequence[str]
) -> list[str]:
    """The row of a variant: counts of its trials, its best settings, the share that is as good."""
    best = part[part["best"]]
    space = material.spaces[variant]
    row = [variant, str(len(part))]
    for state in ("pruned", "failed"):
        row.append(str((part["state"] == state).sum()))
    row.append(written.accuracy(best["objective"].mean()))
    for name in names:
        row.append(_text(sorted(best[name], key=str)) if name in space else "")
    share = analysis.good_share(part, space, material.matters)
    row.append("" if math.isnan(share) else written.percent(share))
    return row


def fewer_trials(material: Material) -> Section:
    """What the best of k trials is expected to reach, and who wins at k."""
    title = "With fewer trials"
    values = {}
    for name, part in material.trials.groupby("variant", sort=False):
        ended = analysis.held(part)
        if len(ended) > 1:
            values[str(name)] = ended
    if len(values) < 2:
        return Section(title, ["Shown when two variants have two ended trials each."])
    each_search = int(material.trials.groupby(["variant", "search"]).size().max())
    effort = searches.effort(list(values.values()), each_search)
    variants = list(values)
    count = effort.best.shape[1]
    data = pandas.DataFrame(
        {
            "label": np.repeat(variants, count),
            "x": np.tile(np.arange(1, count + 1), len(variants)),
            "mean": effort.best.ravel(),
            "low": np.clip(effort.best - effort.half, 0, 1).ravel(),
            "high": np.clip(effort.best + effort.half, 0, 1).ravel(),
            "beyond": False,
        }
    )
    rows = []
    for k in frontier.tries(count):
        first, lead, half = effort.lead(k)
        ahead = written.with_interval(lead, lead - half, lead + half, written.points)
        rows.append([str(k), variants[first], written.accuracy(effort.best[first, k - 1]), ahead])
    header = ["Trials", "Variant", "Expected best", "Points ahead of the next"]
    grid = grid_of("Best with k trials", "effort", header, rows)
    labels = _in_colours(variants, material.baseline)
    chart = study_charts.curves(data, labels, x="trials", y="expected best accuracy")
    return Section(
        title, (), [grid], [("expected-best", "Expected best", chart)], [NOTES["effort"]]
    )


def verdicts_over_levels(
    scores: analysis.Reported | None, layout: Layout, plan: Registration
) -> Section:
    """Differences from the baseline where factors are crossed."""
    looks = layout.read_looks(plan.sweep)
    looked = analysis.look_over_levels(scores, plan, looks)
    if scores is None or looked is None:
        return Section("Verdicts", ["No seed has been evaluated at all levels of the factors yet."])
    apart, look = looked
    recorded = [(earlier["compared"], earlier["runs"]) for earlier in looks]
    if (look.compared, look.runs) not in recorded:
        layout.add_look(plan.sweep, look._asdict())
    of_variants = np.mean([array.mean(axis=(1, 2)) for array in scores.strata], axis=0)
    means = dict(zip(scores.variants, map(written.accuracy, of_variants), strict=True))
    rows = [[plan.baseline, means[plan.baseline], "baseline", ""]]
    for name, result in apart.items():
        difference = written.with_interval(
            result.difference, result.low, result.high, written.points
        )
        rows.append([name, means[name], difference, result.verdict])
    title = f"Mean accuracy, over the levels of {', '.join(plan.factors)}"
    header = ["Variant", "Accuracy", POINTS, "Verdict"]
    lines = [f"{plan.caution}."] if plan.caution else []
    return Section(
        "Verdicts", lines, [grid_of(title, "levels", header, rows)], caption=[NOTES["levels"]]
    )


def problems(scores: analysis.Reported, baseline: str) -> Section:
    """Ranks, interquartile means, chances of improvement, and performance profiles, over all
    problems alike."""
    together = dict(zip(scores.variants, np.concatenate(scores.strata, axis=2), strict=True))
    rows = []
    shares = []
    # Between scores nothing changes.
    thresholds = np.union1d(np.round(list(together.values()), 9), [0.0, 1.0])
    for rank, (variant, values) in zip(
        over_problems.ranks(scores.strata), together.items(), strict=True
    ):
        chance = "baseline"
        if baseline in together and variant != baseline:
            improved = over_problems.probability_of_improvement(values, together[baseline])
            chance = written.with_interval(improved.mean, improved.low, improved.high)
        middle = over_problems.interquartile_mean(values)
        place = f"{rank.place} [{rank.low}, {rank.high}]"
        middle_text = written.with_interval(middle.mean, middle.low, middle.high)
        rows.append([variant, place, middle_text, chance])
        for above in thresholds:
            share = accuracy([values > above + 1e-8])
            shares.append((variant, above, share.mean, share.low, share.high, False))
    header = ["Variant", "Rank", "Interquartile mean", "Improvement over the baseline"]
    data = pandas.DataFrame(shares, columns=["label", "x", "mean", "low", "high", "beyond"])
    chart = study_charts.curves(
        data,
        _in_colours(scores.variants, baseline),
        x="score of a problem (share of right samples)",
        y="share of seeds and problems above it",
        interpolate="step-after",
    )
    charts = [("profiles", "Performance profiles", chart)]
    grid = grid_of("Over problems", "problems", header, rows)
    return Section("Over problems", (), [grid], charts, [NOTES["problems"]])


def variance(scores: analysis.Reported, factors: Sequence[str]) -> Section:
    """What the spread of answers is made of."""
    title = "Where the variance is"
    components = analysis.components(scores, factors)
    if components.empty:
        return Section(
            title, ["Shown when there are two seeds, two problems and two levels of each factor."]
        )
    deviations = components.clip(lower=0).pow(0.5).map(written.accuracy).to_numpy().tolist()
    rows = []
    for name, cells in zip(scores.variants, deviations, strict=True):
        rows.append([name, *cells])
    header = ["Variant"]
    header += [name.capitalize() for name in components]
    grid = grid_of("Variance components", "variance", header, rows)
    return Section(title, (), [grid], caption=[NOTES["components"]])


def reported_labels(db: Database, plan: Registration) -> dict[str, str]:
    """Variant of the reported sweep -> the study's name of it."""
    runs = queries.runs(db, plan.sweep)
    planned = runs[runs["run"].isin(list(plan.runs)) & runs["variant"].notna()]
    return {row.variant: str(plan.runs[row.run]["variant"]) for row in planned.itertuples()}


def compute(db: Database, plan: Registration, x: str) -> Section:
    """Fitted curves of accuracy over compute (an axis of rpg.report.curves.X_TITLES), of the
    reported runs."""
    labels = {
        queries.Series(plan.sweep, variant): label
        for variant, label in reported_labels(db, plan).items()
    }
    data = compute_curves.measured(db, labels, plan.benchmarks, x)
    if not (data["x"] > 0).any():
        return Section("Over compute", ["No checkpoint of known compute has been evaluated yet."])
    return compute_curves.section(
        data, list(plan.variants), _in_colours(plan.variants, plan.baseline), x
    )


def comparison(db: Database, layout: Layout, plan: Registration) -> list[Section]:
    """The parts that follow from the reported runs; none before there are any. Between the
    registered looks there is no verdict, and each that is shown is on record."""
    if plan.sweep not in set(queries.sweeps(db)["sweep"]):
        return []
    scores = analysis.reported(db, plan)
    if not is_at_a_look(layout, plan):
        done = f"{len(runs_done(layout, plan))} of {len(plan.runs)} reported runs are done."
        compared = Section("Verdicts", [f"{done} Verdicts are given at the registered looks."])
    elif plan.factors:
        compared = verdicts_over_levels(scores, layout, plan)
    else:
        terms = terms_of(layout, plan.sweep)._replace(caution=plan.caution)
        summary = summarise(db, plan.sweep, terms=terms)
        record_look(layout, summary, terms)
        compared = section(summary._replace(question=""), title="Verdicts")
    if scores is None:
        return [compared]
    return [compared, problems(scores, plan.baseline), variance(scores, list(plan.factors))]


def cost(db: Database, material: Material) -> Section:
    """Trials, tokens and seconds, of tuning and of what is reported."""
    plan = material.registered
    sweep = ""
    variant_of = {}
    if plan is not None:
        sweep = plan.sweep
        variant_of = {run: planned["variant"] for run, planned in plan.runs.items()}
    tuning = material.trials.groupby("variant", sort=False)
    spent = queries.spending(db, sweep).sort_values("step").groupby("run")
    reported = spent[["tokens", "seconds"]].last().groupby(variant_of).sum(min_count=1)
    table = pandas.concat([tuning.size(), tuning[["tokens", "seconds"]].sum(), reported], axis=1)
    header = ["Variant", "Trials"]
    for stage in ("tuning", "reported"):
        header += [f"Tokens, {stage}", f"Seconds, {stage}"]
    rows = []
    for variant, *amounts in table.astype(float).itertuples(name=None):
        cells = [written.amount(value) for value in amounts]
        rows.append([str(variant), *cells])
    return Section("Cost", (), [grid_of("What it took", "cost", header, rows)])


def study_sections(layout: Layout, study: str) -> list[Section]:
    """All parts of a study's page, the charts as specifications.

    Raises StoreError: there is no such study, or a file cannot be read.
    """
    of_study = material(layout, study)
    with connect(layout) as db:
        parts = [Section("", [of_study.question]), registered(of_study)]
        plan = of_study.registered
        if plan and (compared := comparison(db, layout, plan)):
            parts += [*compared, compute(db, plan, "tokens")]
        parts += [search(of_study), fewer_trials(of_study), cost(db, of_study)]
    return [part._replace(charts=[_drawn(*chart) for chart in part.charts]) for part in parts]


def publication(layout: Layout, study: str, budget: int) -> Publication:
    """A study's page to give away, with samples of its reported runs up to `budget` bytes. Raises
    StoreError: there is no such study, or a file cannot be read."""
    of_study = material(layout, study)
    sections = study_sections(layout, study)
    tables = {"trials": csv_text(of_study.trials)}
    plan = of_study.registered
    with connect(layout) as db:
        if plan is None or plan.sweep not in set(queries.sweeps(db)["sweep"]):
            return Publication(study, sections, tables)
        samples = collect(layout, db, plan.sweep, reported_labels(db, plan), budget)
    return Publication(study, sections, tables, samples)


def _drawn(name: str, title: str, chart: Any) -> tuple[str, str, dict[str, Any]]:
    return name, title, specification(themed(study_charts.whole(chart)))


def write_study_report(layout: Layout, study: str) -> None:
    """Write report.html, report.tex, trials.csv and each figure as PNG and SVG under
    studies/<study>/report/.

    Raises StoreError: there is no such study, a file cannot be read or written.
    """
    sections = study_sections(layout, study)
    latex = [tables.PREAMBLE]
    for part in sections:
        for place, grid in enumerate(part.grids):
            notes = [] if place else [*part.caption, *part.notes]
            latex += tables.latex_table(study, grid, notes=notes)
    texts = {
        "report.html": document(study, sections),
        "report.tex": "\n".join(latex),
        "trials.csv": csv_text(material(layout, study).trials),
    }
    folder = layout.study_folder(study) / "report"
    for name, _, spec in [chart for part in sections for chart in part.charts]:
        texts[f"{name}.svg"] = vl_convert.vegalite_to_svg(spec)
        atomic_write_bytes(
            folder / f"{name}.png", vl_convert.svg_to_png(texts[f"{name}.svg"], scale=2)
        )
    for name, text in texts.items():
        atomic_write_text(folder / name, text)


def _text(value: Any) -> str:
    """A setting; of several searches the lowest and the highest, or all if they are not numbers."""
    if not isinstance(value, list):
        return written.measured(value) if isinstance(value, float) else value_text(value)
    texts = list(dict.fromkeys(map(_text, value)))
    if len(texts) > 1 and all(isinstance(each, int | float) for each in value):
        return f"{_text(min(value))} to {_text(max(value))}"
    return ", ".join(texts)
