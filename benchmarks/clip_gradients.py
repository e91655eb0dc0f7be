"""Bias and noise of the gradient under each clip of the sweep `clip-noise`, on real policies.

    rpg sweep clip-noise --home lab
    # docs/results/clip-gradients.csv, and a table
    python -m benchmarks.clip_gradients --home lab

At the initial model of each seed, one rollout of the baseline's training later: what the samples
of the initial model say about that policy's gradient, under each clip. Bias and noise are those of
`rpg audit --checkpoint`, over the length of the exact gradient.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.findings.clips import GRADIENTS, NO_CLIP, SWEEP, of_gradients
from rpg.backends.local.checkpoint_fidelity import Settings, fidelity
from rpg.catalogue import algorithm
from rpg.store import Layout
from rpg.store.current import current_runs

BOUNDS = [
    (0.1, 0.1, 10),
    (0.2, 0.1, 10),
    (0.1, 0.28, 10),
    (0.2, 0.28, 2),
    (0.2, 0.28, 10),
    (0.2, 0.5, 10),
    (0.4, 0.28, 10),
]
BETA = 0.1


def measure(home: Path, blocks: int, prompts: int) -> Iterator[pd.DataFrame]:
    """For each seed, a row for each clip."""
    losses = {}
    for low, high, c in BOUNDS:
        clip = {"low": low, "high": high, "c": c}
        losses[f"{low}/{high}/{c}"] = algorithm("rpg-reinforce-urkl", clip=clip)
    settings = Settings(staleness=1, beta=BETA, losses=losses, blocks=blocks, prompts=prompts)
    for folder in current_runs(Layout.at(home), SWEEP):
        spec = folder.read_manifest()["spec"]
        if spec["algorithm"]["clip"] != {"low": 0.2, "high": 0.28, "c": 10.0, "gradient": "exact"}:
            continue
        measured = fidelity(folder, 0, home, settings)
        bare = measured.rows[0].unclipped
        rows = []
        by_clip = {row.name: row.clipped for row in measured.rows} | {NO_CLIP: bare}
        for name, found in by_clip.items():
            assert found is not None
            rows.append(
                {
                    "seed": spec["seed"],
                    "clip": name,
                    "bias": found.bias[0],
                    "noise": found.noise[0],
                    "kl": measured.kl,
                }
            )
        yield pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, help="measure again, in this data folder")
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=16)
    options = parser.parse_args()
    if options.home is not None:
        seeds = []
        for seed in measure(options.home, options.blocks, options.prompts):
            seeds.append(seed)
            measured = pd.concat(seeds).sort_values(["seed", "clip"])
            measured.round(5).to_csv(GRADIENTS, index=False)
    print(of_gradients())


if __name__ == "__main__":
    main()
