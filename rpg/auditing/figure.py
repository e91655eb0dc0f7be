"""Bias and noise against drift, as an Altair chart."""

from __future__ import annotations

from typing import Any

import altair as alt

from rpg.auditing.measure import Result
from rpg.auditing.objectives import Objective

# what the figure shows of the catalogue: pairs whose difference is the point
_CHOSEN = ("rpg-reinforce-urkl", "grpo", "grpo-corrected", "gspo", "reinforce")


def _lines(results: list[Result], level: str, panel: str) -> list[dict[str, Any]]:
    rows = []
    for result in results:
        target = str(Objective(level, result.divergence))
        for point in result.points:
            if point.reference == "third":
                clip = "with its clip" if point.clipped else "no clip"
                shared = {"loss": result.name, "drift": point.drift, "clip": clip, "panel": panel}
                rows.append({**shared, "bias": point.bias[target], "noise": point.noise})
    return rows


def chart(report: Any) -> Any:
    """Chosen losses against the token-level objective, ratio levels against the response-level one."""
    chosen = [r for r in report.losses if r.points and (r.name in _CHOSEN or len(report.losses) == 1)]
    chosen = [r for r in chosen if r.source in ("rpg", "callable")]
    levels = [r for r in report.levels if r.name.startswith("urkl")]
    panels = [(_lines(chosen, "token", "losses"), "bias to the token-level objective")]
    if levels:
        panels.append((_lines(levels, "sequence", "levels"), "bias to the response-level objective"))
    drawn = []
    for rows, title in panels:
        chart = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=2)
        base = chart.properties(width=340, height=220).encode(
            x=alt.X("drift:Q", title="drift of the policy from old (standard deviations of a logit)"),
            color=alt.Color("loss:N", title=None),
            strokeDash=alt.StrokeDash(
                "clip:N",
                title=None,
                scale=alt.Scale(domain=["no clip", "with its clip"], range=[[1, 0], [4, 3]]),
            ),
        )
        heights = (
            alt.Y("bias:Q", axis=alt.Axis(format="%"), title=title),
            alt.Y("noise:Q", title="noise: standard deviation / mean step"),
        )
        drawn.append(alt.hconcat(*(base.encode(y=y) for y in heights)))
    figure = alt.vconcat(*drawn).resolve_scale(color="independent")
    return figure.properties(title="What the losses optimise, by exact enumeration")
