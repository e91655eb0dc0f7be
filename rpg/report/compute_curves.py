"""Accuracy over compute, with the saturating curve of each variant (rpg.stats.saturating_curves): a
table and a figure."""

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas

from rpg.report import format as written
from rpg.report import study_charts
from rpg.report.curves import X_TITLES
from rpg.report.format import accuracy, with_interval
from rpg.report.selection import MEAN
from rpg.report.sweep_report import Section
from rpg.report.tables import Grid, grid_of
from rpg.stats.saturating_curves import Bounds, ComputeFit, fit
from rpg.store import queries
from rpg.store.queries import Database

FAR = 10
"""Budgets to which a curve is drawn and told unless it is refused."""
NOTE = (
    "Curves are accuracy = start + (asymptote − start) / (1 + (midpoint / compute)^slope), "
    "fitted to all seeds, with 95 % "
    "intervals over seeds. The held-out error is that of the curve of the first half of the "
    "budget in the second half."
)


def measured(
    db: Database, labels: Mapping[queries.Series, str], benchmarks: Sequence[str], x: str
) -> pandas.DataFrame:
    """Checkpoints, of imported runs too: label, seed, step, x (an axis of X_TITLES), mean
    (accuracy, over benchmarks).

    What shares a label and a seed is averaged; left out are steps that a seed of the label lacks,
    steps of unknown compute, and seeds that spent nothing.
    """
    score = MEAN if len(benchmarks) > 1 else benchmarks[0]
    rows = queries.score_curves(db, list(labels), [score], x, each_seed=True)
    series = zip(rows["sweep"], rows["variant"], strict=True)
    names = [labels[queries.Series(sweep, variant)] for sweep, variant in series]
    rows = rows.assign(label=names).dropna(subset=["x", "mean"])

    points = rows.groupby(["label", "seed", "step"], sort=False)[["x", "mean"]].mean()
    points = points.reset_index()
    spent = points.groupby(["label", "seed"])["x"].transform("max")
    points = points[spent > 0]

    seeds_of_label = points.groupby("label")["seed"].transform("nunique")
    seeds_at_step = points.groupby(["label", "step"])["seed"].transform("nunique")
    return points[seeds_at_step == seeds_of_label]


def fits(data: pandas.DataFrame, labels: Sequence[str]) -> dict[str, ComputeFit]:
    """The curve of every label that has a checkpoint."""
    fitted = {}
    for label in dict.fromkeys(labels):
        part = data[data["label"] == label]
        if len(part):
            table = part.pivot(index="seed", columns="step", values=["x", "mean"])
            fitted[label] = fit(table["x"], table["mean"])
    return fitted


def grid(fitted: Mapping[str, ComputeFit], x: str) -> Grid:
    header = [
        "Variant",
        "Seeds",
        "Asymptote",
        f"Midpoint, {X_TITLES[x]}",
        "Slope",
        f"At {FAR} budgets",
    ]
    rows = []
    for label, each in fitted.items():
        texts = ["refused", "", "", ""]
        if not each.refusal:
            value, low, high = each.at(FAR * each.budget)
            asymptote = each.asymptote
            texts = [
                with_interval(asymptote.value, asymptote.low, asymptote.high),
                _range(each.midpoint),
                _range(each.slope),
                with_interval(float(value), float(low), float(high)),
            ]
        rows.append([label, str(each.seeds), *texts, accuracy(each.held_out)])
    return grid_of(f"Accuracy over {X_TITLES[x]}", "compute", [*header, "Held-out error"], rows)


def section(data: pandas.DataFrame, shown: Sequence[str], labels: Sequence[str], x: str) -> Section:
    """Table, figure and refusals of the labels `shown` in `data`, from :func:`measured`; all
    `labels` determine colours."""
    fitted = fits(data, shown)
    drawn = [("compute", "Accuracy over compute", chart(data, fitted, labels, x))]
    refused = [
        f"{label}: no extrapolation: {fit.refusal}." for label, fit in fitted.items() if fit.refusal
    ]
    refused += [
        f"{label}: no checkpoint of known {X_TITLES[x]}." for label in shown if label not in fitted
    ]
    return Section("Over compute", (), [grid(fitted, x)], drawn, [NOTE], refused)


def _range(bounds: Bounds) -> str:
    show = written.amount if min(bounds) >= 100 else written.measured
    return with_interval(bounds.value, bounds.low, bounds.high, show)


def chart(
    data: pandas.DataFrame, fitted: Mapping[str, ComputeFit], labels: Sequence[str], x: str
) -> alt.LayerChart:
    """Seeds as points, curves as lines: to the budget, and on to `FAR` budgets where they are not
    refused."""
    points = data[data["x"] > 0]
    lines = []
    for label, each in fitted.items():
        furthest = each.budget if each.refusal else FAR * each.budget
        amount = np.geomspace(points["x"].min(), furthest, 200)
        mean, low, high = each.at(amount)
        line = pandas.DataFrame(
            {
                "label": label,
                "x": amount,
                "mean": np.clip(mean, 0, 1),
                "low": np.nan if each.refusal else np.clip(low, 0, 1),
                "high": np.nan if each.refusal else np.clip(high, 0, 1),
                "beyond": amount > each.budget,
            }
        )
        lines.append(line)
    drawn = pandas.concat(lines, ignore_index=True)
    return study_charts.curves(drawn, labels, x=X_TITLES[x], y="accuracy", log=True, points=points)
