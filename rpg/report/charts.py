"""Charts of results other than curves: data frames in, Altair charts out."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas

from rpg.report import alternative_text
from rpg.report.curves import INTERVAL, interval_expression
from rpg.report.format import (
    ACCURACY,
    MEASURED,
    accuracy,
    measured,
    p_value,
    points,
    with_interval,
)
from rpg.report.summary import Summary
from rpg.report.theme import COLOURS, encodings, line_styles
from rpg.report.verdicts import REAL

LETTER = 7.0
"""Pixels of a letter in a name beside its interval, about."""
LONGEST = 34
"""Letters of such a name; a longer one is cut off, and whole in its tooltip."""
MOST_ENDS = 20
"""Paths whose names have room below each other beside a chart; more of them need a legend."""


def differences(summary: Summary, links: Mapping[str, str] = {}) -> alt.LayerChart | None:
    """A forest plot: paired differences from the baseline with 95 % intervals, best first, in the
    variants' colours; None where nothing is compared.

    Filled: called better or worse by the paired test; hollow: within noise, or not tested. `links`:
    label -> where a click on its marks leads.
    """
    data = summary.compared_rows.sort_values("difference", ascending=False)
    if data.empty:
        return None
    verdicts = [f"{points(row.difference)}, {row.verdict}" for row in data.itertuples()]
    sizes = [
        with_interval(row.difference, row.difference_low, row.difference_high, points)
        for row in data.itertuples()
    ]
    data = data.assign(real=data["verdict"].isin(REAL), words=verdicts, points=sizes)
    data["p"] = data["p_corrected"].map(p_value)
    if links:
        data["link"] = data["label"].map(links)
    styles = line_styles(list(summary.series.values()))
    colours = alt.Scale(domain=list(styles), range=[colour for colour, _ in styles.values()])
    colour = alt.Color("label:N", scale=colours, legend=None)
    y = alt.Y("label:N", sort=data["label"].tolist(), title=None, axis=None)
    tooltip = [
        alt.Tooltip("label:N", title="variant"),
        alt.Tooltip("points:N", title="points, 95 % interval"),
        alt.Tooltip("p:N", title="p, corrected"),
        alt.Tooltip("verdict:N"),
        alt.Tooltip("seed_accuracies:N", title="accuracy of each seed"),
    ]
    if summary.collapses:
        tooltip.append(alt.Tooltip("collapsed:N", title="collapsed seeds"))
    bounds = [
        *data["difference_low"].dropna(),
        *data["difference_high"].dropna(),
        *data["difference"],
        0.0,
    ]
    margin = 0.04 * (max(bounds) - min(bounds)) or 0.01
    # The names have a column of their own, of at most half the width on a narrow screen.
    longest = max(len(text) for text in (*data["label"], *verdicts))
    column = alt.expr(f"min({LETTER * min(longest, LONGEST) + 16:g}, 0.5 * width)")
    scale = alt.Scale(
        domain=[min(bounds) - margin, max(bounds) + margin],
        range=[column, alt.expr("width")],
        nice=False,
    )
    axis = alt.Axis(labelExpr="datum.value ? format(datum.value * 100, '+.3~g') : '0'", tickCount=5)
    base = alt.Chart(data)
    zero = alt.Chart(pandas.DataFrame({"zero": [0.0]})).mark_rule(
        color="#444444", strokeDash=[3, 3]
    )
    zero = zero.encode(x=alt.X("zero:Q", scale=scale))
    heading = [
        f"Points of accuracy above {summary.baseline_label}",
        "(paired, 95 %, for all variants at once)",
    ]
    x = alt.X("difference_low:Q", title=heading, axis=axis, scale=scale)
    rule = base.mark_rule(strokeWidth=2.2, clip=True).encode(
        x=x, x2="difference_high:Q", y=y, color=colour
    )
    link = {"href": alt.Href("link:N")} if links else {}
    marks = {"x": "difference:Q", "y": y, "color": colour, "tooltip": tooltip, **link}
    ring = base.mark_point(size=90, opacity=1, strokeWidth=2.2, fill="white").encode(**marks)
    real = (
        base.transform_filter("datum.real")
        .mark_point(filled=True, size=90, opacity=1)
        .encode(**marks)
    )
    told = alternative_text.sentence(
        f"Points of accuracy above {summary.baseline_label}",
        [f"{words}: {label}" for words, label in zip(verdicts, data["label"], strict=True)],
    )
    text = base.encode(x=alt.value(0), y=y, **link)
    name = text.mark_text(align="left", limit=column, dy=-7, fontSize=11.5, color="#333333")
    verdict = text.mark_text(align="left", limit=column, dy=8, fontSize=10.5, color="#555555")
    texts = [name.encode(text="label:N"), verdict.encode(text="words:N")]
    return alt.layer(zero, rule, ring, real, *texts).properties(
        width=460, height=alt.Step(38), description=told
    )


def frontier(data: pandas.DataFrame, labels: Sequence[str], *, name: str, x: str) -> alt.LayerChart:
    """Accuracy against a KL: a path per label, with the place on the path written at the points,
    where there is room.

    `data` has columns label, place, x, accuracy, lowest, highest, seeds; the places are values of
    `name`.
    """
    data = data.sort_values("place").assign(text=lambda frame: frame["place"].map("{:g}".format))
    encoded = encodings(labels, False)
    near = float(data["x"].min())
    far = float(data["x"].max()) or 1.0
    ends = [min(0.0, near), 1.08 * far]
    if (
        near > far / 3
    ):  # far from the initial model, with which in view points would lie on top of each other
        ends = [near - 0.08 * (far - near), far + 0.08 * (far - near)]
    named = len(labels) <= MOST_ENDS
    longest = min(max(map(len, labels), default=0), LONGEST)
    column = f"min({LETTER * longest + 20:g}, 0.4 * width)" if named else "0"
    inner = alt.Scale(nice=False, domain=ends, range=[0, alt.expr(f"width - {column}")])
    across = alt.X("x:Q", title=x, scale=inner)
    scale = alt.Scale(nice=False, domain=_around(data["lowest"], data["highest"]))
    up = alt.Y("accuracy:Q", title=None, scale=scale)
    base = alt.Chart().encode(x=across, y=up, color=encoded["color"])
    tooltip = [
        alt.Tooltip("label:N", title="variant"),
        alt.Tooltip("place:Q", title=name, format="~g"),
        alt.Tooltip("x:Q", title="KL, nats", format=MEASURED),
        alt.Tooltip("accuracy:Q", format=ACCURACY),
        alt.Tooltip("lowest:Q", title="lowest seed", format=ACCURACY),
        alt.Tooltip("highest:Q", title="highest seed", format=ACCURACY),
        alt.Tooltip("seeds:Q"),
    ]
    seeds = alt.Chart().mark_rule(opacity=0.35, strokeWidth=1.2)
    low = up.copy()
    low.shorthand = "lowest:Q"
    spread = seeds.encode(x=across, y=low, y2="highest:Q", color=encoded["color"])
    line = base.mark_line(strokeWidth=1.6, strokeJoin="round")
    line = line.encode(order="place:Q", strokeDash=encoded["strokeDash"])
    points = base.mark_point(filled=True, size=48, opacity=1).encode(tooltip=tooltip)
    apart = _far_apart(data, 0.06 * (ends[1] - ends[0]), 0.06 * (scale.domain[1] - scale.domain[0]))
    words = base.properties(data=data[apart]).mark_text(dx=6, dy=-7, align="left", fontSize=10)
    told = alternative_text.lines("Accuracy", data, y="accuracy", across=x, show=accuracy)
    names = _names_at_ends(data, across, up, encoded["color"], column) if named else []
    return alt.layer(
        spread,
        line,
        points,
        words.encode(text="text:N"),
        *names,
        data=data,
        width=400,
        height=300,
        description=told,
    )


def _names_at_ends(
    data: pandas.DataFrame, across: alt.X, up: alt.Y, colour: alt.Color, column: str
) -> list[alt.Chart]:
    """The name of each path in a column at the right, and a line from it to the path's end."""
    low, high = up["scale"].domain
    last = data.loc[data.groupby("label")["place"].idxmax()]
    beside = spread_out(last["accuracy"].tolist(), least=0.045 * (high - low), highest=high)
    last = last.assign(beside=beside, edge=across["scale"].domain[1])
    height = up.copy()
    height.shorthand = "beside:Q"
    base = alt.Chart(last).encode(color=colour)
    leader = base.mark_rule(strokeWidth=0.7, opacity=0.6)
    leader = leader.encode(x=across, x2="edge:Q", y=up, y2="beside:Q")
    name = base.mark_text(align="left", dx=4, fontSize=10.5, limit=alt.expr(f"{column} - 6"))
    start = alt.value(alt.expr(f"width - {column}"))
    return [leader, name.encode(x=start, y=height, text="label:N")]


def spread_out(values: Sequence[float], least: float, highest: float) -> list[float]:
    """The values, moved as little as it takes for them to lie `least` apart, and below `highest`
    if they have room there."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    placed = [values[place] for place in order]
    for place in range(1, len(placed)):
        placed[place] = max(placed[place], placed[place - 1] + least)
    ceiling = highest
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], ceiling)
        ceiling = placed[place] - least
    moved = dict(zip(order, placed, strict=True))
    return [moved[place] for place in range(len(values))]


def _far_apart(data: pandas.DataFrame, wide: float, high: float) -> list[bool]:
    """Which points can be written at without one number over another; the ends of paths come
    first."""
    kept: dict[Any, tuple[float, float]] = {}
    for row in data.sort_values("place", ascending=False).itertuples():
        if all(abs(row.x - x) > wide or abs(row.accuracy - y) > high for x, y in kept.values()):
            kept[row.Index] = row.x, row.accuracy
    return [index in kept for index in data.index]


def over_k(
    data: pandas.DataFrame, labels: Sequence[str], *, heading: str, legend: bool = False
) -> alt.LayerChart:
    """pass@k or maj@k against k with 95 % intervals, a line per label. `data` has columns label, k,
    mean, low, high."""
    encoded = encodings(labels, legend)
    ticks = sorted(int(k) for k in data["k"].unique())
    span = alt.Scale(
        type="log", base=2, nice=False, domain=[ticks[0], max(ticks[-1], ticks[0] + 1)]
    )
    across = alt.X("k:Q", title="k", scale=span, axis=alt.Axis(values=ticks, format="d"))
    base = alt.Chart().encode(x=across, color=encoded["color"])
    scale = alt.Scale(nice=False, zero=False, domain=_around(data["low"], data["high"]))
    up = alt.Y("mean:Q", title=None, scale=scale)
    band = base.mark_area(opacity=0.1).encode(
        y=alt.Y("low:Q", scale=scale, title=None), y2="high:Q"
    )
    line = base.mark_line(strokeWidth=1.6).encode(y=up, strokeDash=encoded["strokeDash"])
    tooltip = [alt.Tooltip("label:N", title="variant"), "k:Q"]
    tooltip += [alt.Tooltip("mean:Q", format=ACCURACY), INTERVAL, "seeds:Q"]
    marks = base.transform_calculate(interval=interval_expression("low", "high", ACCURACY))
    marks = marks.mark_point(filled=True, size=30, opacity=1).encode(y=up, tooltip=tooltip)
    title = alt.Title(heading, anchor="start", frame="group")
    told = alternative_text.lines(heading, data, x="k", across="k", show=accuracy)
    return alt.layer(
        band, line, marks, data=data, width=400, height=260, title=title, description=told
    )


def histogram(tokens: Mapping[str, Sequence[float]], labels: Sequence[str], name: str) -> alt.Chart:
    """The distribution of a quantity of tokens per label, as outlines over common bins; a ratio on
    a logarithmic axis."""
    every = {label: np.asarray(part, float) for label, part in tokens.items() if len(part)}
    values = {label: part[np.isfinite(part)] for label, part in every.items()}
    together = np.concatenate([*values.values(), np.zeros(0)])
    log = name == "ratio"
    together = np.log10(np.maximum(together, 1e-9)) if log else together
    edges = np.histogram_bin_edges(together, bins=40)
    rows = []
    for label, part in values.items():
        counts, _ = np.histogram(np.log10(np.maximum(part, 1e-9)) if log else part, edges)
        shares = [*(counts / len(every[label])), 0.0]
        places = 10**edges if log else edges
        rows += [(label, float(x), float(share)) for x, share in zip(places, shares, strict=True)]
    scale = alt.Scale(type="log" if log else "linear", nice=False, zero=False)
    title = "importance ratio" if log else name
    x = alt.X("x:Q", title=title, scale=scale, axis=alt.Axis(format="~g", tickCount=6))
    y = alt.Y("share:Q", title="share of tokens", axis=alt.Axis(format="~%", tickCount=4))
    data = pandas.DataFrame(rows, columns=["label", "x", "share"])
    line = alt.Chart(data).mark_line(interpolate="step-after", strokeWidth=1.6)
    middles = [
        f"{label} {measured(float(np.median(part)))}" for label, part in values.items() if len(part)
    ]
    told = alternative_text.sentence(f"Distribution of {title} over tokens, medians", middles)
    encoded = line.encode(x=x, y=y, **encodings(labels, False))
    return encoded.properties(width=400, height=180, description=told)


def _around(low: pandas.Series, high: pandas.Series) -> list[float]:
    bottom = float(low.min())
    top = float(high.max())
    margin = 0.08 * (top - bottom) or 0.02
    return [max(0.0, bottom - margin), min(1.02, top + margin)]


def audited(report: str, losses: Sequence[str]) -> pandas.DataFrame:
    """Rows of an audit's report (JSON) about these losses of ours, for the token-level objective
    that each claims."""
    try:
        content = json.loads(report)
        rows = pandas.DataFrame(content["rows"])
        claimed = {loss["name"]: loss["divergence"] for loss in content["losses"]}
        token_rows = rows[
            rows["loss"].isin(losses) & (rows["source"] == "rpg") & (rows["level"] == "token")
        ]
        return token_rows[token_rows["divergence"] == token_rows["loss"].map(claimed)]
    except (KeyError, TypeError, ValueError):
        return pandas.DataFrame()


def audit(rows: pandas.DataFrame, labels: Sequence[str]) -> list[alt.LayerChart]:
    """Bias and noise of losses against the drift of the policy, with and without clipping.

    `rows` has columns label, drift, bias, noise, clipped; `labels` give the colours, as in every
    other chart.
    """
    data = rows.assign(clip=np.where(rows["clipped"], "with its clip", "without clip"))
    dash = alt.Scale(domain=["without clip", "with its clip"], range=[[1, 0], [4, 3]])
    symbol = {"symbolType": "stroke", "symbolSize": 400, "symbolStrokeColor": "#333333"}
    legend = alt.Legend(title=None, orient="bottom", **symbol)
    numbers = [alt.Tooltip(f"{name}:Q", format=".3g") for name in ("bias", "noise")]
    few = alt.Axis(tickCount=6, labelSeparation=5)
    base = alt.Chart(data).encode(
        x=alt.X("drift:Q", title="drift from old (standard deviations of a logit)", axis=few),
        color=encodings(labels, False)["color"],
        tooltip=["label:N", "clip:N", "drift:Q", *numbers],
    )

    def panel(title: str, name: str, axis: alt.Axis) -> alt.LayerChart:
        y = alt.Y(f"{name}:Q", title=None, axis=axis)
        # Points in a separate layer: together with the lines they take the stroke out of the legend
        # of dashes.
        dashes = alt.StrokeDash("clip:N", scale=dash, legend=legend)
        line = base.mark_line(strokeWidth=1.6).encode(y=y, strokeDash=dashes)
        points = base.mark_point(filled=True, size=40, opacity=1).encode(y=y)
        heading = alt.Title(title, anchor="start", frame="group")
        at_ends = data.assign(label=data["label"] + ", " + data["clip"])
        told = alternative_text.lines(title, at_ends, "drift", name, "drift")
        return alt.layer(line, points, width=385, height=270, title=heading, description=told)

    return [
        panel("Bias of the expected gradient", "bias", alt.Axis(format="%")),
        panel("Noise of one sample", "noise", alt.Axis()),
    ]


def field_figure(rows: str) -> alt.HConcatChart:
    """`rpg audit --field` (JSON) as an interactive page: how far off each loss is at drift, as
    shipped (filled) and without clip or mask (hollow), beside its noise. The legend selects
    trainers; a rectangle among the points selects losses.
    """
    data = pandas.read_json(io.StringIO(rows), orient="records")
    data["name"] = data["trainer"] + ": " + data["loss"]
    trainer = alt.selection_point(fields=["trainer"], bind="legend")
    chosen = alt.selection_interval(encodings=["x", "y"])
    words = ["trainer", "version", "loss", "asked", "follows", "origin"]
    figures = [("token", ".1%"), ("response", ".1%"), ("bare", ".1%"), ("noise", ".2f")]
    base = alt.Chart(data).encode(
        color=alt.Color("trainer:N", title="trainer (click to select)"),
        tooltip=[*words, *(alt.Tooltip(f"{name}:Q", format=form) for name, form in figures)],
    )
    off = alt.X("token:Q", title="off the gradient that was asked for", axis=alt.Axis(format="%"))
    names = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=420))
    lines = base.transform_filter(trainer).transform_filter(chosen)
    faint = alt.condition(trainer, alt.value(0.9), alt.value(0.08))
    scatter = base.mark_point(filled=True, size=70).encode(x=off, y=alt.Y("noise:Q"), opacity=faint)
    scatter = scatter.add_params(trainer, chosen).properties(
        width=330, height=330, title="Off and noisy"
    )
    dots = lines.mark_point(filled=True, size=70).encode(x=off, y=names)
    hollow = lines.mark_point(size=45).encode(x=alt.X("bare:Q"), y=names)
    filled = "Filled: as shipped; hollow: without clip or mask"
    return alt.hconcat(scatter, alt.layer(dots, hollow).properties(width=330, title=filled))


AGAINST = {
    "response": "whole responses",
    "token": "tokens, prefixes of μ",
    "started": "tokens of π₀",
}


def corrections_figure(rows: Sequence[Mapping[str, Any]]) -> alt.HConcatChart:
    """Corrections for samples of another policy (`rpg audit --field`): a panel per mismatch, a
    point per correction, filled for a trainer's default. Points in the same place stand side by
    side; the legend selects trainers.
    """
    data = pandas.DataFrame(rows)
    data = data[np.isfinite(data["noise"])]
    place = data.round({"response": 2, "noise": 1}).groupby(["mismatch", "response", "noise"])[
        "trainer"
    ]
    beside = 7 * (place.cumcount() - (place.transform("size") - 1) / 2)
    filled = data["setting"].str.startswith("default").astype(int)
    data = data.assign(filled=filled, beside=beside)
    trainer = alt.selection_point(fields=["trainer"], bind="legend")
    labels = list(AGAINST.values())
    choices = alt.binding_radio(options=list(AGAINST), labels=labels, name="Off the gradient of: ")
    against = alt.param("against", value="response", bind=choices)
    colours = alt.Scale(domain=list(dict.fromkeys(data["trainer"])), range=[*COLOURS, "#7A4B1E"])
    colour = {"scale": colours, "legend": alt.Legend(orient="bottom", columns=3, title=None)}
    words = ["trainer", "version", "setting", "correction", "origin", "default"]
    figures = [(name, ".1%") for name in ("scale", *AGAINST)] + [("noise", ".2f")]
    points = alt.Chart(data).mark_point(filled=True, size=70, xOffset=alt.expr("datum.beside"))
    points = points.transform_calculate(off="datum[against]").encode(
        x=alt.X("noise:Q", scale=alt.Scale(zero=False, padding=35)),
        y=alt.Y(
            "off:Q",
            title="off the gradient",
            axis=alt.Axis(format="%"),
            scale=alt.Scale(type="sqrt"),
        ),
        color=alt.Color("trainer:N", **colour),
        stroke=alt.Stroke("trainer:N", **colour),
        fillOpacity=alt.FillOpacity("filled:Q", scale=None),
        opacity=alt.condition(trainer, alt.value(1), alt.value(0.1)),
        tooltip=[*words, *(alt.Tooltip(f"{name}:Q", format=form) for name, form in figures)],
    )
    panels = []
    for apart in data["mismatch"].unique():
        panel = points.transform_filter(f"datum.mismatch == {apart}")
        title = f"Sampler {apart:g} standard deviations away"
        panels.append(panel.properties(width=265, height=300, title=title))
    return alt.hconcat(panels[0].add_params(trainer, against), *panels[1:])
