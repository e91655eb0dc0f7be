"""Nights as sentences, tables and charts: a calendar, what moved most, and a number over the nights
with its band; for the dashboard and for published pages."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas

from rpg.metrics import METRICS
from rpg.report import alternative_text
from rpg.report import format as written
from rpg.report.nightly_bands import Number, comparable
from rpg.report.run_digests import is_settled

GREEN = "as before"
ACCEPTED = "accepted"
RED = "red"
COLOURS = {GREEN: "#009E73", ACCEPTED: "#0072B2", RED: "#D55E00"}
SHOWN = 182
"""The most days of the calendar: half a year."""
LEAST = 84
"""The fewest: twelve weeks, so that a few nights are a calendar, too."""

Night = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One of tonight's numbers beside what it was in the last settled night."""

    number: Number
    before: float | None

    @property
    def difference(self) -> float | None:
        if self.number.value is None or self.before is None:
            return None
        return self.number.value - self.before

    @property
    def size(self) -> float:
        """Of the movement in widths of its band, to compare numbers of different units."""
        number = self.number
        if self.difference is None or self.before is None:
            return math.inf if number.red else 0.0
        if number.high is None or number.low is None:
            return 0.0
        if math.isinf(number.low):  # one-sided: the room above what it was before
            room = number.high - self.before
        else:
            room = (number.high - number.low) / 2
        if room > 0:
            return abs(self.difference) / room
        return math.inf if self.difference else 0.0


def by_movement(numbers: Sequence[Number], settled: Night | None) -> list[Change]:
    """What is outside its band first, then what moved most."""
    earlier = (settled or {}).get("values", {})
    changes = [Change(number, earlier.get(number.name)) for number in numbers]
    return sorted(changes, key=lambda change: (not change.number.red, -change.size))


def called(name: str) -> str:
    """`chain / grpo(beta=0.3) / kl` as people say it: `chain · grpo beta 0.3 · KL (nats)`."""
    sweep, _, rest = name.partition(" / ")
    variant, _, metric = rest.rpartition(" / ")
    declared = METRICS.get(metric)
    words = variant.replace("(", " ").replace(")", "").replace("=", " ").strip()
    return " · ".join(filter(None, [sweep, words, declared.heading if declared else metric]))


def told(change: Change) -> str:
    """`chain · grpo · reward: 0.5 before, 0.9 tonight (+0.4); band [0.44, 0.56]`."""
    number = change.number
    now = "missing tonight" if number.value is None else f"{number.shown} tonight"
    parts = [now] if change.before is None else [f"{number.text(change.before)} before", now]
    text = f"{called(number.name)}: {', '.join(parts)}"
    if change.difference is not None:
        text += f" ({number.change(change.difference)})"
    return f"{text}; band {number.band}" if number.band else text


def sentences(night: Night, moved: Sequence[Change]) -> list[str]:
    """What moved most in a red night, since when, who accepted it and why, and what failed."""
    lines = []
    most = moved[0] if moved else None
    if colour(night) == RED and most and (most.number.red or most.difference):
        lines.append(f"Moved most: {told(most)}")
    if night.get("said"):
        lines.append(str(night["said"]))
    accepted = night.get("accepted")
    if accepted:
        lines.append(f"accepted by {accepted.get('user', '?')}: {accepted.get('why', '')}")
    failed = [f"{name}: {why}" for name, why in night.get("failed", {}).items()]
    return lines + failed


def headline(night: Night, numbers: Sequence[Number]) -> str:
    off = sum(number.red for number in numbers)
    failed = len(night.get("failed", {}))
    parts = []
    if failed:
        parts.append(f"{failed} runs failed" if failed > 1 else "1 run failed")
    parts += [state({**night, "failed": {}})] if night.get("bits") or night.get("accepted") else []
    parts += [f"{off} of {len(numbers)} numbers outside their bands"] if off else []
    return f"Newest night {night['night']}: {', '.join(parts) or 'as before'}"


def state(night: Night) -> str:
    if night.get("failed"):
        return "failed"
    if night.get("accepted"):
        return ACCEPTED
    said = str(night.get("said") or "results changed")
    return GREEN if is_settled(night) else said.partition(" since ")[0]


def colour(night: Night) -> str:
    """Green, accepted or red."""
    kind = state(night)
    return kind if kind in COLOURS else RED


def calendar(nights: Sequence[Night]) -> alt.LayerChart:
    """A cell per day of the last half year, with a mark for its night: weeks across, days down."""
    frame = pandas.DataFrame(
        {
            "date": pandas.to_datetime(night["started"], unit="s").normalize(),
            "night": night["night"],
            "kind": colour(night),
            "state": state(night),
        }
        for night in nights
    )
    newest = frame["date"].max()
    frame = frame[frame["date"] > newest - pandas.Timedelta(days=SHOWN)]
    frame = frame.drop_duplicates("date", keep="last")
    begin = min(frame["date"].min(), newest - pandas.Timedelta(days=LEAST - 1))
    begin -= pandas.Timedelta(days=(begin.weekday() + 1) % 7)  # weeks begin on Sunday, as in Vega
    every_day = pandas.DataFrame({"date": pandas.date_range(begin, newest)})

    counts = frame["kind"].value_counts()
    told_of = [f"{counts[kind]} {kind}" for kind in COLOURS if kind in counts]
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    shapes = alt.Scale(domain=list(COLOURS), range=["circle", "diamond", "cross"])
    legend = alt.Legend(title=None, orient="bottom")
    plain = {"domain": False, "ticks": False, "labelOverlap": True}
    apart = alt.Scale(paddingInner=0.14)
    days = alt.Y("day(date):O", title=None, scale=apart, axis=alt.Axis(**plain, format="%a"))
    week = alt.X(
        "yearweek(date):O", title=None, scale=apart, axis=alt.Axis(**plain, format="%d %b")
    )
    cells = alt.Chart(every_day).mark_rect(color="#7F7F7F", opacity=0.13, cornerRadius=2)
    points = alt.Chart(frame).mark_point(filled=True, size=90, opacity=1)
    points = points.encode(
        color=alt.Color("kind:N", scale=scale, legend=legend),
        shape=alt.Shape("kind:N", scale=shapes, legend=legend),
        tooltip=["night:N", "state:N"],
    )
    layers = [layer.encode(x=week, y=days) for layer in (cells, points)]
    return alt.layer(*layers).properties(
        width=18 * (len(every_day) // 7 + 1),
        height=200,
        description=alternative_text.sentence("Nights", told_of),
    )


def table(nights: Sequence[Night]) -> pandas.DataFrame:
    """Newest first."""
    return pandas.DataFrame(
        {
            "night": night["night"],
            "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(night["started"])),
            "commit": (night.get("revision") or "")[:10],
            "state": state(night),
            "bits": night.get("said", ""),
            "accepted because": (night.get("accepted") or {}).get("why", ""),
            "by": (night.get("accepted") or {}).get("user", ""),
        }
        for night in reversed(nights)
    )


def row(change: Change) -> dict[str, Any]:
    number = change.number
    return {
        "number": called(number.name),
        "before": change.before,
        "tonight": number.value,
        "change": change.difference,
        "band": number.band,
        "note": {"red": "out of band"}.get(number.mark, number.mark),
    }


def chart(name: str, nights: Sequence[Night], numbers: Sequence[Number]) -> alt.LayerChart:
    """One number over the nights; the shaded area is the band that the newest night was compared
    with."""
    rows = [
        (night["night"], night["values"].get(name), state(night), colour(night)) for night in nights
    ]
    frame = pandas.DataFrame(rows, columns=["night", "value", "state", "kind"])
    number = next((number for number in numbers if number.name == name), None)
    since = {night["night"] for night in comparable(nights)} | {nights[-1]["night"]}
    # A night is called after its day (of UTC) and its code; there is room for the day.
    day = "utcFormat(toDate(slice(datum.label, 0, 10)), '%d %b')"
    axis = alt.Axis(labelExpr=day, labelAngle=0, labelOverlap="greedy")
    across = alt.X("night:N", title=None, sort=list(frame["night"]), axis=axis)
    layers = []
    if number and number.high is not None and number.low is not None:
        low = max(number.low, min(0.0, frame["value"].min()))  # one-sided bands have no lower end
        band = frame[frame["night"].isin(since)].assign(low=low, high=number.high)
        layers.append(
            alt.Chart(band).mark_area(opacity=0.15).encode(x=across, y="low:Q", y2="high:Q")
        )
    up = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False))
    base = alt.Chart(frame).encode(x=across, y=up)
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    shapes = alt.Scale(domain=list(COLOURS), range=["circle", "diamond", "cross"])
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        shape=alt.Shape("kind:N", scale=shapes, legend=None),
        color=alt.Color("kind:N", scale=scale, legend=None),
        tooltip=["night", "value", "state"],
    )
    ends = (
        frame.dropna(subset=["value"]).iloc[[0, -1]] if frame["value"].notna().any() else frame[:0]
    )
    show = written.accuracy if name.endswith("accuracy") else written.measured
    words = [f"{show(end.value)} in {end.night}" for end in ends.itertuples()]
    heading = alt.Title(called(name), anchor="start", frame="group", limit=700)
    line = base.mark_line(color="#7F7F7F")
    return alt.layer(*layers, line, points).properties(
        height=220, title=heading, description=alternative_text.sentence(called(name), words)
    )
