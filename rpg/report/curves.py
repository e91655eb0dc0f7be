"""Panels of curves, and the figure that puts them side by side: data frames in, Altair charts
out."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np
import pandas

from rpg.metrics import BELOW_ROUNDING, METRICS, Metric
from rpg.report import alternative_text, resolution
from rpg.report import format as written
from rpg.report.selection import MEAN
from rpg.report.theme import THEME, encodings
from rpg.store.queries import WHOLE

BANDS = {"interval": ("low", "high"), "range": ("lowest", "highest")}
X_TITLES = {
    "step": "training step",
    "optimizer_step": "optimizer step",
    "tokens": "response tokens",
    "hours": "hours of training",
}
REFERENCE = " @ "  # separates a metric from the reference policy that it is measured against
BANDED = 4  # training curves with bands in one panel: more would be a curtain
HOVERED = 20  # points of a curve that show their values


def metric_of(panel: str) -> Metric | None:
    return METRICS.get(panel.partition(REFERENCE)[0])


def title(panel: str) -> str:
    """The heading of a panel, which is named after a metric or a benchmark."""
    metric = metric_of(panel)
    reference = panel.partition(REFERENCE)[2]
    if metric is None:
        return "Mean accuracy" if panel == MEAN else panel
    if reference:
        return f"{metric.heading} · reference: {_estimated(reference)}"
    return metric.heading


def is_share(panel: str) -> bool:
    """Whether a panel shows an accuracy: that of a benchmark, their mean, or one of training."""
    return metric_of(panel) is None or panel.endswith("accuracy")


def number_text(panel: str) -> Callable[[float], str]:
    """How a panel's numbers are written."""
    return written.accuracy if is_share(panel) else written.measured


def number_format(panel: str) -> str:
    """The same for charts."""
    return written.ACCURACY if is_share(panel) else written.MEASURED


def _estimated(reference: str) -> str:
    """A reference, and how the KL to it was estimated; imported runs do not say."""
    if reference == "unknown" or reference.endswith(WHOLE):
        return reference
    return f"{reference}, k3"


def by_reference(
    data: pandas.DataFrame, references: Mapping[tuple[str, str], str]
) -> pandas.DataFrame:
    """Curves (columns name, sweep, variant) with a separate panel for each reference policy.

    A KL to the initial model and a KL to a recent policy share a name, but cannot be compared.
    """
    about = [
        name
        for name in data["name"].unique()
        if (metric := METRICS.get(name)) and metric.of_reference
    ]
    if not about:
        return data
    rows = data["name"].isin(about)
    keys = zip(data.loc[rows, "sweep"], data.loc[rows, "variant"], strict=True)
    named = data["name"].copy()
    named[rows] = named[rows] + [REFERENCE + references.get(key, "unknown") for key in keys]
    return data.assign(name=named)


def folded(
    data: pandas.DataFrame, names: Sequence[str], scores: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The panels of `names` that show something, and lines in place of metrics of which every
    curve, of every seed, keeps one and the same value to four digits."""
    present = panels_of(data, names)
    constants = {}
    for name in (name for name in present if name not in scores):
        part = data.loc[data["name"] == name, ["mean", "lowest", "highest"]].to_numpy(float)
        low, high = np.nanmin(part), np.nanmax(part)
        if high - low <= 1e-4 * max(abs(high), abs(low)) or max(abs(low), abs(high)) < 1e-9:
            rows = data[data["name"] == name]
            number = resolution.remark(rows) or number_text(name)(float(np.nanmedian(part)))
            constants[name] = f"{title(name).replace(' · ', ', ')}: {number}"
    drawn = [name for name in present if name not in constants]
    if not constants or not drawn:
        return present, []
    text = f"The same for all runs at every step, and not drawn: {'; '.join(constants.values())}."
    return drawn, textwrap.wrap(text, 160)  # as wide as a figure of four panels


def panels_of(data: pandas.DataFrame, names: Sequence[str]) -> list[str]:
    """The panels for which there are data, in the order of `names`; a metric may have one per
    reference."""
    present = list(dict.fromkeys(data["name"]))
    return [
        panel
        for name in names
        for panel in present
        if name in (panel, panel.partition(REFERENCE)[0])
    ]


@dataclass(frozen=True)
class Style:
    """How a panel looks, whatever it shows."""

    legend: bool | Sequence[str] = True
    """Whether there is one, or the labels that it lists."""
    height: int = 170
    zoom: bool = False
    """Whether it can be dragged and zoomed."""


PLAIN = Style()


def panel(
    data: pandas.DataFrame,
    labels: Sequence[str],
    *,
    name: str,
    x: str = "step",
    band: str | None = "interval",
    points: bool = False,
    each: pandas.DataFrame | None = None,
    style: Style = PLAIN,
) -> alt.LayerChart:
    """One panel: means over seeds against `x` with a band, one colour and dash pattern per label.

    `data` has columns label, x, step, mean, low, high, lowest, highest, seeds. `points` marks every
    point (for checkpoints, of which there are few) and keeps their intervals in view. `each`: the
    same columns for every seed (and `seed`), drawn instead of the mean. Quantities that span
    decades (gradient norms, KL) get a logarithmic axis.
    """
    data = _rounded(data)
    log = _is_log(data, name)
    domain = _domain(data, log, whole=points and band == "interval")
    channels = encodings(labels, style.legend)
    axes = _Axes(
        across=_across(data, x, points),
        up=_up(name, log, domain),
        colour=channels["color"],
        dash=channels["strokeDash"],
        log=log,
    )
    layers = []
    if band:
        layers.append(_band(data, axes, band, points))
    layers.append(_lines(axes, each))
    if not points:
        place = data.groupby("label", sort=False).cumcount()
        data["hover"] = place % (place.max() // HOVERED + 1) == 0
    layers.append(_dots(data, axes, points, style.zoom, name))
    heading, _, reference = title(name).partition(" · ")
    subtitle = " · ".join(filter(None, [reference, resolution.remark(data)]))
    shown = alt.Title(
        heading, subtitle=subtitle or alt.Undefined, anchor="start", frame="group", limit=300
    )
    # The data once, at the top, and not in every layer.
    told = alternative_text.lines(title(name), data, across=X_TITLES[x], show=number_text(name))
    return alt.layer(
        *layers, data=data, width=240, height=style.height, title=shown, description=told
    )


@dataclass(frozen=True)
class _Axes:
    """The channels that the layers of a panel share."""

    across: alt.X
    up: Mapping[str, Any]
    """Of alt.Y, whatever column it shows."""
    colour: Any
    dash: Any
    log: bool


def _across(data: pandas.DataFrame, x: str, points: bool) -> alt.X:
    """The axis of steps, or of what was spent until then."""
    last = (float(data["x"].max()) if len(data) else 0.0) or 1.0
    edge = 0.02 * last if points else 0.0  # marks at the first and the last step are not cut in two
    span = alt.Scale(nice=False, domain=[-edge, last + edge])
    ticks = alt.Axis(tickCount=8, tickMinStep=1 if x == "step" else 0)
    return alt.X("x:Q", title=X_TITLES[x], scale=span, axis=ticks)


def _up(name: str, log: bool, domain: Any) -> dict[str, Any]:
    """Scale and axis of a metric."""
    kind = {"type": "log"} if log else {"type": "linear", "zero": False}
    scale = alt.Scale(**kind, domain=domain, nice=False)
    metric = metric_of(name)
    declared = metric.axis if metric and (metric.scale == "linear" or log) else ""
    decades = math.log10(domain[1] / domain[0]) if log and isinstance(domain, list) else 0.0
    # From two decades on only powers of ten: lines at all their multiples would make a grey
    # curtain.
    ticks = 4 if log else 5
    if decades >= 2:
        ticks = min(4, int(decades))
    axis = alt.Axis(format=declared or alt.Undefined, tickCount=ticks)
    return {"title": None, "scale": scale, "axis": axis}


def _band(data: pandas.DataFrame, axes: _Axes, band: str, points: bool) -> alt.Chart:
    """The area between two bounds. Adds columns to `data` where the bounds are of two kinds."""
    low, high = BANDS[band]
    two = data["seeds"].eq(2)
    if band == "interval" and not points and two.any():
        data["bottom"] = data[low].mask(two, data["lowest"])
        data["top"] = data[high].mask(two, data["highest"])
        low, high = "bottom", "top"  # as where all have two seeds
    if axes.log and band == "interval" and bool((data[low] <= 0).any()):
        # A logarithmic axis has no room for an interval that reaches zero.
        low, high = BANDS["range"]
    # Many overlapping bands stay grey, not black.
    faint = min(0.1, 0.5 / max(1, data["label"].nunique()))
    area = alt.Chart().mark_area(opacity=faint, clip=True, strokeWidth=0)
    bottom = alt.Y(f"{low}:Q", **axes.up)
    return area.encode(x=axes.across, y=bottom, y2=f"{high}:Q", color=axes.colour)


def _lines(axes: _Axes, each: pandas.DataFrame | None) -> alt.Chart:
    """The means, or the seeds apart."""
    line = {"clip": True, "strokeWidth": 1.6, "strokeJoin": "round"}
    up = alt.Y("mean:Q", **axes.up)
    if each is None or not len(each):
        means = alt.Chart().encode(x=axes.across, color=axes.colour).mark_line(**line)
        return means.encode(y=up, strokeDash=axes.dash)
    seeds = alt.Chart(_rounded(each)[["label", "seed", "x", "mean"]])
    return seeds.mark_line(**line | {"strokeWidth": 1.1}).encode(
        x=axes.across, y=up, color=axes.colour, strokeDash=axes.dash, detail="seed:N"
    )


def _dots(data: pandas.DataFrame, axes: _Axes, points: bool, zoom: bool, name: str) -> alt.Chart:
    """The points; or wide invisible ones for the pointer to find, so that hovering needs no steady
    hand: a few of each curve suffice."""
    marks = {"opacity": 1.0, "size": 22} if points else {"opacity": 0.0, "size": 90}
    dots = alt.Chart().mark_point(filled=True, clip=True, **marks)
    if not points:
        dots = dots.transform_filter("datum.hover")
    shown = number_format(name)
    dots = dots.transform_calculate(interval=interval_expression("low", "high", shown))
    tooltip = [
        alt.Tooltip("label:N", title="variant"),
        alt.Tooltip("step:Q", title="step", format=",.0f"),
        _number(data, shown),
        INTERVAL,
        alt.Tooltip("seeds:Q", title="seeds"),
    ]
    link = {"href": alt.Href("link:N")} if "link" in data else {}
    up = alt.Y("mean:Q", **axes.up)
    dots = dots.encode(x=axes.across, y=up, color=axes.colour, tooltip=tooltip, **link)
    if zoom:  # by the wheel with Shift: alone it still scrolls the page
        by_hand = {"bind": "scales", "encodings": ["x"], "zoom": "wheel![event.shiftKey]"}
        dots = dots.add_params(alt.selection_interval(**by_hand))
    return dots


def _number(data: pandas.DataFrame, shown: str) -> alt.Tooltip:
    """The mean, in words where it is below rounding (then a column of `data`)."""
    below = resolution.is_below(data)
    if not below.any():
        return alt.Tooltip("mean:Q", title="mean", format=shown)
    numbers = data["mean"].map(written.measured)
    data["shown"] = numbers.mask(below, BELOW_ROUNDING)
    return alt.Tooltip("shown:N", title="mean")


def panels(
    data: pandas.DataFrame,
    labels: Sequence[str],
    names: Sequence[str],
    scores: Sequence[str] = (),
    x: str = "step",
    each: pandas.DataFrame | None = None,
    style: Style = PLAIN,
) -> list[alt.LayerChart]:
    """A :func:`panel` for each of `names` that has data; `scores` show accuracies, few of a run and
    never smoothed.

    `each` are the training curves of two seeds, whose mean would say nothing that the two do not
    say. A legend that is on lists the labels with data.
    """
    seeds = int(data["seeds"].max())
    if style.legend is True:
        present = set(data["label"])
        style = replace(style, legend=[label for label in labels if label in present])
    drawn = []
    for name in panels_of(data, names):
        score = name in scores
        apart = None if each is None or score else each[each["name"] == name]
        part = data[data["name"] == name]
        band = _kind_of_band(part, seeds, score, apart is not None)
        drawn.append(
            panel(part, labels, name=name, x=x, band=band, points=score, each=apart, style=style)
        )
    return drawn


def _kind_of_band(data: pandas.DataFrame, seeds: int, score: bool, each: bool) -> str | None:
    """Which of `BANDS` a panel has, of curves over up to so many seeds; None: none. `each`: its
    seeds are drawn apart."""
    if score:  # an accuracy has an interval over problems, too
        return "interval"
    if each or seeds == 1 or data["label"].nunique() > BANDED:
        return None
    # Student's interval over two seeds is nine times as wide as their distance.
    return "range" if seeds == 2 else "interval"


def figure(
    panels: Sequence[alt.LayerChart], heading: str, lines: Sequence[str], columns: int = 4
) -> alt.ConcatChart:
    """Small multiples with one legend below, a heading, and `lines` that explain what is drawn."""
    legend = {"columns": _legend_columns(panels, columns), "labelFontSize": 12, "labelLimit": 320}
    legend |= {"symbolLimit": 64, "offset": 24}
    # In one call, since each of Altair's methods copies all panels. With flush bounds the plots are
    # aligned, whatever the width of their axis labels.
    return alt.concat(
        *panels,
        columns=columns,
        bounds="flush",
        spacing={"row": 62, "column": 52},
        resolve=alt.Resolve(scale={"color": "shared", "strokeDash": "shared"}),
        title=alt.Title(heading, subtitle=list(lines), anchor="start", fontSize=15, offset=18),
        config=alt.Config(**THEME | {"legend": {"orient": "bottom", **legend}}),
    )


def still(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification of a `figure` for a still image: without the invisible points for the
    pointer."""
    panels = []
    for panel in spec["concat"]:
        visible = [layer for layer in panel["layer"] if layer["mark"].get("opacity") != 0.0]
        panels.append(panel | {"layer": visible})
    return spec | {"concat": panels}


def _legend_columns(panels: Sequence[alt.LayerChart], columns: int) -> int:
    """Entries per row of the legend, which must not be wider than a row of panels."""
    labels = [str(label) for panel in panels for label in panel.data["label"].unique()]
    entry = 52 + min(7 * max(map(len, labels), default=0), 320)
    return max(1, min(columns, (columns * 292) // entry))


def explanation(
    data: pandas.DataFrame, drawn: Sequence[str], scores: Sequence[str] = (), each: bool = False
) -> list[str]:
    """The meaning of the lines and bands in the panels that are `drawn`, as one line. `each`: the
    training curves of two seeds are shown without their mean."""
    data = data[data["name"].isin(drawn)]
    seeds = int(data["seeds"].max())
    parts = dict(iter(data.groupby("name", sort=False)))
    trainings = {name: part for name, part in parts.items() if name not in scores}
    has_scores = len(trainings) < len(parts)

    lines = []
    if seeds > 1 and (has_scores or not each):
        up_to = "" if data["seeds"].min() == seeds else "up to "
        lines.append(f"mean over {up_to}{seeds} seeds")
    if each and trainings:
        lines.append("training: both seeds, no mean" if has_scores else "both seeds, no mean")
    sentences = [f"Lines: {'; '.join(lines)}." if lines else "One seed."]

    bands = []
    if has_scores:
        over = "seeds and problems" if seeds > 1 else "problems"
        bands.append(f"accuracy: 95 % interval over {over}")
    kinds = {name: _kind_of_band(part, seeds, False, each) for name, part in trainings.items()}
    banded = {name: part for name, part in trainings.items() if kinds[name]}
    if banded:
        bands.append(f"training: {_training_bands(banded, seeds)}")
    if bands:
        sentences.append(f"Bands: {'; '.join(bands)}.")

    width = data["width"].max() if "width" in data else 1
    if pandas.notna(width) and width > 1:
        sentences.append(f"Points of training curves are averages of {width:.0f} steps.")
    return [" ".join(sentences)]


def _training_bands(banded: Mapping[str, pandas.DataFrame], seeds: int) -> str:
    """What the bands of these training curves show."""
    if seeds == 2:
        return "the range between the two seeds"
    text = "95 % interval over seeds"
    if any(part["seeds"].eq(2).any() for part in banded.values()):
        text += ", or the range between two seeds where only two are left"
    if any(_is_log(part, name) and (part["low"] <= 0).any() for name, part in banded.items()):
        text += "; on a logarithmic axis, from lowest to highest seed where it would reach zero"
    return text


def undrawn(data: pandas.DataFrame, labels: Sequence[str], x: str) -> str:
    """Which of these labels have no point after step 0, in one line; empty if all have."""
    missing = [label for label in labels if label not in set(data.loc[data["step"] > 0, "label"])]
    return f"No point after step 0 over {X_TITLES[x]}: {', '.join(missing)}." if missing else ""


INTERVAL = alt.Tooltip("interval:N", title="95 % interval")
"""Of a chart that calculates `interval` by `interval_expression`."""


def interval_expression(low: str, high: str, number_format: str) -> str:
    """An expression of Vega that writes two columns as rpg.report.format.interval does."""
    bounds = [f"format(datum.{name}, '{number_format}')" for name in (low, high)]
    known = f"isValid(datum.{low}) && isValid(datum.{high})"
    return f"{known} ? '[' + {bounds[0]} + ', ' + {bounds[1]} + ']' : ''"


def _is_log(data: pandas.DataFrame, name: str) -> bool:
    values = data[["mean", "lowest"]].stack().dropna()
    if not len(values) or not (values > 0).all():
        return False
    metric = metric_of(name)
    scale = metric.scale if metric else "linear"
    return scale == "log" or (scale == "decades" and bool(values.max() / values.min() > 30))


def _domain(data: pandas.DataFrame, log: bool, whole: bool) -> Any:
    """The range over seeds with a margin; a `whole` interval is inside it, other intervals over few
    seeds are clipped."""
    columns = ["mean", "lowest", "highest", *(("low", "high") if whole else ())]
    values = data[columns].to_numpy(float).ravel()
    values = values[np.isfinite(values)]
    if not len(values):
        return alt.Undefined
    low, high = values.min(), values.max()
    if log:
        factor = max(1.1, (high / low) ** 0.05)
        return [float(low / factor), float(high * factor)]
    margin = 0.06 * (high - low) or 0.05 * max(abs(high), 1e-3)
    # The margin alone gives no non-negative quantity a negative axis, except to show points at zero
    # whole.
    bottom = max(0.0, low - margin) if low >= 0 and not whole else low - margin
    return [float(bottom), float(high + margin)]


def _rounded(data: pandas.DataFrame, digits: int = 5) -> pandas.DataFrame:
    """Floats rounded to significant digits: a chart shows no more, and its file becomes a third as
    large."""
    rounded = data.copy()
    floats = list(data.select_dtypes("float"))
    rounded[floats] = data[floats].map(lambda value: float(f"{value:.{digits}g}"))
    return rounded
