"""Charts of a study: its search, what more trials would find, and scores over problems. Data frames in, Altair charts out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas

from rpg.report.theme import encodings

SHAPES = {"finished": "circle", "pruned": "cross", "failed": "triangle-down", "pending": "square"}
ACROSS = 3  # panels side by side


def search(data: pandas.DataFrame, fields: Sequence[str], log: Sequence[bool]) -> alt.ConcatChart:
    """Trials at the settings that they tried, a panel per variant, coloured by accuracy; a click opens the run.

    `data` has columns variant, trial, objective, state, best, link and the one or two `fields`; with one, accuracy is the
    height as well.
    """
    columns = ["variant", "trial", "objective", "state", "best", "link"]
    named = data[columns].assign(**{f"at{place}": data[field] for place, field in enumerate(fields)})
    known = named["objective"].dropna()
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    colour = alt.Color(
        "objective:Q",
        scale=alt.Scale(scheme="viridis", domain=[low, max(high, low + 1e-6)]),
        legend=alt.Legend(title="accuracy", format=".2f"),
    )
    states = [state for state in SHAPES if state in set(named["state"])]
    shape = alt.Shape(
        "state:N",
        scale=alt.Scale(domain=states, range=[SHAPES[state] for state in states]),
        legend=alt.Legend(title=None, symbolFillColor="#7F7F7F", symbolStrokeColor="#7F7F7F"),
    )
    x = alt.X("at0:Q", title=_short(fields[0]), scale=_scale(named["at0"], log[0]))
    heights = named["at1"] if len(fields) > 1 else known
    y = alt.Y(
        "at1:Q" if len(fields) > 1 else "objective:Q",
        title=_short(fields[1]) if len(fields) > 1 else "accuracy",
        scale=_scale(heights, len(fields) > 1 and log[1]),
    )
    tooltip = [
        alt.Tooltip("variant:N"),
        alt.Tooltip("trial:Q"),
        alt.Tooltip("state:N"),
        alt.Tooltip("objective:Q", title="accuracy", format=".4f"),
        *(alt.Tooltip(f"at{place}:Q", title=field, format=".4~g") for place, field in enumerate(fields)),
    ]
    panels = []
    for variant, part in named.groupby("variant", sort=False):
        base = alt.Chart().encode(x=x, y=y)
        ring = base.transform_filter("datum.best").mark_point(size=190, strokeWidth=2, color="#D55E00", clip=True)
        points = base.mark_point(filled=True, size=62, opacity=0.95, clip=True)
        points = points.encode(color=colour, shape=shape, tooltip=tooltip, href="link:N")
        heading = alt.Title(str(variant), anchor="start", frame="group")
        panels.append(alt.layer(points, ring, data=part, width=230, height=190, title=heading))
    return alt.concat(*panels, columns=ACROSS, spacing={"row": 36, "column": 36})


def sensitivity(data: pandas.DataFrame, fields: Sequence[str], log: Sequence[bool]) -> alt.ConcatChart:
    """Accuracy of finished trials against each field, a row of panels per field: how sharply a variant wants its setting."""
    finished = data[data["state"] == "finished"]
    y = alt.Y("objective:Q", title="accuracy", scale=_scale(finished["objective"], False))
    panels = []
    for place, field in enumerate(fields):
        for variant in dict.fromkeys(data["variant"]):
            part = finished[finished["variant"] == variant][["trial", "objective", "best", "link"]]
            part = part.assign(at=finished[field]).dropna(subset=["at"])
            x = alt.X("at:Q", title=_short(field), scale=_scale(finished[field], log[place]))
            colour = alt.condition("datum.best", alt.value("#D55E00"), alt.value("#0072B2"))
            tooltip = ["trial:Q", alt.Tooltip("at:Q", title=field, format=".4~g"), alt.Tooltip("objective:Q", format=".4f")]
            points = alt.Chart(part).mark_point(filled=True, size=34, opacity=0.85, clip=True)
            points = points.encode(x=x, y=y, color=colour, href="link:N", tooltip=tooltip)
            heading = alt.Title(str(variant), anchor="start", frame="group")
            panels.append(points.properties(width=180, height=130, title=heading))
    across = min(4, data["variant"].nunique()) or 1
    return alt.concat(*panels, columns=across, spacing={"row": 30, "column": 30})


def curves(
    data: pandas.DataFrame, labels: Sequence[str], *, x: str, y: str, step: bool = False, whole: bool = False
) -> alt.LayerChart:
    """A line per label with its 95 % interval where there is one. `data` has columns label, x, mean, low, high; `whole`: x
    takes whole numbers; `step`: the line holds its value up to the next x."""
    encoded = encodings(labels, [label for label in labels if label in set(data["label"])])
    known = data[["mean", "low", "high"]].stack()
    axis = alt.Axis(format="d", tickMinStep=1) if whole else alt.Axis()
    across = alt.X("x:Q", title=x, axis=axis, scale=alt.Scale(nice=False, domain=[*map(float, data["x"].agg(["min", "max"]))]))
    up = {"title": y, "scale": _scale(known, False)}
    shape: dict[str, Any] = {"interpolate": "step-after"} if step else {}
    base = alt.Chart().encode(x=across, color=encoded["color"])
    band = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.1, clip=True, **shape)
    band = band.encode(y=alt.Y("low:Q", **up), y2="high:Q")
    tooltip = [alt.Tooltip("label:N", title="variant"), alt.Tooltip("x:Q", title=x, format=".3~g")]
    tooltip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("mean", "low", "high")]
    line = base.mark_line(strokeWidth=1.7, clip=True, **shape)
    line = line.encode(y=alt.Y("mean:Q", **up), strokeDash=encoded["strokeDash"], tooltip=tooltip)
    return alt.layer(band, line, data=data, width=620, height=280)


def _short(field: str) -> str:
    return field.rpartition(".")[2].replace("_", " ")


def _scale(values: pandas.Series, log: bool) -> alt.Scale:
    """A domain around the values: Streamlit draws once before it has the data."""
    known = values.dropna().astype(float)
    if known.empty:
        return alt.Scale(domain=[0.0, 1.0])
    low, high = float(known.min()), float(known.max())
    if log and low > 0:
        factor = max((high / low) ** 0.06, 1.1)
        return alt.Scale(type="log", nice=False, domain=[low / factor, high * factor])
    margin = 0.06 * (high - low) or 0.02
    return alt.Scale(nice=False, zero=False, domain=[low - margin, high + margin])
