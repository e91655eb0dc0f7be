"""Accuracy over compute, with the saturating curve of each variant (rpg.stats.saturating_curves) as a table and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import duckdb
import numpy as np
import pandas

from rpg.report.curves import X_TITLES
from rpg.report.summary import MEAN
from rpg.report.tables import Cell, Grid, number, plus_minus
from rpg.report.theme import encodings
from rpg.stats.saturating_curves import Bounds, ComputeFit, fit
from rpg.store import queries

FAR = 10
"""Budgets up to which a curve that is not refused is drawn and told."""


def measured(
    db: duckdb.DuckDBPyConnection, labels: Mapping[queries.Series, str], benchmarks: Sequence[str], x: str
) -> pandas.DataFrame:
    """Checkpoints: label, seed, step, x, accuracy (mean over benchmarks); imported runs too. Those of one label and seed
    (a crossed factor) are averaged; a step that a seed of the label lacks, or whose compute is not known, is left out."""
    score = MEAN if len(benchmarks) > 1 else benchmarks[0]
    rows = queries.score_curves(db, list(labels), [score], x, each_seed=True)
    names = [labels[key] for key in map(queries.Series, rows["sweep"], rows["variant"])]
    rows = rows.assign(label=names, accuracy=rows["mean"]).dropna(subset=["x", "accuracy"])
    each = rows.groupby(["label", "seed", "step"], sort=False)[["x", "accuracy"]].mean().reset_index()
    seeds = each.groupby("label")["seed"].transform("nunique")
    return each[each.groupby(["label", "step"])["seed"].transform("nunique") == seeds]


def fits(data: pandas.DataFrame, labels: Sequence[str]) -> dict[str, ComputeFit]:
    """The curve of every label that has a checkpoint."""
    made = {}
    for label in dict.fromkeys(labels):
        part = data[data["label"] == label]
        if len(part):
            x, y = (part.pivot(index="seed", columns="step", values=name).to_numpy() for name in ("x", "accuracy"))
            made[label] = fit(x, y)
    return made


def grid(made: Mapping[str, ComputeFit], x: str) -> Grid:
    header = ["Variant", "Seeds", "Asymptote", f"Midpoint, {X_TITLES[x]}", "Slope", f"At {FAR} budgets", "Held-out error"]
    rows = []
    for label, each in made.items():
        far = Bounds(*(float(value) for value in each.at(FAR * each.budget)))
        texts = [number(each.held_out)]
        if not each.refusal:
            texts = [plus_minus(*each.asymptote), _range(each.midpoint), _range(each.slope), plus_minus(*far), *texts]
        else:
            texts = ["", "", "", "refused", *texts]
        rows.append([Cell(text) for text in (label, str(each.seeds), *texts)])
    return Grid(f"Accuracy over {X_TITLES[x]}: fitted curves", header, rows, "compute")


def refusals(made: Mapping[str, ComputeFit]) -> list[str]:
    return [f"{label}: no extrapolation: {each.refusal}." for label, each in made.items() if each.refusal]


NOTE = (
    "Curves are accuracy = start + (asymptote − start) / (1 + (midpoint / compute)^slope), fitted to all seeds, with 95 % "
    "intervals over seeds. The held-out error is that of the curve of the first half of the budget in the second half."
)


def _range(bounds: Bounds) -> str:
    return f"{bounds.value:,.3g} [{bounds.low:,.3g}, {bounds.high:,.3g}]"


def chart(data: pandas.DataFrame, made: Mapping[str, ComputeFit], labels: Sequence[str], x: str) -> alt.LayerChart:
    """Seeds as points, curves as lines: to the budget, and on to `FAR` budgets, thinner, where they are not refused."""
    near = float(data.loc[data["x"] > 0, "x"].min())
    ends = [each.budget * (1 if each.refusal else FAR) for each in made.values() if np.isfinite(each.parameters).all()]
    far = max([*ends, float(data["x"].max())])
    lines = pandas.concat([_line(label, each, near) for label, each in made.items()], ignore_index=True)
    columns = ["low", "value", "high"]
    known = pandas.concat([data["accuracy"], *(lines[name] for name in columns)]).clip(0, 1).dropna()
    across = alt.X("x:Q", title=X_TITLES[x], scale=alt.Scale(type="log", nice=False, domain=[near, far]))
    margin = 0.04 * (known.max() - known.min()) or 0.02
    scale = alt.Scale(nice=False, domain=[max(0, known.min() - margin), min(1, known.max() + margin)])
    encoded = encodings(labels, [label for label in labels if label in made])
    y = {"title": "accuracy", "scale": scale}
    base = alt.Chart(lines).encode(x=across, color=encoded["color"])
    band = base.mark_area(opacity=0.1, clip=True).encode(y=alt.Y("low:Q", **y), y2="high:Q")
    tooltip = [alt.Tooltip("label:N", title="variant"), alt.Tooltip("x:Q", title=X_TITLES[x], format=",.3~s")]
    line = base.encode(y=alt.Y("value:Q", **y), strokeDash=encoded["strokeDash"])
    within = line.transform_filter("!datum.beyond").mark_line(strokeWidth=1.8, clip=True)
    beyond = line.transform_filter("datum.beyond").mark_line(strokeWidth=0.9, opacity=0.75, clip=True)
    points = alt.Chart(data[data["x"] > 0][["label", "seed", "step", "x", "accuracy"]]).mark_point(
        filled=True, size=14, opacity=0.4, clip=True
    )
    points = points.encode(
        x=across, y=alt.Y("accuracy:Q", **y), color=encoded["color"],
        tooltip=[*tooltip, "seed:N", "step:Q", alt.Tooltip("accuracy:Q", format=".3f")],
    )  # fmt: skip
    return alt.layer(band, points, within, beyond).properties(width=620, height=300)


def _line(label: str, each: ComputeFit, near: float) -> pandas.DataFrame:
    end = each.budget * (1 if each.refusal else FAR)
    x = np.geomspace(near, max(end, near), 100)
    value, low, high = each.at(x)
    if each.refusal:
        low = high = np.full_like(x, np.nan)
    # The point at the budget belongs to both parts of the line.
    within = np.minimum(x, each.budget) == x
    rows = pandas.DataFrame({"label": label, "x": x, "value": value, "low": low, "high": high, "beyond": ~within})
    rows[["value", "low", "high"]] = rows[["value", "low", "high"]].clip(0, 1)
    joint = rows[rows["beyond"]].head(1).assign(beyond=False)
    return pandas.concat([rows[~rows["beyond"]], joint, rows[rows["beyond"]]], ignore_index=True)
