"""Nightly runs: the verdict of every night, what changed and who accepted it, and all numbers with
their bands."""

import math
import time
from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas
import streamlit as st

from dashboard.view import View
from dashboard.widgets import Nothing, choose, notice, show_chart, show_table
from rpg.next_steps import command
from rpg.report.nightly_bands import Number, comparable, judge, read_nights
from rpg.report.run_digests import is_settled

SHIPPED = "shipped sweeps (configs/nightly)"


def page(view: View) -> None:
    home = view.layout.home / "nightly"
    folders = {
        SHIPPED: home,
        **{path.name: path for path in sorted(home.glob("*")) if path.is_dir()},
    }
    sets = {name: folder for name, folder in folders.items() if read_nights(folder, "")}
    if not sets:
        raise Nothing(f"No nights yet. Run one with: {command('nightly', layout=view.layout)}")
    nights = read_nights(sets[choose("Set of sweeps", list(sets), "set")], "")
    newest = nights[-1]
    before = nights[:-1]
    judged = judge(newest, before)[0] if "digests" in newest else []
    st.text(headline(newest, judged))
    if newest.get("said"):
        notice(newest["said"])
    accepted = newest.get("accepted")
    if accepted:
        notice(f"accepted by {accepted.get('user', '?')}: {accepted.get('why', '')}")
    for name, why in newest.get("failed", {}).items():
        notice(f"{name}: {why}")
    tried = share_seen(nights)
    if tried:
        st.text(tried)
    st.subheader("Nights")
    show_table(table(nights), 380)
    st.subheader("Numbers")
    name = choose("Number", sorted(newest["values"]), "number")
    if name:
        show_chart(chart(name, nights, judged), key="nightly")
    show_table(pandas.DataFrame([row(number) for number in judged]), 460)


def headline(night: Mapping[str, Any], judged: list[Number]) -> str:
    off = sum(number.red for number in judged)
    failed = len(night.get("failed", {}))
    parts = [f"{failed} run{'s' * (failed > 1)} failed"] if failed else []
    parts += [state({**night, "failed": {}})] if night.get("bits") or night.get("accepted") else []
    parts += [f"{off} of {len(judged)} numbers outside their bands"] if off else []
    return f"Newest night {night['night']}: {', '.join(parts) or 'as before'}"


def share_seen(nights: list[dict[str, Any]]) -> str:
    """Of the faults that were planted within the last 30 days before the newest night, how many a
    night has seen."""
    recent = [night for night in nights if night["started"] > nights[-1]["started"] - 30 * 86400]
    tried = [fault for night in recent for fault in night.get("planted", {}).items()]
    unseen = [name for name, seen in tried if not seen]
    missed = f"; not seen: {', '.join(unseen)}" if unseen else ""
    seen = f"{len(tried) - len(unseen)} of {len(tried)} seen{missed}"
    return f"Planted faults of the last 30 days: {seen}" if tried else ""


def state(night: Mapping[str, Any]) -> str:
    if night.get("failed"):
        return "failed"
    if night.get("accepted"):
        return "accepted"
    said = str(night.get("said") or "bits changed")
    return "as before" if is_settled(night) else said.partition(" since ")[0]


def table(nights: list[dict[str, Any]]) -> pandas.DataFrame:
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


def row(number: Number) -> dict[str, Any]:
    return {
        "sweep / variant / metric": number.name,
        "tonight": number.value,
        "low": None if number.low == -math.inf else number.low,
        "high": number.high,
        "note": {"red": "out of band"}.get(number.mark, number.mark),
    }


def chart(name: str, nights: list[dict[str, Any]], judged: list[Number]) -> alt.LayerChart:
    """One number over the nights; the shaded area is the band that the newest night was compared
    with."""
    rows = [(night["night"], night["values"].get(name), state(night)) for night in nights]
    frame = pandas.DataFrame(rows, columns=["night", "value", "state"])
    number = next((number for number in judged if number.name == name), None)
    since = {night["night"] for night in comparable(nights)}
    across = alt.X("night:N", title="night", sort=list(frame["night"]))
    layers = []
    if number and number.high is not None and number.low is not None:
        low = max(number.low, min(0.0, frame["value"].min()))  # one-sided bands have no lower end
        band = frame[frame["night"].isin(since)].assign(low=low, high=number.high)
        layers.append(
            alt.Chart(band).mark_area(opacity=0.15).encode(x=across, y="low:Q", y2="high:Q")
        )
    base = alt.Chart(frame).encode(x=across, y=alt.Y("value:Q", title=name, scale={"zero": False}))
    points = base.mark_point(filled=True, size=60)
    points = points.encode(shape="state:N", tooltip=["night", "value", "state"])
    return alt.layer(*layers, base.mark_line(), points)
