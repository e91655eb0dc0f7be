r"""Does an audit at a language model's start say whose loss will learn from old samples? The sweep
`old-samples-losses`.

    rpg sweep configs/sweeps/old-samples-losses.yaml --home start --axis "seed=[100, 101]" \
        --axis "algorithm=[{name: dapo, clip: null}]" -s training.steps=1 -s
            training.checkpoint_every=1
    # docs/results/old-samples-audit.csv, at these runs
    python -m benchmarks.audit_predictions --start start --processes 6
    # docs/results/old-samples-losses.csv, from the sweep
    python -m benchmarks.tool_use old-samples-losses --home lab
    # docs/results/old-samples-steps.csv, from the sweep
    python -m benchmarks.audit_predictions --home lab
    # what the audit predicts, and what came of it
    python -m benchmarks.audit_predictions

The rule of the prediction stands in the sweep's file, and was committed before the audit was made.
`rpg audit NAME --checkpoint RUN/0 --staleness N --beta 1e-4` measures one loss in the same way.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from benchmarks.findings.shared import ROOT
from benchmarks.tool_use import LOSSES, NO_CLIP
from rpg.backends.local.checkpoint_fidelity import Settings, fidelity
from rpg.store import Layout
from rpg.store.current import current_runs
from rpg.store.run_folder import RunFolder

RESULTS = ROOT / "docs" / "results"
SWEEP = "old-samples-losses"
STALENESS = 1, 2, 3
BETA = 1e-4
GOOD, BAD, MATTERS, RANKS = 0.8, 0.5, 0.15, 0.6


def measured(
    home: Path, blocks: int, prompts: int, folder: RunFolder, staleness: int
) -> list[dict[str, object]]:
    """A row for each loss: where its gradient points, beside the on-policy gradient."""
    settings = Settings(
        staleness=staleness, beta=BETA, names=LOSSES, blocks=blocks, prompts=prompts
    )
    result = fidelity(folder, 0, home, settings)
    agreements = {row.name: row.clipped or row.unclipped for row in result.rows}
    agreements[NO_CLIP] = next(row.unclipped for row in result.rows if row.name == "dapo")
    shared = {
        "seed": folder.read_manifest()["spec"]["seed"],
        "staleness": staleness,
        "kl": result.kl,
        "responses": result.responses,
    }
    return [
        {
            "loss": loss,
            **shared,
            **dict(zip(("cosine", "low", "high"), agreement.cosine, strict=True)),
            "bias": agreement.bias[0],
        }
        for loss, agreement in agreements.items()
    ]


def measure(layout: Layout, blocks: int, prompts: int, processes: int) -> pd.DataFrame:
    """The audit of every run of the sweep at every age of the samples, in processes of their
    own."""
    one = partial(measured, layout.home, blocks, prompts)
    tasks = product(current_runs(layout, SWEEP), STALENESS)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        rows = [row for part in pool.map(one, *zip(*tasks, strict=True)) for row in part]
    return pd.DataFrame(rows)


def predicted(score: float) -> str:
    """By the rule of the sweep's file."""
    return "as good" if score >= GOOD else "behind" if score <= BAD else "open"


def by_step(layout: Layout) -> pd.DataFrame:
    """Of each run and step of the sweep: how many updates old the sampler was, and its share of
    right answers."""
    rows = []
    for folder in current_runs(layout, SWEEP):
        manifest = folder.read_manifest()
        for row in folder.read_metrics():
            about = {
                "variant": manifest["variant"],
                "seed": manifest["spec"]["seed"],
                "step": row["step"],
            }
            rows.append(about | {name: row[name] for name in ("sampler_age", "accuracy")})
    return pd.DataFrame(rows)


def table(audit: pd.DataFrame, samples: pd.DataFrame | None, steps: pd.DataFrame | None) -> str:
    """In Markdown: a row for each loss, the best score first; with results of the sweep, which
    predictions held."""
    cosines = audit.groupby(["loss", "staleness"])["cosine"].mean().unstack()
    rows = cosines.add_suffix(" old").round(2)
    rows["score"] = cosines.mean(axis=1)
    rows["predicted"] = rows["score"].map(predicted)
    rows = rows.sort_values("score", ascending=False, kind="stable")
    if samples is None or steps is None:
        return rows.round(2).to_markdown()
    drawn = (
        steps["step"] - steps["sampler_age"] - 1
    )  # updates of the policy that drew a step's samples
    for count in (2, 3):
        rows[f"right after {count}"] = (
            steps[drawn == count].groupby("variant")["accuracy"].mean().round(2)
        )
    counts = samples.groupby(["variant", "seed"])[["calls", "samples"]].sum()
    shares = (counts["calls"] / counts["samples"]).unstack()
    share = shares.mean(axis=1)
    rows["calls at the end"] = share.round(3)
    rows["seeds"] = [", ".join(f"{each:.2f}" for each in shares.loc[loss]) for loss in rows.index]
    behind = share[NO_CLIP] - share
    held = {"as good": behind <= MATTERS, "behind": behind >= MATTERS}
    rows["held"] = [
        ("yes" if held[how][loss] else "no") if how in held else ""
        for loss, how in rows["predicted"].items()
    ]
    lines = [rows.round(2).to_markdown(), ""]
    for one, other in product(
        ("score", "1 old"), ("right after 2", "right after 3", "calls at the end")
    ):
        ranks = rows[one].corr(rows[other], method="spearman")
        lines.append(f"Spearman's correlation of {one} and {other}: {ranks:.2f}")
    return "\n".join(
        [
            *lines,
            f"(Of score and calls at the end, at least {RANKS} was predicted; the others "
            "were looked at afterwards.)",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--start", type=Path, help="measure first, at the runs of one step in this data folder"
    )
    parser.add_argument(
        "--home",
        type=Path,
        help="keep the sweep's steps in docs/results/old-samples-steps.csv first",
    )
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    kept, samples, steps = (
        RESULTS / f"old-samples-{name}.csv" for name in ("audit", "losses", "steps")
    )
    if options.start:
        sizes = options.blocks, options.prompts, options.processes
        measure(Layout.at(options.start), *sizes).to_csv(kept, index=False, float_format="%.6g")
    if options.home:
        by_step(Layout.at(options.home)).to_csv(steps, index=False)
    print(
        table(
            pd.read_csv(kept),
            *(pd.read_csv(file) if file.exists() else None for file in (samples, steps)),
        )
    )


if __name__ == "__main__":
    main()
