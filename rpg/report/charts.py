"""The charts of the report and of the dashboard. Frames in, Altair charts out; nothing here reads a database."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas
import vl_convert

from rpg.metrics import METRICS, Metric
from rpg.report.summary import MEAN
from rpg.report.theme import THEME, looks, style

BANDS = {"interval": ("low", "high"), "range": ("lowest", "highest")}
# What people can choose to be drawn around a mean.
AUTOMATIC, RANGE, SEEDS, NONE = "automatic", "lowest to highest seed", "every seed", "none"
X_TITLES = {
    "step": "training step",
    "optimizer_step": "optimizer step",
    "tokens": "response tokens",
    "hours": "hours of training",
}
REFERENCE = " @ "  # between a metric and the reference policy it is about
HOVERED = 20  # points of a curve that show their values
VERDICTS = {"better": "#009E73", "worse": "#D55E00", "within noise": "#7F7F7F", "not testable": "#BBBBBB"}


def title(name: str) -> str:
    """What a metric or benchmark is called above its panel."""
    metric, reference = metric_of(name), name.partition(REFERENCE)[2]
    if metric is not None:
        return metric.heading + (f" · reference: {reference}" if reference else "")
    return "Mean accuracy" if name == MEAN else name


def metric_of(name: str) -> Metric | None:
    """The metric that a panel shows."""
    return METRICS.get(name.partition(REFERENCE)[0])


def by_reference(data: pandas.DataFrame, references: Mapping[tuple[str, str], str]) -> pandas.DataFrame:
    """Curves (columns name, sweep, variant) with a panel of its own for each reference policy.

    A KL to the initial model and one to the policy of a minute ago have a name in common and nothing else.
    """
    about = [name for name in data["name"].unique() if (metric := METRICS.get(name)) and metric.of_reference]
    mine = data["name"].isin(about)
    if not mine.any():
        return data
    named = [
        f"{name}{REFERENCE}{references.get((sweep, variant), 'unknown')}" if of_reference else name
        for name, sweep, variant, of_reference in zip(
            data["name"], data["sweep"], data["variant"], mine, strict=True
        )
    ]
    return data.assign(name=named)


def panels_of(data: pandas.DataFrame, names: Sequence[str]) -> list[str]:
    """The panels there are data for, in the order of `names`; a metric may have one per reference."""
    there = list(dict.fromkeys(data["name"]))
    return [panel for name in names for panel in there if panel.partition(REFERENCE)[0] == name]


def band_for(seeds: int, score: bool) -> str | None:
    """Which band tells the truth legibly: that of an accuracy (`score`) knows the problems as well as the seeds.

    Student's interval over two seeds is nine times their distance: their range is shown instead.
    """
    if score:
        return "interval"
    return {0: None, 1: None, 2: "range"}.get(seeds, "interval")


def curves(
    data: pandas.DataFrame,
    labels: Sequence[str],
    *,
    name: str,
    x: str = "step",
    band: str | None = "interval",
    smooth: int = 1,
    points: bool = False,
    legend: bool | Sequence[str] = True,
    x_title: bool = True,
    width: int | str = 240,
    height: int = 170,
    linked: bool = False,
    each: pandas.DataFrame | None = None,
    mean: bool = True,
) -> alt.LayerChart:
    """One panel: mean over seeds against `x` with a band, one colour and dash per label.

    `data` has columns label, x, step, mean, low, high, lowest, highest, seeds. `points` marks every point (for
    checkpoints, of which there are few) and keeps their intervals in view. `smooth` > 1 draws the
    moving average over that many points strongly and the unsmoothed mean faintly; the title says so.
    `each`: the same columns for every seed (and `seed`), drawn as thin lines; not `mean`: these alone. `linked`: for
    `linked`, which moves all panels together. Quantities that span decades (gradient norms, KL) get a logarithmic axis.
    """
    data = _rounded(data)
    log = _log(data, name)
    domain = _domain(data, log, points and band == "interval")
    if log:  # an interval may reach below zero, which this axis does not have: it is cut at the bottom
        for column in ("low", "lowest"):
            data[column] = data[column].clip(lower=domain[0])
    low, high = BANDS[band or "interval"]
    kind = {"type": "log"} if log else {"type": "linear", "zero": False}
    scale = alt.Scale(**kind, domain=domain, nice=False)
    axis = alt.Axis(format=_format(name, log), tickCount=4 if log else 5)
    encoded = style(labels, legend)
    far = float(data["x"].max()) if len(data) else 1.0
    span = alt.Scale(nice=False, domain=[0.0, far]) if linked else alt.Scale(nice=False, domainMin=0)
    across = alt.X("x:Q", title=X_TITLES[x] if x_title else None, scale=span)
    base = alt.Chart().encode(x=across, color=encoded["color"])
    y = {"title": None, "scale": scale, "axis": axis}
    line = {"clip": True, "strokeWidth": 1.6, "strokeJoin": "round"}
    dash = encoded["strokeDash"]
    heading = title(name)
    pick = _pick() if linked else None

    def shown(opacity: float) -> dict[str, Any]:
        """Other labels than those that were clicked in the legend step back."""
        return {"opacity": alt.condition(pick, alt.value(opacity), alt.value(0.06 * opacity))} if pick else {}

    layers = []
    if band and mean:
        faint = min(
            0.1, 0.5 / max(1, data["label"].nunique())
        )  # many bands on top of each other stay grey, not black
        area = alt.Chart().mark_area(opacity=faint, clip=True, strokeWidth=0)
        layers.append(
            area.encode(
                x=across, y=alt.Y(f"{low}:Q", **y), y2=f"{high}:Q", color=encoded["color"], **shown(faint)
            )
        )
    if each is not None and len(each):
        own = alt.Chart(_rounded(each)[["label", "seed", "x", "mean"]])
        thin = own.mark_line(
            **line | ({"strokeWidth": 0.7, "opacity": 0.6} if mean else {"strokeWidth": 1.1})
        )
        layers.append(
            thin.encode(
                x=across, y=alt.Y("mean:Q", **y), color=encoded["color"], strokeDash=dash, detail="seed:N",
                **shown(0.6 if mean else 1.0),
            )
        )  # fmt: skip
    if not mean:
        pass
    elif smooth > 1:
        heading += f" · average of {smooth}"
        data["smooth"] = data.groupby("label", sort=False)["mean"].transform(
            lambda values: values.rolling(smooth, center=True, min_periods=1).mean()
        )
        below = base.mark_line(**line | {"strokeWidth": 0.8, "opacity": 0.35})
        layers.append(below.encode(y=alt.Y("mean:Q", **y), strokeDash=dash, **shown(0.35)))
        layers.append(base.mark_line(**line).encode(y=alt.Y("smooth:Q", **y), strokeDash=dash, **shown(1.0)))
    else:
        layers.append(base.mark_line(**line).encode(y=alt.Y("mean:Q", **y), strokeDash=dash, **shown(1.0)))
    # Wide invisible points: what the pointer finds, so that hovering does not need a steady hand. So wide that a
    # few of each curve are enough.
    dots = {"opacity": 1.0, "size": 22} if points else {"opacity": 0.0, "size": 90}
    dotted = alt.Chart().mark_point(filled=True, clip=True, **dots)
    if not points:
        place = data.groupby("label", sort=False).cumcount()
        data["hover"] = place % (place.max() // HOVERED + 1) == 0
        dotted = dotted.transform_filter("datum.hover")
    tooltip = [
        alt.Tooltip("label:N", title="variant"),
        alt.Tooltip("step:Q", title="step", format=",.0f"),
        alt.Tooltip("mean:Q", title="mean", format=".4g"),
        alt.Tooltip("low:Q", title="95 % interval from", format=".4g"),
        alt.Tooltip("high:Q", title="to", format=".4g"),
        alt.Tooltip("seeds:Q", title="seeds"),
    ]
    fade = shown(1.0) if points else {}
    layers.append(
        dotted.encode(x=across, y=alt.Y("mean:Q", **y), color=encoded["color"], tooltip=tooltip, **fade)
    )
    if linked:
        moved = alt.selection_interval(
            name="zoom",
            bind="scales",
            encodings=["x"],
            zoom="wheel![event.shiftKey]",  # the wheel alone still scrolls the page
        )
        near = alt.selection_point(
            name="near", on="pointermove", clear="pointerout", nearest=True, fields=["x"], empty=False
        )
        # All in one layer: Altair gives every one of them to all layers that have any.
        layers[-1] = layers[-1].add_params(moved, near, pick)
        there = base.transform_filter(near)
        layers.append(
            there.mark_rule(color="#888888", strokeWidth=1, clip=True).encode(color=alt.value("#888888"))
        )
        layers.append(
            there.mark_point(filled=True, size=44, clip=True).encode(y=alt.Y("mean:Q", **y), **shown(1.0))
        )
    # The data once, at the top: copied into no layer.
    heading = alt.Title(heading, anchor="start", frame="group")
    return alt.layer(*layers, data=data, width=width, height=height, title=heading)


def _pick() -> Any:
    return alt.selection_point(name=PICK, fields=["label"], bind="legend", toggle="true")


PICK, PICKED = "pick", "picked"
"""What is clicked in the legend, inside a chart of several panels, and as it is told outside: {labels: [...]}."""
_UNSEEN = ["name", "sweep", "variant", "width"]
PANEL_WIDTH, GAP, LABELS = 290, 48, 44
"""Pixels that a panel should have at least, those between two, and those of the first axis' labels."""


def linked(panels: Sequence[alt.LayerChart], labels: Sequence[str], most: int = 3) -> dict[str, Any]:
    """Panels as one Vega chart whose horizontal axes move together, with one legend that can be clicked.

    Vega-Lite's concatenations have a fixed width, so the chart is compiled here: panels become as wide as the page
    allows, and so many stand in a row, at most `most`, as are legible. `picked` makes it one that can be shown:
    it says which of the `labels` in the legend are clicked.
    """
    rows: dict[str, pandas.DataFrame] = {}
    parts, parameters = [], {}
    for place, panel in enumerate(panels):
        for number, part in enumerate((panel, *panel.layer)):
            if isinstance(part.data, pandas.DataFrame):  # put in below: the compiler needs no rows
                rows[f"rows-{place}-{number}"] = part.data
                part.data = alt.NamedData(name=f"rows-{place}-{number}")
        # Put together here: alt.concat copies every panel several times, which takes longer than all the rest.
        one = panel.to_dict(validate=False)
        for parameter in one.pop("params", []):
            known = parameters.setdefault(parameter["name"], {**parameter, "views": []})
            known["views"] += [f"{view}-{place}" for view in parameter["views"]]
            if parameter["name"] == PICK:  # all of them: `picked` leaves those that are
                known["value"] = [{"label": one} for one in labels]
        for layer in one["layer"]:
            if "name" in layer:
                layer["name"] += f"-{place}"
        parts.append({name: value for name, value in one.items() if name not in ("$schema", "config")})
    symbols: dict[str, Any] = {
        "orient": "top",
        "labelFontSize": 12,
        "labelLimit": 340,
        "symbolLimit": 64,
        "offset": 18,
    }
    spec = {
        "$schema": alt.SCHEMA_URL,
        "concat": parts,
        "columns": min(most, len(panels)),
        "bounds": "flush",
        "spacing": {"row": 64, "column": GAP},
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        "params": list(parameters.values()),
        "config": {**THEME, "legend": {**THEME.get("legend", {}), **symbols}},
    }
    found: dict[str, Any] = vl_convert.vegalite_to_vega(spec)
    for one in found["data"]:
        if one["name"] in rows:
            kept = rows[one["name"]].drop(columns=_UNSEEN, errors="ignore")
            one["values"] = json.loads(kept.to_json(orient="records"))
    if len(panels) == 1:  # its width has the name of the whole chart's
        text = json.dumps(found).replace('"signal": "width"', '"signal": "childWidth"')
        found = json.loads(re.sub(r"(?<=[ (,/*-])width(?=[ ),/*-])", "childWidth", text))
    room = "max(280, width - 16)"  # Streamlit sets the width to the page's
    entry = 56 + min(7 * max(map(len, labels), default=0), int(symbols["labelLimit"]))  # pixels of the legend
    sizes = [
        {"name": "across", "update": f"max(1, min({min(most, len(panels))}, floor({room} / {PANEL_WIDTH})))"},
        {"name": "childWidth", "update": f"floor(({room} - {LABELS} - {GAP} * (across - 1)) / across)"},
    ]
    found["signals"] = [one for one in found["signals"] if one["name"] != "childWidth"]
    found["layout"]["columns"] = {"signal": "across"}
    found["padding"] = dict.fromkeys(("left", "top", "right", "bottom"), 6)
    for legend in found.get("legends", []):
        legend["columns"] = {"signal": f"max(1, min(across, floor({room} / {entry})))"}
    for panel in found["marks"]:
        for mark in panel["marks"]:
            tooltip = mark.get("encode", {}).get("update", {}).get("tooltip")
            if (
                mark.get("name", "").endswith("voronoi") and tooltip
            ):  # Vega-Lite forgets its words, not its numbers
                tooltip["signal"] = tooltip["signal"].replace('datum["label"]', 'datum.datum["label"]')
    # In a group, because Streamlit takes a list `data` at the top for the rows of a Vega-Lite chart.
    inner = {
        name: found.pop(name)
        for name in ("data", "signals", "layout", "scales", "legends", "marks")
        if name in found
    }
    told = f"{{labels: {PICK}.label || []}}"
    inner["signals"].append(
        {"name": PICKED, "push": "outer", "on": [{"events": {"signal": PICK}, "update": told}]}
    )
    found["signals"] = [*sizes, {"name": PICKED, "value": {}}]
    found["params"] = [{"name": PICKED, "select": "point"}]  # what Streamlit listens to
    found["marks"] = [{"type": "group", **inner}]
    found["autosize"] = {"type": "pad"}
    return found | {"usermeta": {"embedOptions": {"renderer": "canvas"}}}


def picked(spec: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """A chart of `linked` in which these labels of its legend are clicked."""
    group = spec["marks"][0]
    data = [
        {**one, "values": [row for row in one.get("values", []) if row["values"][0] in labels]}
        if one["name"] == f"{PICK}_store"
        else one
        for one in group["data"]
    ]
    return spec | {"marks": [group | {"data": data}]}


def figure(
    panels: Sequence[alt.LayerChart], heading: str, lines: Sequence[str], columns: int = 4
) -> alt.ConcatChart:
    """Small multiples with one legend below, a heading, and what lines and bands mean."""
    legend = {"columns": _legend_columns(panels, columns), "labelFontSize": 12, "labelLimit": 320, "symbolLimit": 64,
              "offset": 24}  # fmt: skip
    # In one call: each of Altair's methods copies all panels. Flush bounds: the plots line up, whatever the width of
    # their axis labels.
    return alt.concat(
        *panels,
        columns=columns,
        bounds="flush",
        spacing={"row": 62, "column": 52},
        resolve=alt.Resolve(scale={"color": "shared", "strokeDash": "shared"}),
        title=alt.Title(heading, subtitle=list(lines), anchor="start", fontSize=15, offset=18),
        config=alt.Config(**THEME | {"legend": {**THEME.get("legend", {}), "orient": "bottom", **legend}}),
    )


def specification(chart: Any) -> dict[str, Any]:
    """What a chart is in Vega-Lite. It is ours: a test compares it with the schema, which takes as long as making it."""
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec


def still(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification of a `figure` as a picture needs it: without the points that only a pointer finds."""
    panels = [
        {**panel, "layer": [layer for layer in panel["layer"] if layer["mark"].get("opacity") != 0.0]}
        for panel in spec["concat"]
    ]
    return spec | {"concat": panels}


def _legend_columns(panels: Sequence[alt.LayerChart], columns: int) -> int:
    """So many entries in a row that the legend is no wider than the panels of a row."""
    labels = [str(one) for panel in panels for one in panel.data["label"].unique()]
    entry = 52 + min(7 * max(map(len, labels), default=0), 320)
    return max(1, min(columns, (columns * 292) // entry))


def explanation(
    data: pandas.DataFrame, bands: str = AUTOMATIC, smooth: int = 1, each: bool = False
) -> list[str]:
    """What the lines and bands of these curves are, in one line.

    `bands`: AUTOMATIC, RANGE, SEEDS or NONE. `each`: of two seeds training curves show both and no mean.
    """
    seeds = int(data["seeds"].max())
    up_to = "" if data["seeds"].min() == seeds else "up to "
    parts = [f"Lines: mean over {up_to}{seeds} seeds." if seeds > 1 else "One seed."]
    if bands == RANGE and seeds > 1:
        parts.append("Bands: lowest to highest seed.")
    if bands == SEEDS and seeds > 1:
        parts.append("Thin lines: every seed.")
    if bands == AUTOMATIC:
        over = "seeds and problems" if seeds > 1 else "problems"
        both = "both seeds, no mean" if each else "from one seed to the other"
        training = {1: "", 2: f"; training: {both}"}.get(seeds, "; training: 95 % interval over seeds")
        parts.append(f"Bands: accuracy: 95 % interval over {over}{training}.")
    if smooth > 1:
        parts.append(
            f"Strong lines of training curves: moving average of {smooth} points; faint: unsmoothed."
        )
    width = data["width"].max() if "width" in data else 1
    if pandas.notna(width) and width > 1:
        parts.append(f"Points of training curves are averages of {width:.0f} steps.")
    return [" ".join(parts)]


def differences(table: pandas.DataFrame, baseline: str, width: int | str = 460) -> alt.LayerChart:
    """Paired differences to the baseline with 95 % intervals, best first, coloured by verdict.

    `table` has columns label, difference, difference_low, difference_high, p_corrected, verdict.
    """
    data = table.sort_values("difference", ascending=False)
    order = data["label"].tolist()
    y = alt.Y("label:N", sort=order, title=None, axis=alt.Axis(labelLimit=320, domain=False, ticks=False))
    colour = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values())),
        legend=alt.Legend(
            title=None, orient="bottom", symbolType="circle", symbolSize=120, values=_seen(data)
        ),
    )
    tooltip = [
        alt.Tooltip("label:N", title="variant"),
        alt.Tooltip("difference:Q", title="difference", format="+.4f"),
        alt.Tooltip("difference_low:Q", title="95 % interval from", format="+.4f"),
        alt.Tooltip("difference_high:Q", title="to", format="+.4f"),
        alt.Tooltip("p_corrected:Q", title="p, corrected", format=".3g"),
        alt.Tooltip("verdict:N"),
    ]
    bounds = [*data["difference_low"].dropna(), *data["difference_high"].dropna(), *data["difference"], 0.0]
    air = 0.04 * (max(bounds) - min(bounds)) or 0.01
    # Few seeds that differ much give intervals that are longer than a difference of shares can be.
    scale = alt.Scale(domain=[max(min(bounds) - air, -1.0), min(max(bounds) + air, 1.0)], nice=False)
    axis = alt.Axis(labelExpr="format(datum.value * 100, '+.3~g')", tickCount=6)
    zero = (
        alt.Chart(pandas.DataFrame({"x": [0.0]}))
        .mark_rule(color="#444444", strokeDash=[3, 3])
        .encode(x="x:Q")
    )
    base = alt.Chart(data)
    heading = f"Difference to {baseline} in accuracy, percentage points (paired, 95 %, for all together)"
    rule = base.mark_rule(strokeWidth=2.2, clip=True).encode(
        x=alt.X("difference_low:Q", title=heading, axis=axis, scale=scale),
        x2="difference_high:Q",
        y=y,
        color=colour,
    )
    point = base.mark_point(filled=True, size=75, opacity=1).encode(
        x="difference:Q", y=y, color=colour, tooltip=tooltip
    )
    return alt.layer(zero, rule, point).properties(width=width, height=alt.Step(24))


def grid(data: pandas.DataFrame, across: str, down: str, width: int | str = 560) -> alt.LayerChart:
    """A heat map of accuracy with its numbers written in, the best cell framed.

    `data` has columns across, down, accuracy, low, high, variants; values that are numbers are in their order.
    """
    best = data["accuracy"] == data["accuracy"].max()
    # Streamlit draws once before the data is there: without their domains the axes would keep an undefined value.
    places = {name: alt.Scale(domain=_ordered(data[name])) for name in ("across", "down")}
    x = alt.X("across:N", title=across, scale=places["across"], axis=alt.Axis(labelAngle=0, labelLimit=200))
    y = alt.Y("down:N", title=down or None, scale=places["down"], axis=alt.Axis(labelLimit=260))
    low, high = float(data["accuracy"].min()), float(data["accuracy"].max())
    colour = alt.Color(
        "accuracy:Q",
        scale=alt.Scale(scheme="viridis", domain=[low, high if high > low else low + 1e-6]),
        legend=alt.Legend(title=None, format=".2f"),
    )
    tooltip = [
        alt.Tooltip("across:N", title=across),
        *([alt.Tooltip("down:N", title=down)] if down else []),
        alt.Tooltip("accuracy:Q", format=".4f"),
        alt.Tooltip("low:Q", title="95 % interval from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
        alt.Tooltip("variants:Q"),
    ]
    data = data.assign(best=best, dark=data["accuracy"] < (low + high) / 2)
    base = alt.Chart().encode(x=x, y=y)
    cells = base.mark_rect().encode(color=colour, tooltip=tooltip)
    frame = base.transform_filter("datum.best").mark_rect(filled=False, stroke="#D55E00", strokeWidth=4)
    number = (
        base.transform_filter("isValid(datum.accuracy)")
        .mark_text(fontSize=12)
        .encode(
            text=alt.Text("accuracy:Q", format=".3f"),
            color=alt.condition("datum.dark", alt.value("#FFFFFF"), alt.value("#111111")),
        )
    )
    layers = alt.layer(cells, frame, number, data=data, width=width, height=alt.Step(46))
    return layers.resolve_scale(color="independent")


def frontier(
    data: pandas.DataFrame,
    labels: Sequence[str],
    *,
    name: str,
    x: str,
    width: int | str = 400,
    height: int = 300,
) -> alt.LayerChart:
    """Accuracy against a KL, a path per label with the place on the path written at its points.

    `data` has columns label, place, x, accuracy, lowest, highest, seeds; `name` is what the place is a value of.
    """
    data = data.sort_values("place").assign(text=lambda frame: frame["place"].map("{:g}".format))
    encoded = style(labels, False)
    # Streamlit draws once before the data is there: without domains that would be a warning for every axis.
    near, far = float(data["x"].min()), float(data["x"].max()) or 1.0
    if near > far / 3:  # far from the initial model: with it, all points would stand on top of each other
        ends = [near - 0.08 * (far - near), far + 0.08 * (far - near)]
    else:
        ends = [min(0.0, near), 1.08 * far]
    across = alt.X("x:Q", title=x, scale=alt.Scale(nice=False, domain=ends))
    up = alt.Y(
        "accuracy:Q", title=None, scale=alt.Scale(nice=False, domain=_around(data["lowest"], data["highest"]))
    )
    base = alt.Chart().encode(x=across, y=up, color=encoded["color"])
    tooltip = [
        alt.Tooltip("label:N", title="variant"),
        alt.Tooltip("place:Q", title=name, format="~g"),
        alt.Tooltip("x:Q", title="KL, nats", format=".4g"),
        alt.Tooltip("accuracy:Q", format=".4f"),
        alt.Tooltip("lowest:Q", title="lowest seed", format=".4f"),
        alt.Tooltip("highest:Q", title="highest seed", format=".4f"),
        alt.Tooltip("seeds:Q"),
    ]
    seeds = alt.Chart().mark_rule(opacity=0.35, strokeWidth=1.2)
    low = up.copy()
    low.shorthand = "lowest:Q"
    spread = seeds.encode(x=across, y=low, y2="highest:Q", color=encoded["color"])
    line = base.mark_line(strokeWidth=1.6, strokeJoin="round").encode(
        order="place:Q", strokeDash=encoded["strokeDash"]
    )
    points = base.mark_point(filled=True, size=48, opacity=1).encode(tooltip=tooltip)
    words = base.mark_text(dx=6, dy=-7, align="left", fontSize=10).encode(text="text:N")
    return alt.layer(spread, line, points, words, data=data, width=width, height=height)


def over_k(
    data: pandas.DataFrame,
    labels: Sequence[str],
    *,
    heading: str,
    width: int | str = 400,
    height: int = 260,
    legend: bool = False,
) -> alt.LayerChart:
    """pass@k or maj@k against k with 95 % intervals, a line per label. `data` has columns label, k, mean, low, high."""
    encoded = style(labels, legend)
    ticks = sorted(int(k) for k in data["k"].unique())
    across = alt.X(
        "k:Q",
        title="k",
        scale=alt.Scale(type="log", base=2, nice=False, domain=[ticks[0], max(ticks[-1], ticks[0] + 1)]),
        axis=alt.Axis(values=ticks, format="d"),
    )
    base = alt.Chart().encode(x=across, color=encoded["color"])
    scale = alt.Scale(nice=False, zero=False, domain=_around(data["low"], data["high"]))
    up = alt.Y("mean:Q", title=None, scale=scale)
    band = base.mark_area(opacity=0.1).encode(y=alt.Y("low:Q", scale=scale, title=None), y2="high:Q")
    line = base.mark_line(strokeWidth=1.6).encode(y=up, strokeDash=encoded["strokeDash"])
    points = base.mark_point(filled=True, size=30, opacity=1).encode(
        y=up,
        tooltip=[
            alt.Tooltip("label:N", title="variant"),
            alt.Tooltip("k:Q"),
            alt.Tooltip("mean:Q", format=".4f"),
            alt.Tooltip("low:Q", title="95 % interval from", format=".4f"),
            alt.Tooltip("high:Q", title="to", format=".4f"),
            alt.Tooltip("seeds:Q"),
        ],
    )
    title = alt.Title(heading, anchor="start", frame="group")
    return alt.layer(band, line, points, data=data, width=width, height=height, title=title)


def _around(low: pandas.Series, high: pandas.Series) -> list[float]:
    """The range of shares with some air."""
    bottom, top = float(low.min()), float(high.max())
    air = 0.08 * (top - bottom) or 0.02
    return [max(0.0, bottom - air), min(1.02, top + air)]


def _ordered(values: pandas.Series) -> list[str]:
    """Numbers by size, then words in their order."""
    words = list(dict.fromkeys(values))
    numbers = dict(zip(words, pandas.to_numeric(pandas.Series(words), errors="coerce"), strict=True))
    return sorted(words, key=lambda word: (np.isnan(numbers[word]), np.nan_to_num(numbers[word])))


def audit(rows: pandas.DataFrame, labels: Sequence[str]) -> alt.HConcatChart:
    """Bias and noise of losses against the drift of the policy, with and without clipping.

    `rows` has columns label, drift, bias, noise, clipped; `labels` give the colours, as in every other chart.
    """
    data = rows.assign(clip=np.where(rows["clipped"], "with its clip", "without clip"))
    shown = [label for label in labels if label in set(data["label"])]
    colour = alt.Scale(domain=shown, range=[looks(labels)[label][0] for label in shown])
    dash = alt.Scale(domain=["without clip", "with its clip"], range=[[1, 0], [4, 3]])
    symbols = {
        "title": None,
        "orient": "bottom",
        "symbolType": "stroke",
        "symbolSize": 400,
        "labelLimit": 260,
    }
    legend, grey = alt.Legend(columns=4, **symbols), alt.Legend(symbolStrokeColor="#333333", **symbols)
    base = alt.Chart(data).encode(
        x=alt.X("drift:Q", title="drift from old (standard deviations of a logit)"),
        color=alt.Color("label:N", scale=colour, legend=legend),
        tooltip=[
            "label:N",
            "clip:N",
            "drift:Q",
            *(alt.Tooltip(f"{name}:Q", format=".3g") for name in ("bias", "noise")),
        ],
    )
    place = {"anchor": "start", "frame": "group"}

    def panel(title: str, y: alt.Y) -> alt.LayerChart:
        # Points in a layer of their own: with the line's they take the stroke out of the legend of dashes.
        dashes = alt.StrokeDash("clip:N", scale=dash, legend=grey)
        line = base.mark_line(strokeWidth=1.6).encode(y=y, strokeDash=dashes)
        points = base.mark_point(filled=True, size=40, opacity=1).encode(y=y)
        return alt.layer(line, points, width=385, height=230, title=alt.Title(title, **place))

    return alt.hconcat(
        panel("Bias of the expected gradient", alt.Y("bias:Q", title=None, axis=alt.Axis(format="%"))),
        panel("Noise of one sample", alt.Y("noise:Q", title=None)),
        spacing=40,
    )


def _seen(data: pandas.DataFrame) -> list[str]:
    return [name for name in VERDICTS if name in set(data["verdict"])]


def _log(data: pandas.DataFrame, name: str) -> bool:
    values = data[["mean", "lowest"]].stack().dropna()
    if not len(values) or not (values > 0).all():
        return False
    metric = metric_of(name)
    scale = metric.scale if metric else "linear"
    return scale == "log" or (scale == "decades" and bool(values.max() / values.min() > 30))


def _domain(data: pandas.DataFrame, log: bool, whole: bool) -> Any:
    """The range of seeds with some air; a `whole` interval is in view, else one over few seeds is cut."""
    columns = ["mean", "lowest", "highest", *(("low", "high") if whole else ())]
    values = data[columns].to_numpy(float).ravel()
    values = values[np.isfinite(values)]
    if not len(values):
        return alt.Undefined
    low, high = values.min(), values.max()
    if log:
        factor = max(1.1, (high / low) ** 0.05)
        return [float(low / factor), float(high * factor)]
    air = 0.06 * (high - low) or 0.05 * max(abs(high), 1e-3)
    # Shares and other non-negative quantities do not get a negative axis from the air alone.
    bottom = max(0.0, low - air) if low >= 0 else low - air
    return [float(bottom), float(high + air)]


def _format(name: str, log: bool) -> Any:
    metric = metric_of(name)
    if metric is None or not metric.axis or (metric.scale != "linear" and not log):
        return alt.Undefined
    return metric.axis


def _rounded(data: pandas.DataFrame, digits: int = 5) -> pandas.DataFrame:
    """Floats to so many significant digits: a chart shows no more, and its file becomes a third as large."""
    found = data.copy()
    for name in data.select_dtypes("float"):
        values = data[name].to_numpy()
        known = np.isfinite(values) & (values != 0)
        decimals = digits - 1 - np.floor(np.log10(np.abs(values[known])))
        # Powers of ten above 22 are not exact in binary; so small a number is as good as itself.
        scale = 10.0 ** np.clip(decimals, -22, 22)
        values = values.copy()
        values[known] = np.round(values[known] * scale) / scale
        found[name] = values
    return found


def labelled(data: pandas.DataFrame, labels: Mapping[Any, str]) -> pandas.DataFrame:
    """Give each row the label of its (sweep, variant), or of its variant."""
    if labels and isinstance(next(iter(labels)), tuple):
        return data.assign(label=[labels[key] for key in zip(data["sweep"], data["variant"], strict=True)])
    return data.assign(label=data["variant"].map(labels))
