"""How often studies call equal variants different, find those that are better, and show that tuning
makes two equal.

    python -m benchmarks.study_error_rates                         # every cell, 2,000 studies each
    python -m benchmarks.study_error_rates --only equal --studies 200
    python -m benchmarks.study_error_rates --only 6                # the sixth cell

Proposals, pruning, the choice of settings, looks and the test of differences are those of studies;
a function of the settings with run-to-run noise stands for training. A run has a level in logits:
its variant's best, less the squared distance of its settings from the best ones, plus noise.
Problems differ in difficulty; those of tuning are not reported.

`equal`: two variants are the same under two names; with levels of a factor, each level changes them
differently by a random amount (in brackets: its standard deviation in logits), in the mean over all
levels not at all. `one search`: the same, but all reported seeds share the settings that one search
found; `shifted`: the best rates of the two are some decades apart, and their best levels are equal.
`better`: one variant is better by the difference that is found in 80 % of studies by
rpg.stats.detectable, from the spread of tuned runs. `untuned`: the best rate of one is ten times
the other's, so that one is better at any rate that both use; after tuning they are equal, which is
tested (two one-sided tests at 5 %).

The exit code is 1 if the upper 95 % bound of an `equal` cell's rate of verdicts is above 0.065,
`better` is found in less than 75 % of studies, or `untuned` is called different in more than 6.5 %.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import special
from scipy import stats as distributions

from rpg import stats
from rpg.study.analysis import Reported, over_levels
from rpg.study.plans import decided, portions
from rpg.study.proposals import batch_seed, propose
from rpg.study.spec import Range, Space
from rpg.study.tuning import Trial, pruned_and_due, winner

FALSE_ALLOWED, POWER_ALLOWED = 0.065, stats.power.POWER - 0.05
RATE, BETA, CLIP = "rate", "beta", "clip"
BEST = {RATE: 1e-3, BETA: 0.1}
LEVELS = {"low": -0.5, "middle": 0.0, "high": -0.2}
"""What a choice of `clip` takes from the level."""


@dataclass(frozen=True)
class Cell:
    """One kind of study; `noise` and `apart` in logits, `width` in decades: a rate that is off by
    it loses one logit."""

    name: str
    space: Space
    trials: int = 4
    seeds: int = 2
    halving: bool = False
    reported: int = 3
    looks: int = 1
    searches: int | None = None
    width: float = 1.0
    noise: float = 0.15
    problems: int = 100
    samples: int = 4
    apart: float = 0.0
    shifted: float = 0.0  # decades between the best rates of the two variants
    levels: int = 1  # of a factor, crossed with the reported seeds
    interaction: float = 0.0  # how much a level changes one variant more than the other, in logits
    matters: float = 0.05


def cells() -> Iterator[Cell]:
    narrow = {RATE: Range(log=(3e-4, 3e-3))}
    wide = {RATE: Range(log=(1e-5, 1e-1))}
    two = {RATE: Range(log=(1e-4, 1e-2)), BETA: Range(log=(1e-3, 1.0))}
    mixed = {RATE: Range(log=(1e-4, 1e-2)), CLIP: Range(choices=tuple(LEVELS))}
    yield Cell("equal", narrow)
    yield Cell("equal", wide)
    yield Cell("equal", wide, reported=5, looks=3)
    yield Cell("equal", two, trials=8, seeds=2, halving=True, reported=5)
    yield Cell("equal", mixed, seeds=1, reported=5, noise=0.3)
    yield Cell(
        "equal", two, trials=12, seeds=1
    )  # the last batch is proposed by the sampler's model
    yield Cell("equal", narrow, levels=3, interaction=0.3)
    yield Cell("equal", wide, reported=5, levels=3, interaction=0.15)
    yield Cell("equal", wide, reported=5, levels=5)
    yield Cell("one search", wide, searches=1)
    yield Cell("one search", two, trials=12, seeds=1, searches=1)
    yield Cell("one search", wide, searches=1, shifted=1.0)
    yield Cell("one search", two, trials=6, halving=True, searches=1, reported=8)
    yield Cell("one search", two, trials=6, halving=True, searches=1, reported=8, shifted=0.5)
    yield Cell("better", narrow, reported=5)
    yield Cell("better", two, trials=8, reported=5, halving=True)
    yield Cell(
        "untuned", {RATE: Range(log=(1e-4, 1e-1))}, trials=8, reported=10, problems=300, shifted=1.0
    )


def level(cell: Cell, variant: int, settings: dict[str, Any]) -> float:
    """The level of a variant's runs with these settings, without noise."""
    best = {**BEST, RATE: BEST[RATE] * 10 ** (cell.shifted * variant)}
    lost = sum(
        (math.log10(settings[name] / best[name]) / cell.width) ** 2
        for name in best
        if name in settings
    )
    return 0.5 + cell.apart * variant - lost + LEVELS.get(settings.get(CLIP, "middle"), 0.0)


def search(
    cell: Cell,
    variant: int,
    draws: tuple[int, int],
    rng: np.random.Generator,
    difficulty: np.ndarray,
) -> float:
    """The level of the settings that a search finds."""
    trials: list[Trial] = []
    while len(trials) < cell.trials:
        settings = propose(cell.space, trials, 4, batch_seed(cell.space, draws, len(trials)))
        batch = [
            Trial(len(trials) + at, one, (None,) * cell.seeds) for at, one in enumerate(settings)
        ]
        while True:
            batch, due = pruned_and_due(batch, cell.halving)
            if not due:
                break
            for at, seed in due:
                run = level(cell, variant, batch[at].settings) + cell.noise * rng.standard_normal()
                right = rng.binomial(cell.samples, special.expit(run - difficulty))
                outcomes = list(batch[at].outcomes)
                outcomes[seed] = float(right.mean() / cell.samples)
                batch[at] = replace(batch[at], outcomes=tuple(outcomes))
        trials += batch
    best = winner(trials)
    assert best
    return level(cell, variant, best.settings)


def study(cell: Cell, number: int) -> np.ndarray:
    """Scores (variants, levels, seeds, problems) of what a study reports."""
    rng = np.random.default_rng(number)
    tuning, reported = rng.normal(0, 1.2, cell.problems), rng.normal(0, 1.2, cell.problems)
    shape = cell.levels, cell.reported
    shared = (
        cell.noise * rng.standard_normal(shape) / math.sqrt(2)
    )  # of a level and seed, in all variants
    scores = np.empty((2, *shape, cell.problems))
    for variant in range(2):
        count = cell.searches or cell.reported
        found = [search(cell, variant, (number, at), rng, tuning) for at in range(count)]
        own = (
            cell.interaction * rng.standard_normal(cell.levels) if cell.levels > 1 else np.zeros(1)
        )
        for at, seed in np.ndindex(shape):
            run = found[seed % count] + own[at] + shared[at, seed]
            run += cell.noise * rng.standard_normal() / math.sqrt(2)
            scores[variant, at, seed] = (
                rng.binomial(cell.samples, special.expit(run - reported)) / cell.samples
            )
    return scores


def verdict(cell: Cell, scores: np.ndarray) -> tuple[str, bool]:
    """What a study says after its looks, and whether it shows that the difference is within
    `matters`."""
    looks: list[stats.Look] = []
    for seeds in portions(range(cell.reported), cell.looks):
        runs = [f"{variant} {seed}" for variant in range(2) for seed in seeds]
        earlier, planned, spent = stats.next_look(looks, "", runs, 2 * cell.reported)
        low, high, said = judge(cell, scores[:, :, : len(seeds)], spent)
        results = {json.dumps(["1", "mean"]): (low, high, said)}
        looks.append(stats.Look("", runs, planned, len(earlier) + 1, spent, [], None, results))
        if decided(results, "mean", cell.matters):
            break
    low, high, _ = judge(cell, scores[:, :, : len(seeds)], 2 * stats.ERROR)
    return said, -cell.matters < low and high < cell.matters


def judge(cell: Cell, scores: np.ndarray, error: float) -> tuple[float, float, str]:
    """Interval and verdict of a look that may make this error."""
    if cell.levels > 1:
        found = Reported(["0", "1"], [scores], [scores.mean(axis=1)], cell.samples, [])
        one = over_levels(found, "0", error)["1"]
        return one.low, one.high, one.verdict
    family = stats.family([scores[None, :, 0]])
    low, high = (float(bound[0, 0]) for bound in family.intervals(error))
    return low, high, stats.verdict(low, high)


def simulate(cell: Cell, studies: int, pool: ProcessPoolExecutor) -> np.ndarray:
    """Scores (studies, variants, levels, seeds, problems)."""
    return np.array(list(pool.map(partial(study, cell), range(studies), chunksize=20)))


def better(cell: Cell, pool: ProcessPoolExecutor) -> Cell:
    """The cell with its second variant as much better as is found in 80 % of studies, by the spread
    of 200 equal ones."""
    scores = simulate(cell, 200, pool)
    each = [stats.spreads([one[:, 0]], cell.samples) for one in scores]
    spread = stats.Spreads(
        *(math.sqrt(np.mean(np.square(part))) for part in zip(*each, strict=True))
    )
    design = stats.Design(2, cell.reported, (cell.problems,), cell.samples)
    accuracy = scores.mean()
    wanted = accuracy + stats.detectable(design, spread)
    base = special.logit(accuracy)
    # Of problems that differ in difficulty a logit moves the mean less than of equal ones: by the
    # mean slope.
    slope = np.mean(
        [
            p * (1 - p)
            for p in special.expit(base + 1.4 * np.random.default_rng(0).normal(0, 1.2, 20_000))
        ]
    )
    return replace(cell, apart=float((wanted - accuracy) / slope), matters=float(wanted - accuracy))


def described(cell: Cell) -> str:
    """A cell's space and effort."""
    space = ", ".join(f"{name} in {list(values.ends)}" for name, values in cell.space.items())
    effort = (
        f"{cell.searches or cell.reported} x {cell.trials} trials, {cell.seeds} "
        f"seeds{', halving' * cell.halving}"
    )
    effort += f", best rates {cell.shifted:g} decades apart" * (cell.shifted > 0)
    crossed = f" x {cell.levels} levels ({cell.interaction:g})" * (cell.levels > 1)
    return f"{space} | {effort} | {cell.reported}{crossed}, {cell.looks} looks"


def row(cell: Cell, studies: int, pool: ProcessPoolExecutor) -> tuple[str, bool]:
    """A line of the table, and whether the cell is as it should be."""
    cell = better(cell, pool) if cell.name == "better" else cell
    scores = simulate(cell, studies, pool)
    said = [verdict(cell, one) for one in scores]
    found = sum(verdict != "within noise" for verdict, _ in said)
    upper = float(distributions.beta.ppf(0.95, found + 1, studies - found))
    rate, alike = found / studies, np.mean([equal for _, equal in said])
    good = {
        "equal": upper <= FALSE_ALLOWED,
        "one search": True,
        "better": rate >= POWER_ALLOWED,
        "untuned": upper <= FALSE_ALLOWED,
    }[cell.name]
    difference = np.mean(scores[:, 1] - scores[:, 0])
    return (
        f"| {cell.name} | {described(cell)} | {difference:+.3f} | {rate:.4f} | {upper:.4f} "
        f"| {alike:.2f} |",
        good,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cells of this name, or the cell of this number")
    parser.add_argument("--studies", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    print(
        "| cell | space | searches per variant | reported seeds | difference | verdicts | "
        "95 % bound | within matters |"
    )
    print("|---|---|---|---|--:|--:|--:|--:|")
    wrong = False
    with ProcessPoolExecutor(options.processes) as pool:
        for number, cell in enumerate(cells(), 1):
            if options.only in ("", cell.name, str(number)):
                line, good = row(cell, options.studies, pool)
                print(line if good else f"{line} <- not as promised", flush=True)
                wrong |= not good
    sys.exit(wrong)


if __name__ == "__main__":
    main()
