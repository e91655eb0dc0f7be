"""Accuracy against the KL to the initial model, in both directions: sweep `frontier`."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import duckdb
import numpy as np
import pandas

from benchmarks.findings.shared import Found, accuracies, by_loss, differences, pairs
from rpg.report import frontier as frontier_report

DIRECTIONS = {
    "policy_to_initial": "KL(policy ‖ initial)",
    "initial_to_policy": "KL(initial ‖ policy)",
}


def frontier(db: duckdb.DuckDBPyConnection, sweep: str = "frontier") -> Found:
    data = db.execute(
        """SELECT variant, seed, direction, accuracy, pass_at_k, per_response, per_response_se
           FROM frontier
           WHERE sweep = $1 AND step = (SELECT max(step) FROM frontier WHERE sweep = $1)""",
        [sweep],
    ).df()
    split = data["variant"].str.extract(r"^(?P<loss>\S+) beta=(?P<beta>\S+)$")
    data = data.assign(loss=split["loss"], beta=split["beta"].astype(float))
    means = (
        data.groupby(["loss", "beta", "direction"], sort=False)
        .agg(
            accuracy=("accuracy", "mean"),
            kl=("per_response", "mean"),
            seeds=("seed", "nunique"),
            spread=("per_response", "std"),
            passed=("pass_at_k", "mean"),
        )
        .reset_index()
    )
    wide = means.pivot(index=["loss", "beta"], columns="direction", values=["kl", "spread"])
    one = means.drop_duplicates(["loss", "beta"]).set_index(["loss", "beta"])
    lines = [
        "| loss | β | accuracy | pass@4 | KL(policy‖initial) | KL(initial‖policy) |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for (loss, beta), row in wide.sort_index().iterrows():
        cells = [f"{row['kl', d]:.2f} ± {row['spread', d]:.2f}" for d in DIRECTIONS]
        at = one.loc[(loss, beta)]
        lines.append(
            f"| {loss} | {beta:g} | {at['accuracy']:.3f} | {at['passed']:.3f} | "
            + " | ".join(cells)
            + " |"
        )
    lines += ["", "KL in nats per response, ± the standard deviation over seeds.", ""]
    lines += [
        *_matched(db, sweep, data),
        "",
        *_same_beta(db, sweep, sorted(data["variant"].unique())),
        "",
    ]
    lines.append(
        pairs(
            db,
            sweep,
            [
                (f"{one} beta=0.3", f"{other} beta=0.3")
                for one, other in (
                    ("rpg-reinforce-fkl", "rpg-reinforce-ufkl"),
                    ("rpg-reinforce-rkl", "rpg-reinforce-urkl"),
                    ("rpg-ufkl", "rpg-reinforce-ufkl"),
                    ("rpg-urkl", "rpg-reinforce-urkl"),
                )
            ],
        )
    )
    none = means[means["beta"] == 0]
    losses = sorted(means.loc[means["loss"].str.contains("reinforce"), "loss"].unique())
    paths = means[means["loss"].isin(losses) & (means["beta"] > 0)]
    ends = pandas.concat([none.assign(loss=loss) for loss in losses])
    paths = pandas.concat([paths, ends]).assign(text=lambda f: f["beta"].map("β {:g}".format))
    color = by_loss(losses)
    panels = []
    for direction, title in DIRECTIONS.items():
        part = paths[paths["direction"] == direction]
        x = alt.X("kl:Q", title=f"{title}, nats per response", scale=alt.Scale(zero=True))
        y = alt.Y("accuracy:Q", title="mean accuracy", scale=alt.Scale(zero=False))
        base = alt.Chart(part).encode(x=x, y=y, color=color)
        panels.append(
            alt.layer(
                base.mark_line(
                    strokeWidth=1.6, point=alt.OverlayMarkDef(filled=True, size=45)
                ).encode(order="beta:Q"),
                base.mark_text(dx=6, dy=9, align="left", fontSize=9).encode(text="text:N"),
            ).properties(width=380, height=280, title=title)
        )
    return Found("\n".join(lines), alt.hconcat(*panels, spacing=30))


def _same_beta(db: duckdb.DuckDBPyConnection, sweep: str, variants: Sequence[str]) -> list[str]:
    """Reverse minus forward forms at the same beta, the mean over the forms that the sweep has
    there."""
    groups: dict[tuple[str, str], list[list[np.ndarray]]] = {}
    for variant in variants:
        loss, _, beta = variant.partition(" beta=")
        if float(beta):
            scores = frontier_report.diversity(db, sweep, variant, ("pass",))["pass"][1]
            groups.setdefault((beta, loss[-3:]), []).append(scores)
    betas = sorted({beta for beta, _ in groups}, key=float)
    forms = {beta: len(groups[beta, "rkl"]) for beta in betas}
    means = {
        key: [np.mean(arrays, axis=0) for arrays in zip(*of, strict=True)]
        for key, of in groups.items()
    }
    tests = [
        (f"β = {beta}", f"{forms[beta]} of each direction", means[beta, "rkl"], means[beta, "fkl"])
        for beta in betas
    ]
    return differences(("reverse − forward at the same", "forms"), tests)


def _matched(db: duckdb.DuckDBPyConnection, sweep: str, data: pandas.DataFrame) -> list[str]:
    """Reverse minus forward form at the same KL; accuracies are interpolated along each seed's path
    over beta."""
    names = {
        form: [
            *(f"rpg-reinforce-{form} beta={beta}" for beta in ("0.03", "0.1", "0.3", "1")),
            "rpg-reinforce-urkl beta=0",
        ]
        for form in ("urkl", "ufkl")
    }
    scores = {form: [accuracies(db, sweep, name) for name in of] for form, of in names.items()}
    tests = []
    for direction, title in DIRECTIONS.items():
        distances = data[data["direction"] == direction].pivot(
            index="variant", columns="seed", values="per_response"
        )
        paths = {
            form: distances.loc[of].to_numpy() for form, of in names.items()
        }  # (variants, seeds)
        nearest = max(path.min(axis=0).max() for path in paths.values())
        farthest = min(path.max(axis=0).min() for path in paths.values())
        for nats in np.linspace(nearest, farthest, 5)[1:-1]:
            reverse, forward = (_at(nats, paths[form], scores[form]) for form in names)
            tests.append((f"{title} = {nats:.2f}", "URKL − UFKL", reverse, forward))
    return differences(("reverse − forward at the same, in nats", "forms"), tests)


def _at(nats: float, path: np.ndarray, scores: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """Scores where each seed's path (variants, seeds) passes this KL: a mixture of the two variants
    around it."""
    order = path.argsort(axis=0)
    weights = np.array(
        [
            [
                np.interp(nats, seed[places], places == variant)
                for seed, places in zip(path.T, order.T, strict=True)
            ]
            for variant in range(len(path))
        ]
    )
    return [
        np.einsum("vs,vsp->sp", weights, np.array(benchmark))
        for benchmark in zip(*scores, strict=True)
    ]
