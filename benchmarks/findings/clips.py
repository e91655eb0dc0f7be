"""What each clip of the sweep `clip-noise` does to accuracy, entropy and gradients, as
docs/findings.md has it, from the kept results.

    python -m benchmarks.findings.clips
"""

import re

import numpy as np
import pandas as pd

from benchmarks.findings.shared import ROOT
from rpg.stats import t_quantile

SWEEP = "clip-noise"
STEPS = ROOT / "docs" / "results" / f"{SWEEP}.csv"
"""By `python -m benchmarks.findings`."""
GRADIENTS = ROOT / "docs" / "results" / "clip-gradients.csv"
"""By `python -m benchmarks.clip_gradients`."""
NO_CLIP = "none"
VARIANCES = (
    ("0.1/0.1/10", "0.2/0.28/10"),
    ("0.2/0.5/10", "0.4/0.28/10"),
    ("0.2/0.28/2", "0.2/0.28/10"),
    ("0.2/0.28/10", NO_CLIP),
)
"""Pairs of clips whose order was predicted."""


def clip_of(variant: str) -> str:
    """`low/high/c` of a variant of the sweep."""
    bounds = re.search(r"low=([\d.]+),high=([\d.]+),c=([\d.]+)", variant)
    return "/".join(bounds.groups()) if bounds else NO_CLIP


def of_trainings() -> str:
    """Means over seeds, and the lowest and highest seed: accuracy at the end; entropy and gradient
    norm, means over the steps of a training."""
    steps = pd.read_csv(STEPS)
    steps["clip"] = steps["variant"].map(clip_of)
    by_seed = steps.groupby(["clip", "seed"])
    table = by_seed[["entropy", "grad_norm"]].mean()
    table["accuracy"] = by_seed["accuracy"].last()
    lines = ["| clip | accuracy | entropy | gradient norm |", "|---|--:|--:|--:|"]
    for clip, seeds in table.groupby("clip"):
        cells = []
        for name, digits in (("accuracy", 3), ("entropy", 3), ("grad_norm", 2)):
            values = seeds[name]
            low = f"{values.min():.{digits}f}"
            high = f"{values.max():.{digits}f}"
            cells.append(f"{values.mean():.{digits}f} ({low} to {high})")
        lines.append(f"| {clip} | {' | '.join(cells)} |")
    return "\n".join(lines)


def of_gradients() -> str:
    """Means over seeds: the bias of the gradient, and its variance over that without a clip, seed
    by seed, with the least and the largest."""
    measured = pd.read_csv(GRADIENTS)
    noise = measured.pivot(index="seed", columns="clip", values="noise")
    relative = (noise**2).div(noise[NO_CLIP] ** 2, axis=0)
    bias = measured.groupby("clip")["bias"].mean()
    lines = ["| clip | bias | variance, over that without a clip |", "|---|--:|--:|"]
    for clip in bias.index:
        ratios = relative[clip]
        spread = f"{ratios.mean():.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
        lines.append(f"| {clip} | {bias[clip]:.2f} | {spread} |")
    return "\n".join(lines)


def of_variances() -> str:
    """Ratios of two clips' variances over seeds, geometric means with 95 % intervals: Student's t
    of the logarithms, paired by seed, for one comparison each."""
    measured = pd.read_csv(GRADIENTS)
    noise = measured.pivot(index="seed", columns="clip", values="noise")
    logarithms = np.log(noise**2)
    lines = ["| clip | against | variance |", "|---|---|--:|"]
    for clip, other in VARIANCES:
        each = logarithms[clip] - logarithms[other]
        half = t_quantile(len(each) - 1) * each.sem()
        low, middle, high = np.exp([each.mean() - half, each.mean(), each.mean() + half])
        lines.append(f"| {clip} | {other} | {middle:.2f} [{low:.2f}, {high:.2f}] |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(of_trainings())
    print(f"\n{of_gradients()}")
    print(f"\n{of_variances()}")
