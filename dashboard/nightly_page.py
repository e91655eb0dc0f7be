"""Nightly runs: every night's verdict, what changed and who accepted it, and each number over the nights with its band."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas
import streamlit as st

from dashboard.drawing import show_chart
from dashboard.selection import choose
from dashboard.text import notice
from dashboard.view import View
from rpg.report.nightly_bands import Finding, comparable, judge, read_nights
from rpg.report.run_digests import is_settled

SHIPPED = "what ships (configs/nightly)"


def page(view: View) -> None:
    sets = found(view.layout.home / "nightly")
    if not sets:
        notice("No nights yet. Run one with: rpg nightly")
        return
    chosen = choose("Set of sweeps", list(sets), "set")
    nights = read_nights(sets[chosen or SHIPPED], "")
    newest, before = nights[-1], nights[:-1]
    judged = judge(newest, before)[0] if "digests" in newest else []
    st.text(headline(newest, judged))
    if newest.get("said"):
        notice(newest["said"])
    if accepted := newest.get("accepted"):
        notice(f"accepted by {accepted.get('user', '?')}: {accepted.get('why', '')}")
    for name, why in newest.get("failed", {}).items():
        notice(f"{name}: {why}")
    st.subheader("Nights")
    st.dataframe(table(nights), hide_index=True, height=min(38 + 35 * len(nights), 380))
    st.subheader("Numbers")
    names = sorted(newest["values"])
    name = choose("Number", names, "number")
    if name:
        show_chart(chart(name, nights, judged), key="nightly")
    st.dataframe(
        pandas.DataFrame([row(finding) for finding in judged]),
        hide_index=True,
        height=min(38 + 35 * len(judged), 460),
    )


def found(folder: Path) -> dict[str, Path]:
    """Name of every set that has a night -> its folder."""
    places = (
        {SHIPPED: folder, **{p.name: p for p in sorted(folder.glob("*")) if p.is_dir()}}
        if folder.is_dir()
        else {}
    )
    return {name: place for name, place in places.items() if read_nights(place, "")}


def headline(night: Mapping[str, Any], judged: list[Finding]) -> str:
    off = sum(finding.red for finding in judged)
    parts = [f"{len(night['failed'])} runs failed"] if night.get("failed") else []
    parts += [state(night)] if night.get("bits") or night.get("accepted") else []
    parts += [f"{off} of {len(judged)} numbers out of their bands"] if off else []
    return f"Newest night {night['night']}: {', '.join(parts) or 'as before'}"


def state(night: Mapping[str, Any]) -> str:
    if night.get("failed"):
        return "failed"
    if night.get("accepted"):
        return "accepted"
    return "bits changed" if not is_settled(night) else "as before"


def table(nights: list[dict[str, Any]]) -> pandas.DataFrame:
    """Newest first."""
    rows = []
    for night in reversed(nights):
        accepted = night.get("accepted") or {}
        rows.append(
            {
                "night": night["night"],
                "begun": time.strftime("%Y-%m-%d %H:%M", time.localtime(night["started"])),
                "commit": (night.get("revision") or "")[:10],
                "state": state(night),
                "bits": night.get("said", ""),
                "accepted because": accepted.get("why", ""),
                "by": accepted.get("user", ""),
            }
        )
    return pandas.DataFrame(rows)


def row(finding: Finding) -> dict[str, Any]:
    return {
        "": {"red": "out of band"}.get(finding.mark, finding.mark),
        "sweep / variant / metric": finding.name,
        "tonight": finding.value,
        "low": finding.low,
        "high": finding.high,
    }


def chart(name: str, nights: list[dict[str, Any]], judged: list[Finding]) -> alt.LayerChart:
    """One number over the nights; the shade is the band the newest night was held against."""
    frame = pandas.DataFrame(
        [{"night": n["night"], "value": n["values"].get(name), "state": state(n)} for n in nights]
    )
    finding = next((one for one in judged if one.name == name), None)
    since = {night["night"] for night in comparable(nights)}
    layers = []
    if finding and finding.high is not None and finding.low is not None:
        low = max(finding.low, min(0.0, frame["value"].min()))  # one-sided bands have no lower end
        band = frame[frame["night"].isin(since)].assign(low=low, high=finding.high)
        layers.append(alt.Chart(band).mark_area(opacity=0.15).encode(x="night:N", y="low:Q", y2="high:Q"))
    base = alt.Chart(frame).encode(
        x=alt.X("night:N", title="night", sort=list(frame["night"])),
        y=alt.Y("value:Q", title=name, scale={"zero": False}),
    )
    layers += [
        base.mark_line(),
        base.mark_point(filled=True, size=60).encode(shape="state:N", tooltip=["night", "value", "state"]),
    ]
    return alt.layer(*layers)
