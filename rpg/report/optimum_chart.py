"""The drawing of where objectives end: how much of each policy lies on each right answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from rpg.report.theme import COLOURS

WRONG = "wrong"
GREY = "#d5d5d5"
_LONGEST = 46


def ends_chart(reference: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A bar for the reference, and one for each policy at which losses end; `rows` are the fields
    of rpg.auditing.optimum.End, `reference` its probability of each right answer."""
    bars = {"reference": tuple(reference)}
    losses: dict[str, list[str]] = {}
    for row in rows:
        if row["note"]:
            continue
        name = row["form"] or f"near {row['nearest']}"
        bars.setdefault(name, tuple(row["answers"]))
        losses.setdefault(name, []).append(row["loss"])
    values = []
    for name, answers in bars.items():
        label = f"{name}: {_shortened(losses[name])}" if name in losses else name
        parts = [(f"right answer {number}", p) for number, p in enumerate(answers, 1)]
        for order, (part, p) in enumerate([*parts, (WRONG, 1 - sum(answers))]):
            values.append({"policy": label, "answer": part, "probability": p, "order": order})
    names = list(dict.fromkeys(value["answer"] for value in values))
    colours = [*COLOURS[2 : len(names) + 1], GREY]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 420,
        "height": {"step": 28},
        "data": {"values": values},
        "mark": "bar",
        "encoding": {
            "y": {"field": "policy", "sort": None, "title": None, "axis": {"labelLimit": 420}},
            "x": {
                "field": "probability",
                "type": "quantitative",
                "title": "probability of a response",
                "scale": {"domain": [0, 1]},
            },
            "color": {
                "field": "answer",
                "sort": names,
                "title": None,
                "scale": {"domain": names, "range": colours},
            },
            "order": {"field": "order"},
        },
    }


def _shortened(losses: Sequence[str]) -> str:
    """The first losses, and how many more there are."""
    shown = losses[0]
    for number, loss in enumerate(losses[1:], 1):
        longer = f"{shown}, {loss}"
        if len(longer) > _LONGEST:
            return f"{shown} and {len(losses) - number} more"
        shown = longer
    return shown
