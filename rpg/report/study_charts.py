"""Charts of a study: its search, the best of k trials, scores over problems and over compute. Data frames in, Altair charts
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas

from rpg.report.theme import encodings

SHAPES = {"finished": "circle", "pruned": "cross", "failed": "triangle-down", "pending": "square"}
ACROSS = 3
"""Panels side by side."""


def search(data: pandas.DataFrame, fields: Mapping[str, bool]) -> alt.ConcatChart:
    """Trials at the settings that they tried, a panel per variant, coloured by accuracy; a click opens the run.

    `data` has columns variant, trial, objective, state, best, link and the one or two `fields`, which say whether their axis
    is logarithmic; with one, accuracy is the height as well.
    """
    axes = [
        alt.X(f"at{place}:Q", title=short(field), scale=_scale(data[field], log))
        for place, (field, log) in enumerate(fields.items())
    ]
    known = data["objective"].dropna()
    height = alt.Y("objective:Q", title="accuracy", scale=_scale(known, False))
    if len(axes) > 1:
        height = alt.Y(axes[1].shorthand, title=axes[1].title, scale=axes[1].scale)
    ends = [known.min(), known.max()] if len(known) else [0.0, 1.0]
    scale = alt.Scale(scheme="viridis", domain=ends)
    colour = alt.Color("objective:Q", scale=scale, legend=alt.Legend(title="accuracy", format=".2f"))
    states = [state for state in SHAPES if state in set(data["state"])]
    scale = alt.Scale(domain=states, range=[SHAPES[state] for state in states])
    grey = {"symbolFillColor": "#7F7F7F", "symbolStrokeColor": "#7F7F7F"}
    encoded = {
        "color": colour,
        "shape": alt.Shape("state:N", scale=scale, legend=alt.Legend(title=None, **grey)),
    }
    if data["link"].notna().any():
        encoded["href"] = alt.Href("link:N")
    names = {field: f"at{place}" for place, field in enumerate(fields)}
    tooltip = [alt.Tooltip(f"{name}:Q", title=field, format=".4~g") for field, name in names.items()]
    accuracy = alt.Tooltip("objective:Q", title="accuracy", format=".4f")
    columns = ["variant", "trial", "objective", "state", "best", "link", *fields]
    panels = []
    for variant, part in data[columns].rename(columns=names).groupby("variant", sort=False):
        base = alt.Chart().encode(x=axes[0], y=height)
        ring = base.transform_filter("datum.best").mark_point(size=190, strokeWidth=2, color="#D55E00")
        points = base.mark_point(filled=True, size=62, opacity=0.95)
        points = points.encode(**encoded, tooltip=["variant:N", "trial:Q", "state:N", accuracy, *tooltip])
        heading = alt.Title(str(variant), anchor="start", frame="group")
        panels.append(alt.layer(points, ring, data=part, width=230, height=190, title=heading))
    return alt.concat(*panels, columns=ACROSS, spacing={"row": 36, "column": 36})


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
    """A line per label with its 95 % interval where there is one. `data` has columns label, x, mean, low, high; `points`
    (label, x, mean) are drawn small."""
    encoded = encodings(labels, [label for label in labels if label in set(data["label"])])
    parts = [data] if points is None else [data, points]
    known = pandas.concat([part.reindex(columns=["mean", "low", "high"]).stack() for part in parts])
    ends = [float(min(part["x"].min() for part in parts)), float(data["x"].max())]
    scale = alt.Scale(type="log" if log else "linear", nice=False, domain=ends)
    whole = (data["x"] % 1 == 0).all() and not log
    axis = alt.Axis(format="~s") if log else alt.Axis(format="d", tickMinStep=1) if whole else alt.Axis()
    across = alt.X("x:Q", title=x, scale=scale, axis=axis)
    up = {"title": y, "scale": _scale(known, False)}
    base = alt.Chart(data).encode(x=across, color=encoded["color"])
    band = base.transform_filter("isValid(datum.low)").mark_area(
        opacity=0.1, clip=True, interpolate=interpolate
    )
    tooltip = [alt.Tooltip("label:N", title="variant"), alt.Tooltip("x:Q", title=x, format=",.3~s")]
    tooltip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("mean", "low", "high")]
    line = base.mark_line(strokeWidth=1.7, clip=True, interpolate=interpolate)
    layers = [
        band.encode(y=alt.Y("low:Q", **up), y2="high:Q"),
        line.encode(y=alt.Y("mean:Q", **up), strokeDash=encoded["strokeDash"], tooltip=tooltip),
    ]
    if points is not None:
        small = alt.Chart(points).mark_point(filled=True, size=14, opacity=0.45, clip=True)
        layers.append(small.encode(x=across, y=alt.Y("mean:Q", **up), color=encoded["color"]))
    return alt.layer(*layers).properties(width=620, height=280)


def short(field: str) -> str:
    """A dotted field as an axis is titled: `learning rate`."""
    return field.rpartition(".")[2].replace("_", " ")


def _scale(values: pandas.Series, log: bool) -> alt.Scale:
    """A domain around the values: Streamlit draws once before it has the data."""
    known = values.dropna().astype(float)
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if log:
        factor = max((high / low) ** 0.06, 1.1)
        return alt.Scale(type="log", nice=False, domain=[low / factor, high * factor])
    margin = 0.06 * (high - low) or 0.02
    return alt.Scale(nice=False, zero=False, domain=[low - margin, high + margin])
