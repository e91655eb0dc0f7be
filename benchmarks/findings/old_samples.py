"""How old samples may be, and where they are clipped: sweeps `staleness` and `clip`."""

from __future__ import annotations

import altair as alt
import duckdb
import numpy as np

from benchmarks.findings.shared import (
    Found,
    accuracies,
    by_loss,
    differences,
    forest,
    judged,
    pairs,
    plain,
    short,
)
from rpg.store import queries


def staleness(db: duckdb.DuckDBPyConnection) -> Found:
    table = judged(db, "staleness")
    split = table["label"].str.extract(r"^(?P<loss>.*), staleness (?P<rollouts>\d+)$")
    data = table.assign(
        loss=[short(x) for x in split["loss"]], rollouts=split["rollouts"].astype(int)
    )
    shown = data[["loss", "rollouts", "last", "low", "high"]]
    order = sorted(shown["rollouts"].unique())
    lines = [
        "| | " + " | ".join(f"staleness {k}" for k in order) + " |",
        "|---|" + "--:|" * len(order),
    ]
    for loss, rows in shown.groupby("loss", sort=False):
        at = rows.set_index("rollouts")
        cells = [
            f"{at.loc[k, 'last']:.3f} [{at.loc[k, 'low']:.3f}, {at.loc[k, 'high']:.3f}]"
            for k in order
        ]
        lines.append(f"| {loss} | " + " | ".join(cells) + " |")
    most = order[-1]
    asked = (
        [(f"grpo-corrected rollout.staleness={k}", f"grpo rollout.staleness={k}") for k in order]
        + [
            (f"{name}(clip=none) rollout.staleness={most}", f"{name} rollout.staleness={most}")
            for name in ("grpo", "grpo-corrected")
        ]
        + [
            (
                f"grpo-corrected(clip=none) rollout.staleness={most}",
                "grpo-corrected(clip=none) rollout.staleness=0",
            ),
            (f"grpo(clip=none) rollout.staleness={most}", "grpo(clip=none) rollout.staleness=0"),
            (
                f"grpo-corrected(clip=none) rollout.staleness={most}",
                f"grpo(clip=none) rollout.staleness={most}",
            ),
        ]
    )
    losses = list(dict.fromkeys(shown["loss"]))
    color = by_loss(losses)
    x = alt.X(
        "rollouts:O",
        title="staleness: rollouts between the sampler and the policy",
        axis=alt.Axis(labelAngle=0),
    )
    beside = alt.XOffset("loss:N", sort=losses, scale=alt.Scale(paddingOuter=1))
    y = alt.Y("last:Q", title="mean accuracy at the last step", scale=alt.Scale(zero=False))
    base = alt.Chart(shown).encode(x=x, xOffset=beside, color=color)
    figure = alt.layer(
        base.mark_line(strokeWidth=1.6).encode(y=y),
        base.mark_point(filled=True, size=60, opacity=1).encode(y=y),
        base.mark_rule(strokeWidth=1).encode(
            y=alt.Y("low:Q", title="mean accuracy at the last step"), y2="high:Q"
        ),
    ).properties(width=520, height=260, title="Accuracy against the age of the samples")
    return Found("\n".join(lines) + "\n\n" + pairs(db, "staleness", asked), figure)


def clip(db: duckdb.DuckDBPyConnection, sweep: str = "clip") -> Found:
    """The variants, and what each bound does by itself: means over the other bounds."""
    table = judged(db, sweep)
    axes = {one["variant"]: one["axes"] for one in queries.manifests(db, sweep).values()}
    scores = {variant: accuracies(db, sweep, variant) for variant in table["variant"]}

    def mean(bound: str, value: float) -> list[np.ndarray]:
        mine = [scores[name] for name in scores if axes[name][f"algorithm.clip.{bound}"] == value]
        return [np.mean(arrays, axis=0) for arrays in zip(*mine, strict=True)]

    asked = [
        ("high", 0.5, 0.1),
        ("high", 0.28, 0.1),
        ("low", 0.4, 0.1),
        ("low", 0.2, 0.1),
        ("c", 10.0, 2.0),
    ]
    tests = [
        (f"{bound} = {one:g}", f"{other:g}", mean(bound, one), mean(bound, other))
        for bound, one, other in asked
    ]
    text = (
        plain(table)
        + "\n\n"
        + "\n".join(differences(("mean over the other bounds", "against"), tests))
    )
    return Found(
        text,
        forest(
            table, "RPG-Style Clip: 18 bounds, RPG-REINFORCE-URKL, 16 optimizer steps per rollout"
        ),
    )
