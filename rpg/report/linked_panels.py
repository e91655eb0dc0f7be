"""Panels of curves as one Vega chart: their horizontal axes move together, and they share a legend that can be clicked.

Concatenations of Vega-Lite have a fixed width, so the chart is compiled here and its layout replaced: panels fill the width
of the page, with as many in a row as are legible.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas
import vl_convert

from rpg.report.theme import THEME

PICK, PICKED = "pick", "picked"
"""The selection in the legend: inside a chart of several panels, and as it is reported outside ({labels: [...]})."""
_UNUSED = ["name", "sweep", "variant", "width"]
PANEL_WIDTH, GAP, AXIS_LABELS = 290, 48, 44
"""Pixels: the least width of a panel, the gap between two panels, and the labels of the first axis."""
_PAGE_WIDTH = "max(280, width - 16)"  # Streamlit sets the width to that of the page
_LEGEND: dict[str, Any] = {
    "orient": "top", "labelFontSize": 12, "labelLimit": 340, "symbolLimit": 64, "offset": 18,
}  # fmt: skip


def linked_panels(panels: Sequence[alt.LayerChart], labels: Sequence[str], most: int = 3) -> dict[str, Any]:
    """A Vega chart of these panels, at most `most` in a row; `picked` says which `labels` are clicked and completes it."""
    rows = _take_out_rows(panels)
    columns = min(most, len(panels))
    chart: dict[str, Any] = vl_convert.vegalite_to_vega(_concatenated(panels, labels, columns))
    for source in chart["data"]:
        if source["name"] in rows:
            kept = rows[source["name"]].drop(columns=_UNUSED, errors="ignore")
            source["values"] = json.loads(kept.to_json(orient="records"))
    if len(panels) == 1:  # the compiler gives its width the name of the whole chart's
        text = json.dumps(chart).replace('"signal": "width"', '"signal": "childWidth"')
        chart = json.loads(re.sub(r"(?<=[ (,/*-])width(?=[ ),/*-])", "childWidth", text))
    _set_layout(chart, labels, columns)
    for panel in chart["marks"]:
        for mark in panel["marks"]:
            tooltip = mark.get("encode", {}).get("update", {}).get("tooltip")
            if mark.get("name", "").endswith("voronoi") and tooltip:
                # The compiler adapts the numbers of such a tooltip, but not its text.
                tooltip["signal"] = tooltip["signal"].replace('datum["label"]', 'datum.datum["label"]')
    return _grouped(chart)


def picked(spec: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """A chart of `linked_panels` in which these labels of its legend are clicked."""
    group = spec["marks"][0]
    data = [
        {**source, "values": [row for row in source.get("values", []) if row["values"][0] in labels]}
        if source["name"] == f"{PICK}_store"
        else source
        for source in group["data"]
    ]
    return spec | {"marks": [group | {"data": data}]}


def _take_out_rows(panels: Sequence[alt.LayerChart]) -> dict[str, pandas.DataFrame]:
    """Name -> data frame of every layer; the layers keep the names only, since the compiler does not need the rows."""
    rows: dict[str, pandas.DataFrame] = {}
    for place, panel in enumerate(panels):
        for number, part in enumerate((panel, *panel.layer)):
            if isinstance(part.data, pandas.DataFrame):
                rows[f"rows-{place}-{number}"] = part.data
                part.data = alt.NamedData(name=f"rows-{place}-{number}")
    return rows


def _concatenated(panels: Sequence[alt.LayerChart], labels: Sequence[str], columns: int) -> dict[str, Any]:
    """The panels as a concatenation in Vega-Lite. alt.concat would copy every panel several times, which is slow."""
    parts: list[dict[str, Any]] = []
    parameters: dict[str, dict[str, Any]] = {}
    for place, panel in enumerate(panels):
        part = panel.to_dict(validate=False)
        for parameter in part.pop("params", []):
            common = parameters.setdefault(parameter["name"], {**parameter, "views": []})
            common["views"] += [f"{view}-{place}" for view in parameter["views"]]
            if parameter["name"] == PICK:  # all labels: `picked` keeps those that are clicked
                common["value"] = [{"label": label} for label in labels]
        for layer in part["layer"]:
            if "name" in layer:
                layer["name"] += f"-{place}"
        parts.append({name: value for name, value in part.items() if name not in ("$schema", "config")})
    return {
        "$schema": alt.SCHEMA_URL,
        "concat": parts,
        "columns": columns,
        "bounds": "flush",
        "spacing": {"row": 76, "column": GAP},
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        "params": list(parameters.values()),
        "config": {**THEME, "legend": _LEGEND},
    }


def _set_layout(chart: dict[str, Any], labels: Sequence[str], columns: int) -> None:
    """Make the widths of panels and legend follow the width of the page."""
    entry = 56 + min(7 * max(map(len, labels), default=0), int(_LEGEND["labelLimit"]))  # pixels
    chart["signals"] = [signal for signal in chart["signals"] if signal["name"] != "childWidth"]
    chart["layout"]["columns"] = {"signal": "across"}
    chart["padding"] = dict.fromkeys(("left", "top", "right", "bottom"), 6)
    for legend in chart.get("legends", []):
        legend["columns"] = {"signal": f"max(1, min(across, floor({_PAGE_WIDTH} / {entry})))"}
    width = f"floor(({_PAGE_WIDTH} - {AXIS_LABELS} - {GAP} * (across - 1)) / across)"
    chart["sizes"] = [
        {"name": "across", "update": f"max(1, min({columns}, floor({_PAGE_WIDTH} / {PANEL_WIDTH})))"},
        {"name": "childWidth", "update": width},
    ]


def _grouped(chart: dict[str, Any]) -> dict[str, Any]:
    """The chart inside a group, because Streamlit takes a top-level list `data` for the rows of a Vega-Lite chart."""
    parts = ("data", "signals", "layout", "scales", "legends", "marks")
    inner = {name: chart.pop(name) for name in parts if name in chart}
    report = {"events": {"signal": PICK}, "update": f"{{labels: {PICK}.label || []}}"}
    inner["signals"].append({"name": PICKED, "push": "outer", "on": [report]})
    chart["signals"] = [*chart.pop("sizes"), {"name": PICKED, "value": {}}]
    chart["params"] = [{"name": PICKED, "select": "point"}]  # what Streamlit listens to
    chart["marks"] = [{"type": "group", **inner}]
    chart["autosize"] = {"type": "pad"}
    return chart | {"usermeta": {"embedOptions": {"renderer": "canvas"}}}
