"""Charts of a study: its search, the best of k trials, scores over problems and over compute. Data
frames in, Altair charts out."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas

from rpg.report import alternative_text
from rpg.report.curves import INTERVAL, interval_expression
from rpg.report.format import ACCURACY, MEASURED, accuracy
from rpg.report.theme import encodings

SHAPES = {"finished": "circle", "pruned": "cross", "failed": "triangle-down", "pending": "square"}
UNKNOWN = "datum.objective === null || !isFinite(datum.objective)"
"""Of a trial without an accuracy yet: grey, so that a proposal is seen before its first run has
ended."""
ACROSS = 3
"""Panels side by side."""
MARKED = 24
"""Most places of a curve that are all marked on its axis."""


def search(data: pandas.DataFrame, fields: Mapping[str, bool]) -> list[alt.LayerChart]:
    """Trials at the settings that they tried, a panel per variant, coloured by accuracy; a click
    opens the run.

    `data` has columns variant, trial, objective, state, best, link and the one or two `fields`,
    which say whether their axis is logarithmic. Where a variant has only one of them, accuracy is
    the height as well.
    """
    scores = data["objective"].dropna()
    scale = alt.Scale(
        scheme="viridis", domain=[scores.min(), scores.max()] if len(scores) else [0.0, 1.0]
    )
    legend = alt.Legend(title="accuracy", format=".2f", gradientLength=90)
    colour = alt.Color("objective:Q", scale=scale, legend=legend)
    states = [state for state in SHAPES if state in set(data["state"])]
    scale = alt.Scale(domain=states, range=[SHAPES[state] for state in states])
    grey = {"symbolFillColor": "#7F7F7F", "symbolStrokeColor": "#7F7F7F"}
    encoded = {
        "color": alt.condition(UNKNOWN, alt.value("#BBBBBB"), colour),
        "shape": alt.Shape("state:N", scale=scale, legend=alt.Legend(title=None, **grey)),
    }
    if data["link"].notna().any():
        encoded["href"] = alt.Href("link:N")
    height = {"shorthand": "objective:Q", "title": "accuracy", "scale": _scale(scores, False)}
    objective = alt.Tooltip("objective:Q", title="accuracy", format=ACCURACY)
    # The numbers of a logarithmic axis would touch, and its many lines hide the points.
    apart = alt.Axis(labelSeparation=5, grid=False)
    panels = []
    for variant, part in data.groupby("variant", sort=False):
        names = {
            field: f"at{place}" for place, field in enumerate(fields) if part[field].notna().any()
        }
        scales = {field: _scale(data[field], fields[field]) for field in names}
        spans = [
            {"shorthand": f"{name}:Q", "title": short(field), "scale": scales[field], "axis": apart}
            for field, name in names.items()
        ]
        if not spans:
            continue
        base = alt.Chart().transform_filter("isValid(datum.at0) || isValid(datum.at1)")
        across = spans[0]
        up = spans[1] if len(spans) > 1 else height
        base = base.encode(x=alt.X(**across), y=alt.Y(**up))
        ring = base.transform_filter("datum.best").mark_point(
            size=190, strokeWidth=2, color="#D55E00"
        )
        tooltip = [
            alt.Tooltip(f"{name}:Q", title=field, format=MEASURED) for field, name in names.items()
        ]
        points = base.mark_point(filled=True, size=62, opacity=0.95, invalid=None, clip=True)
        points = points.encode(
            **encoded, tooltip=["variant:N", "trial:Q", "state:N", objective, *tooltip]
        )
        part = part[["variant", "trial", "objective", "state", "best", "link", *names]].rename(
            columns=names
        )
        heading = alt.Title(str(variant), anchor="start", frame="group")
        told = alternative_text.sentence(f"Trials of {variant}", _best_trials(part))
        panels.append(
            alt.layer(
                ring, points, data=part, width=230, height=190, title=heading, description=told
            )
        )
    return panels


def _best_trials(trials: pandas.DataFrame) -> list[str]:
    """How many there are, and the best of them."""
    parts = [f"{len(trials)} trials"]
    for row in trials[trials["best"]].itertuples():
        parts.append(f"best: trial {row.trial}, accuracy {accuracy(row.objective)}")
    return parts


def whole(chart: Any) -> Any:
    """Panels of `search` as one figure; any other chart as it is."""
    spacing = {"row": 36, "column": 36}
    return alt.concat(*chart, columns=ACROSS, spacing=spacing) if isinstance(chart, list) else chart


def curves(
    data: pandas.DataFrame,
    labels: Sequence[str],
    *,
    x: str,
    y: str,
    log: bool = False,
    interpolate: str = "linear",
    points: pandas.DataFrame | None = None,
) -> alt.LayerChart:
    """A line per label with its 95 % interval where there is one, thin where it is `beyond` the
    data.

    `data` has columns label, x, mean, low, high, beyond; `points` (label, x, mean) are drawn small.
    """
    present = [label for label in labels if label in set(data["label"])]
    encoded = encodings(labels, present)
    for (
        channel
    ) in encoded.values():  # below: beside it, a narrow screen would have no room for the curves
        channel["legend"].orient, channel["legend"].columns = "bottom", 2
    parts = [data] if points is None else [data, points]
    heights = pandas.concat(
        [part.reindex(columns=["mean", "low", "high"]).stack() for part in parts]
    )
    ends = [
        float(min(part["x"].min() for part in parts)),
        float(max(part["x"].max() for part in parts)),
    ]
    if points is not None:  # whole, also at the edge
        ends = [ends[0] / 1.03, ends[1] * 1.03]
    scale = alt.Scale(type="log" if log else "linear", nice=False, domain=ends)
    places = sorted(data["x"].unique())
    few = {"values": places} if len(places) <= MARKED else {}
    axis = alt.Axis(format="~s" if log else ".3~g", labelSeparation=5, **few)
    across = alt.X("x:Q", title=x, scale=scale, axis=axis)
    up = {"title": y, "scale": _scale(heights, False)}
    base = alt.Chart(data).encode(x=across, color=encoded["color"])
    band = base.transform_filter("isValid(datum.low)")
    band = band.mark_area(opacity=0.1, clip=True, interpolate=interpolate)
    tooltip = [alt.Tooltip("label:N", title="variant"), alt.Tooltip("x:Q", title=x, format=",.3~s")]
    tooltip += [alt.Tooltip("mean:Q", format=ACCURACY), INTERVAL]
    line = base.transform_calculate(interval=interval_expression("low", "high", ACCURACY))
    line = line.mark_line(clip=True, interpolate=interpolate)
    width = alt.StrokeWidth(
        "beyond:N", scale=alt.Scale(domain=[False, True], range=[1.9, 0.8]), legend=None
    )
    line = line.encode(strokeDash=encoded["strokeDash"], strokeWidth=width, tooltip=tooltip)
    layers = [
        band.encode(y=alt.Y("low:Q", **up), y2="high:Q"),
        line.encode(y=alt.Y("mean:Q", **up)),
    ]
    if points is not None:
        small = alt.Chart(points).mark_point(filled=True, size=20, opacity=0.45, clip=True)
        layers.append(small.encode(x=across, y=alt.Y("mean:Q", **up), color=encoded["color"]))
    told = alternative_text.lines(y, data, across=x, show=accuracy)
    return alt.layer(*layers).properties(
        width=620, height=280 + 10 * len(present), description=told
    )


def short(field: str) -> str:
    """A dotted field as an axis is titled: `learning rate`."""
    return field.rpartition(".")[2].replace("_", " ")


def _scale(values: pandas.Series, log: bool) -> alt.Scale:
    """A domain around the values."""
    numbers = values.dropna().astype(float)
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    if log:
        factor = max((high / low) ** 0.06, 1.1)
        return alt.Scale(type="log", nice=False, domain=[low / factor, high * factor])
    margin = 0.06 * (high - low) or 0.02
    return alt.Scale(nice=False, zero=False, domain=[low - margin, high + margin])
