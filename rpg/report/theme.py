"""The theme of all charts: a colour per algorithm, a dash per variant, fonts and greys, on light
and on dark pages.

The colours are those of Okabe and Ito (2008), safe for colour-blind readers, without their yellow,
which is invisible on white. Each algorithm has its colour in every chart; its variants along an
axis differ in dash, then in lightness.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import altair as alt

COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7F7F7F")
PALETTE = {
    name: place
    for place, names in enumerate(
        (
            ("GRPO", "GRPO (corrected KL)", "Dr. GRPO", "GRPO-pass@k"),
            ("DAPO", "CISPO", "GSPO", "LUSPO"),
            ("RPG-UFKL", "RPG-FKL", "OPD-FKL"),
            ("RPG-REINFORCE-URKL", "RPG-REINFORCE-RKL", "DPPO-KL"),
            ("RPG-URKL", "RPG-RKL", "OPD-RKL"),
            ("RPG-REINFORCE-UFKL", "RPG-REINFORCE-FKL", "DPPO-TV"),
            ("REINFORCE++", "REINFORCE++-Baseline", "REINFORCE", "RLOO", "OPO"),
            ("PPO", "GPG", "OPD", "OPD-JSD", "GKD"),
        )
    )
    for name in names
}
"""Name of an algorithm -> the place of its colour. A divergence of the paper keeps its hue, its
REINFORCE-style loss the hue beside it; what is often compared is apart."""
_PLACES = {name.casefold(): place for name, place in PALETTE.items()}
DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [12, 4], [3, 5])
LIGHTER = (0.0, 0.4, 0.65)  # share of white, once the dashes are used up
THEME: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""The `config` of every chart's specification. The first of its fonts comes with vl-convert, the
others with browsers."""
ON_DARK = {
    "#000000": "#F2F2F2",
    "#333333": "#D6D6D6",
    "#444444": "#BBBBBB",
    "#555555": "#BBBBBB",
    "#E6E6E6": "#3C3F45",
    "white": "transparent",
    "#0072B2": "#1F86CC",
}
"""Replacements on a dark page: for black lines, dark text, the light grid; and a blue that is a
little lighter. A variant keeps its hue."""


DATA = ("data", "datasets", "domain")
"""Parts of a specification whose texts are not colours, whatever they say."""


def family(label: str) -> str:
    """The part of a label that variants along an axis share: `RPG-UFKL` of `sweep · RPG-UFKL, beta
    0.001`."""
    return label.rpartition(" · ")[2].partition(", ")[0]


def line_styles(labels: Sequence[str]) -> dict[str, tuple[str, list[int]]]:
    """Label -> colour and dash. A family has its colour in every chart, whatever stands beside it;
    labels of one colour differ in dash, then in lightness (18 of a colour are distinct).

    If all labels are of one family, a shared colour would say nothing, so each has its own.
    """
    if len(labels) > 1 and len(set(map(family, labels))) == 1:
        return {
            label: (COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)])
            for place, label in enumerate(labels)
        }
    alike: Counter[str] = Counter()
    styles = {}
    for label in labels:
        colour = colour_of(family(label))
        lightness, dash = divmod(alike[colour], len(DASHES))
        alike[colour] += 1
        styles[label] = lighter(colour, LIGHTER[lightness % len(LIGHTER)]), DASHES[dash]
    return styles


def colour_of(name: str) -> str:
    """The colour of an algorithm by its display name, in whatever case a study writes it: that of
    the palette, or of any other name one that depends on nothing but the name."""
    place = _PLACES.get(name.casefold(), crc32(name.encode()) % len(COLOURS))
    return COLOURS[place]


def lighter(colour: str, share: float) -> str:
    """The colour `#rrggbb` mixed with a share of white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + share * (255 - part)):02X}" for part in parts)


def encodings(labels: Sequence[str], legend: bool | Sequence[str] = True) -> dict[str, Any]:
    """Encodings that give every label the same colour and dash in all charts; `legend`: the labels
    to list."""
    colours, dashes = zip(*line_styles(labels).values(), strict=True) if labels else ((), ())
    colour = alt.Scale(domain=list(labels), range=list(colours))
    dash = alt.Scale(domain=list(labels), range=list(dashes))
    symbols = {
        "symbolType": "stroke",
        "symbolSize": 500,
        "symbolStrokeWidth": 2.5,
        "symbolOpacity": 1,
    }
    listed = {} if legend is True else {"values": list(legend or ())}
    shown = alt.Legend(title=None, **symbols, **listed) if legend else None
    return {
        "color": alt.Color("label:N", scale=colour, legend=shown),
        "strokeDash": alt.StrokeDash("label:N", scale=dash, legend=shown),
    }


def on_dark(spec: Any) -> Any:
    """A chart's specification in the colours of a dark page; its data stay as they are."""
    if isinstance(spec, dict):
        return {name: value if name in DATA else on_dark(value) for name, value in spec.items()}
    if isinstance(spec, list):
        return [on_dark(value) for value in spec]
    return ON_DARK.get(spec, spec) if isinstance(spec, str) else spec


def themed(chart: Any) -> Any:
    return chart.configure(**THEME)


def specification(chart: Any) -> dict[str, Any]:
    """The chart in Vega-Lite. Altair's validation would take as long as making it; a test checks it
    against the schema."""
    return dict(chart.to_dict(validate=False))
