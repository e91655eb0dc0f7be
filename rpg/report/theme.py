"""How charts look: a colour per algorithm, a dash per variant, fonts and greys, on light and on dark pages.

Colours are those of Okabe and Ito (2008), safe for colour-blind readers, without their yellow, which is
invisible on white. The colour is the algorithm's; its variants along an axis differ in dash, then in lightness.
"""

import re
from collections.abc import Sequence
from typing import Any

import altair as alt

COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7F7F7F")
DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [12, 4], [3, 5])
LIGHTER = (0.0, 0.4, 0.65)  # mixed with so much white, once the dashes are used up
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # vl-convert brings the first, browsers the others

THEME = {
    "font": FONT,
    "background": "white",
    "padding": 8,
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 10.5,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titleColor": "#333333",
        "labelColor": "#333333",
        "gridColor": "#E6E6E6",
        "domainColor": "#888888",
        "tickColor": "#888888",
    },
    "title": {
        "font": FONT,
        "subtitleFont": FONT,
        "anchor": "start",
        "fontSize": 12,
        "fontWeight": "bold",
        "subtitleColor": "#555555",
    },
}
"""Fonts, greys and grid of all charts: the `config` of their specification."""
ON_DARK = {"#000000": "#F2F2F2", "#333333": "#D6D6D6", "#444444": "#BBBBBB", "#555555": "#BBBBBB", "#E6E6E6": "#3C3F45",
           "white": "transparent", "#0072B2": "#F0E442"}  # fmt: skip
"""Colours that a dark page needs others for: black lines, dark text, a light grid. A blue that is light enough for it looks
like the lighter one, so Okabe and Ito's yellow takes its place."""


def family(label: str) -> str:
    """What variants along an axis have in common: `RPG-UFKL` of `sweep · RPG-UFKL beta=0.001`."""
    return re.split(r" (?=[\w.]+=)", label.rpartition(" · ")[2], maxsplit=1)[0]


def looks(labels: Sequence[str]) -> dict[str, tuple[str, list[int]]]:
    """Label to its colour and dash: those of a family share the colour. 144 labels of 8 families differ.

    Where all are of one family, a colour that they share would say nothing: its members have their own.
    """
    families = list(dict.fromkeys(map(family, labels)))
    if len(families) == 1:
        turns = [divmod(place, len(COLOURS)) for place in range(len(labels))]
        return {
            label: (COLOURS[colour], DASHES[turn % len(DASHES)])
            for label, (turn, colour) in zip(labels, turns, strict=True)
        }
    members = [0] * len(COLOURS)
    found = {}
    for label in labels:
        place = families.index(family(label)) % len(COLOURS)
        lightness, dash = divmod(members[place], len(DASHES))
        members[place] += 1
        found[label] = lighter(COLOURS[place], LIGHTER[lightness % len(LIGHTER)]), DASHES[dash]
    return found


def lighter(colour: str, share: float) -> str:
    """The colour `#rrggbb` mixed with a share of white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + share * (255 - part)):02X}" for part in parts)


def first_shown(labels: Sequence[str], count: int = 6) -> list[str]:
    """So many labels to begin with, in their order: the first of each family, then the seconds, and so on."""
    members: dict[str, int] = {}
    order = []
    for place, label in enumerate(labels):
        members[family(label)] = turn = members.get(family(label), -1) + 1
        order.append((turn, place, label))
    kept = {label for *_, label in sorted(order)[:count]}
    return [label for label in labels if label in kept]


def style(labels: Sequence[str], legend: bool | Sequence[str] = True) -> dict[str, Any]:
    """Encodings that give every label its colour and dash, the same in every chart; `legend`: which to list."""
    look = looks(labels).values()
    colour = alt.Scale(domain=list(labels), range=[one for one, _ in look])
    dash = alt.Scale(domain=list(labels), range=[one for _, one in look])
    symbols = {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2.5, "symbolOpacity": 1}
    listed = {} if legend is True else {"values": list(legend or ())}
    shown = alt.Legend(title=None, **symbols, **listed) if legend else None
    return {
        "color": alt.Color("label:N", scale=colour, legend=shown),
        "strokeDash": alt.StrokeDash("label:N", scale=dash, legend=shown),
    }


def on_dark(spec: Any) -> Any:
    """The specification of a chart as a dark page shows it."""
    if isinstance(spec, dict):
        return {name: on_dark(value) for name, value in spec.items()}
    if isinstance(spec, list):
        return [on_dark(value) for value in spec]
    return ON_DARK.get(spec, spec) if isinstance(spec, str) else spec


def themed(chart: Any) -> Any:
    """The chart with the look of all charts."""
    return chart.configure(**THEME)
