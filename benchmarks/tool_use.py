"""Who asks the tool: the share of samples with a call, per variant of a sweep or study based on
`calculator.yaml`.

    # docs/results/tool-use.csv, from the runs' samples
    python -m benchmarks.tool_use tool-use --home lab
    # tables of docs/findings.md and its picture, from that file
    python -m benchmarks.tool_use tool-use

A row of the file is a problem of a seed: how many of its samples called, how many were right;
`initial` is the model before training. Differences are paired by seed and problem, corrected and
with intervals that hold together, as everywhere (`benchmarks.findings.shared.differences`). For
`tool-use` the picture has where two arms come to rest, too (`resting`).
"""

import argparse
import json
from functools import partial
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from benchmarks.findings.shared import PICTURES, ROOT, differences
from rpg import stats
from rpg.report import theme
from rpg.store import Layout
from rpg.store.current import current_runs
from rpg.store.samples import read_eval
from rpg.study import study_report
from rpg.study.trials import studies

K3, FORWARD, REVERSE, NONE = "GRPO's k3", "exact forward KL", "exact reverse KL", "no KL"
OLD, FRESH = "samples of four rollouts before", "fresh samples"
ALL, ADAPTERS = "all weights", "adapters"
NO_CLIP = "dapo(clip=none)"
LOSSES = "dapo rpg-reinforce-urkl gspo gmpo cispo sapo vespo dppo-tv prime-rl reinforce".split()
SHORT = {
    "tool-use": {
        **{f"grpo(beta={beta})": f"{K3}, β {beta}" for beta in ("0.3", "1")},
        **{
            f"grpo(beta={beta},kl=objective(divergence=ufkl))": f"{FORWARD}, β {beta}"
            for beta in ("0.3", "1")
        },
        **{f"grpo-corrected(beta={beta})": f"{REVERSE}, β {beta}" for beta in ("0.3", "1")},
        "grpo(beta=0,kl=none)": NONE,
    },
    "tool-staleness": {
        "grpo-corrected rollout.staleness=0": f"{FRESH}, clip",
        "grpo-corrected(clip=none) rollout.staleness=0": f"{FRESH}, no clip",
        "grpo-corrected rollout.staleness=4": f"{OLD}, clip",
        "grpo-corrected(clip=none) rollout.staleness=4": f"{OLD}, no clip",
    },
    "old-samples-losses": {loss: loss for loss in (NO_CLIP, *LOSSES)},
    "old-samples-tools": {
        "clip": f"{ALL}, clip",
        "no-clip": f"{ALL}, no clip",
        "adapters-clip": f"{ADAPTERS}, clip",
        "adapters-no-clip": f"{ADAPTERS}, no clip",
    },
}
"""Sweep or study -> variant -> what it is called here."""
ASKED = {
    "tool-use": [
        (f"{one}, β {beta}", f"{other}, β {beta}")
        for beta in ("0.3", "1")
        for one, other in ((REVERSE, K3), (REVERSE, FORWARD), (K3, FORWARD))
    ],
    "tool-staleness": [
        (f"{FRESH}, no clip", f"{FRESH}, clip"),
        (f"{OLD}, no clip", f"{OLD}, clip"),
        (f"{OLD}, no clip", f"{FRESH}, no clip"),
        (f"{OLD}, clip", f"{FRESH}, clip"),
    ],
    "old-samples-losses": [(loss, NO_CLIP) for loss in LOSSES],
    "old-samples-tools": [
        (f"{ALL}, no clip", f"{ALL}, clip"),
        (f"{ADAPTERS}, no clip", f"{ADAPTERS}, clip"),
        (f"{ADAPTERS}, no clip", f"{ALL}, no clip"),
        (f"{ADAPTERS}, clip", f"{ALL}, clip"),
    ],
}


def resting(start: float, beta: float, reverse: bool) -> float:
    """The share of calls at which a policy with two arms, to call (right) and to answer (wrong),
    stops moving, if its reference calls with probability `start` and the advantages of a group are
    divided by its standard deviation.

    The smallest root of 1 / s = beta d, with s = sqrt(p (1 - p)) and d the slope of the divergence:
    of the reverse KL log(p / (1 - p)) - log(start / (1 - start)), of the forward KL (1 - start) /
    (1 - p) - start / p. 1 where there is none.
    """

    p = np.linspace(start, 1, 100_000, endpoint=False)
    slopes = (1 - start) / (1 - p) - start / p, np.log(p / (1 - p)) - np.log(start / (1 - start))
    at_rest = 1 / np.sqrt(p * (1 - p)) <= beta * slopes[reverse]
    return float(p[at_rest.argmax()]) if at_rest.any() else 1.0


def collect(name: str, layout: Layout) -> pd.DataFrame:
    """A row for each variant, seed and problem, and one for each seed's initial model; of a study
    its reported runs'."""
    registered = study_report.material(layout, name).registered if name in studies(layout) else None
    rows: dict[tuple[str, int, str], dict[str, object]] = {}
    for folder in current_runs(layout, registered.sweep if registered else name):
        manifest = folder.read_manifest()
        (benchmark,) = folder.benchmarks()
        steps = folder.eval_steps(benchmark)
        for step in (steps[0], steps[-1]):
            variant = "initial" if step == 0 else manifest["variant"]
            samples = pd.DataFrame(read_eval(folder, benchmark, step).to_pylist())
            samples["calls"] = [len(json.loads(turns)) > 1 for turns in samples["turns"]]
            for problem, part in samples.groupby("problem_id"):
                key = (variant, manifest["spec"]["seed"], str(problem))
                counts = {
                    "samples": len(part),
                    "calls": part["calls"].sum(),
                    "right": part["correct"].sum(),
                }
                rows[key] = dict(zip(("variant", "seed", "problem"), key, strict=True)) | counts
    return pd.DataFrame([rows[key] for key in sorted(rows)])


def scores(table: pd.DataFrame, variant: str, column: str) -> list[np.ndarray]:
    """Shares of samples, as `rpg.stats` takes them: one array (seeds, problems)."""
    part = table[table["variant"] == variant]
    shares = part.assign(share=part[column] / part["samples"])
    return [shares.pivot(index="seed", columns="problem", values="share").to_numpy()]


def tables(table: pd.DataFrame, sweep: str) -> str:
    """In Markdown: both shares of each variant, and the differences that the sweep asks for."""
    names = {"initial": "the initial model"} | SHORT[sweep]
    lines = ["| variant | seeds | with a call | right |", "|---|--:|--:|--:|"]
    for variant, name in names.items():
        called, right = (
            stats.accuracy(scores(table, variant, column)) for column in ("calls", "right")
        )
        cells = [f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in (called, right)]
        lines.append(
            f"| {name} | {len(scores(table, variant, 'calls')[0])} | {' | '.join(cells)} |"
        )
    of = {name: variant for variant, name in names.items()}
    calls = partial(scores, table, column="calls")
    tests = [(one, other, calls(of[one]), calls(of[other])) for one, other in ASKED[sweep]]
    return "\n".join([*lines, "", *differences(("share with a call: variant", "against"), tests)])


def picture(table: pd.DataFrame) -> alt.HConcatChart:
    """Share of samples with a call after training against that before it, a point for each seed,
    and where two arms rest."""
    shares = table.groupby(["variant", "seed"])[["calls", "samples"]].sum()
    share = shares["calls"] / shares["samples"]
    start = share["initial"]
    beside = {REVERSE: 0.0, FORWARD: -0.0015, K3: 0.0015}  # so that none hides another
    points = pd.DataFrame(
        [
            {
                "kl": (kl := name.split(",")[0]),
                "beta": name.rpartition("β ")[2],
                "start": start[seed] + beside[kl],
                "end": share[variant, seed],
            }
            for variant, name in SHORT["tool-use"].items()
            if name != NONE
            for seed in start.index
        ]
    )
    grid = np.linspace(0.05, 0.2, 61)
    curves = pd.DataFrame(
        {"kl": name, "beta": beta, "start": p, "end": resting(p, float(beta), name == REVERSE)}
        for name in (FORWARD, REVERSE)
        for beta in ("0.3", "1")
        for p in grid
    )
    kls = [REVERSE, FORWARD, K3]
    color = alt.Color(
        "kl:N", title=None, scale=alt.Scale(domain=kls, range=list(theme.COLOURS[: len(kls)]))
    )
    shape = alt.Shape(
        "kl:N", title=None, scale=alt.Scale(domain=kls, range=["circle", "square", "triangle"])
    )
    x = alt.X(
        "start:Q", title="samples with a call before training", scale=alt.Scale(domain=[0.05, 0.2])
    )
    y = alt.Y("end:Q", title="after twelve steps", scale=alt.Scale(domain=[0.3, 1.02]))
    panels = []
    for beta in ("0.3", "1"):
        lines = alt.Chart(curves[curves["beta"] == beta]).mark_line(strokeWidth=1.6, clip=True)
        marks = alt.Chart(points[points["beta"] == beta]).mark_point(
            filled=True, size=60, opacity=0.9
        )
        panels.append(
            alt.layer(
                lines.encode(x=x, y=y, color=color),
                marks.encode(x=x, y=y, color=color, shape=shape),
            ).properties(
                width=320, height=280, title=f"β = {beta}; lines: where two arms come to rest"
            )
        )
    return alt.hconcat(*panels, spacing=30)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", choices=SHORT)
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    kept = ROOT / "docs" / "results" / f"{options.sweep}.csv"
    if options.home:
        collect(options.sweep, Layout.at(options.home)).to_csv(kept, index=False)
    table = pd.read_csv(kept)
    print(tables(table, options.sweep))
    if options.sweep == "tool-use":
        drawing = vl_convert.vegalite_to_png(theme.themed(picture(table)).to_dict(), scale=2)
        (PICTURES / "tool-use.png").write_bytes(drawing)


if __name__ == "__main__":
    main()
