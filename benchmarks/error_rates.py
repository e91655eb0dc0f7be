"""How often verdicts are false, intervals cover and differences are found: simulated sweeps, analysed as reports do.

    python -m benchmarks.error_rates                          # every cell of the grid, 1,000 sweeps each
    python -m benchmarks.error_rates --only heavy --sweeps 10000
    python -m benchmarks.error_rates --looks --sweeps 400     # seeds added one by one, tested each time

A problem's chance of a right answer is drawn from a beta distribution (or a logistic-normal one); a seed shifts the logits
of all problems of its variant. The shifts of one seed are correlated across variants, and may differ in size between them.
Variants are equal in expected accuracy, also where their seeds' spreads differ; for power, some or all of them are moved
away from the baseline by a multiple of the standard error. `former` is the test that was used until version 0.6:
Satterthwaite's degrees of freedom and Holm's correction.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from scipy import special

from rpg.stats import ERROR, MINIMUM_SEEDS, Family, Look, family, holm, next_look

Array = np.ndarray


@dataclass(frozen=True)
class Cell:
    """One kind of sweep; `spread` is the seeds' standard deviation in logits, `unequal` how variants differ in it."""

    name: str = "equal"
    variants: int = 7  # with the baseline
    seeds: int = 3
    problems: int = 192
    samples: int = 4
    accuracy: float = 0.5
    spread: float = 0.2
    correlation: float = 0.5
    unequal: str = "no"
    heavy: bool = False
    logistic: bool = False
    interaction: float = 0.0  # standard deviation of variant x problem, in logits
    benchmarks: int = 1
    apart: float = 0.0  # accuracies of the variants lie on a line of this length, in logits

    def spreads(self) -> Array:
        factors = np.ones(self.variants)
        if self.unequal == "one variant 3 x":
            factors[-1] = 3
        elif self.unequal == "baseline 3 x":
            factors[0] = 3
        elif self.unequal == "half 3 x":
            factors[self.variants // 2 :] = 3
        elif self.unequal == "0.3 to 3 x":
            factors = np.linspace(0.3, 3, self.variants)
        return factors * self.spread


def grid() -> Iterator[Cell]:
    """The cells. With two seeds there are intervals only."""
    base = Cell()
    for variants, seeds, spread in product((3, 7, 15), (2, 3, 5, 10), (0.0, 0.1, 0.2, 0.4, 0.8)):
        yield replace(base, variants=variants, seeds=seeds, spread=spread)
    small = replace(base, name="small", problems=30)
    for seeds, samples, accuracy, spread in product(
        (3, 5), (1, 4, 32), (0.05, 0.5, 0.9, 0.98), (0.0, 0.2, 0.8)
    ):
        yield replace(small, seeds=seeds, samples=samples, accuracy=accuracy, spread=spread)
    unequal = ("one variant 3 x", "baseline 3 x", "half 3 x", "0.3 to 3 x")
    kinds = [
        replace(base, name="uncorrelated", correlation=0.0),
        replace(base, name="correlated", correlation=0.9),
        replace(base, name="heavy", heavy=True),
        replace(base, name="logistic", logistic=True),
        replace(base, name="interaction", interaction=0.7, problems=30),
        replace(base, name="benchmarks", benchmarks=3, problems=30),
        replace(base, name="apart", apart=4.0),
        *(replace(base, name="unequal", unequal=kind) for kind in unequal),
    ]
    for kind, variants, seeds, spread in product(kinds, (3, 7, 15), (3, 5, 10), (0.1, 0.3)):
        yield replace(kind, variants=variants, seeds=seeds, spread=spread)


def _shifts(rng: np.random.Generator, cell: Cell, shape: tuple[int, ...]) -> Array:
    return rng.standard_t(3, shape) / math.sqrt(3) if cell.heavy else rng.standard_normal(shape)


def _problems(rng: np.random.Generator, cell: Cell, shape: tuple[int, ...]) -> Array:
    if cell.logistic:
        return np.asarray(special.logit(cell.accuracy) * 1.4 + 1.5 * rng.standard_normal(shape))
    chance = rng.beta(2 * cell.accuracy, 2 * (1 - cell.accuracy), shape)
    return np.asarray(special.logit(np.clip(chance, 1e-4, 1 - 1e-4)))


@cache
def _population(cell: Cell) -> tuple[Array, Array]:
    """Quantiles of the problems' logits, interactions included, and of a seed's shift in units of its spread."""
    rng = np.random.default_rng(5)
    problems = _problems(rng, cell, (400_000,)) + cell.interaction * rng.standard_normal(400_000)
    shifts = math.sqrt(cell.correlation) * _shifts(rng, cell, (400_000,))
    shifts += math.sqrt(1 - cell.correlation) * _shifts(rng, cell, (400_000,))
    places = (np.arange(300) + 0.5) / 300
    return np.quantile(problems, places), np.quantile(np.concatenate([shifts, -shifts]), places)


def _accuracy(cell: Cell, offset: float, spread: float) -> float:
    kind = Cell(
        accuracy=cell.accuracy, correlation=cell.correlation, heavy=cell.heavy, logistic=cell.logistic,
        interaction=cell.interaction,
    )  # fmt: skip
    problems, shifts = _population(kind)
    return float(special.expit(problems[:, None] + offset + spread * shifts).mean())


@cache
def _offset(cell: Cell, target: float, spread: float) -> float:
    """The offset in logits with which a variant of this spread has the accuracy `target`."""
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _accuracy(cell, middle, spread) < target else (low, middle)
    return (low + high) / 2


def draw(rng: np.random.Generator, cell: Cell, number: int, moved: Array) -> tuple[list[Array], Array]:
    """Scores (number, V, S, P) per benchmark, and the expected accuracies; `moved` shifts the variants' accuracies."""
    wanted = moved + [
        _accuracy(cell, apart, cell.spread) for apart in np.linspace(0, cell.apart, cell.variants) - cell.apart / 2
    ]  # fmt: skip
    wanted = np.clip(wanted, 0.002, 0.998)
    spreads = cell.spreads()
    offsets = np.array([_offset(cell, float(w), float(s)) for w, s in zip(wanted, spreads, strict=True)])
    common = math.sqrt(cell.correlation) * _shifts(rng, cell, (number, 1, cell.seeds))
    own = math.sqrt(1 - cell.correlation) * _shifts(rng, cell, (number, cell.variants, cell.seeds))
    shifts = spreads[:, None] * (common + own) + offsets[:, None]
    scores = []
    for _ in range(cell.benchmarks):
        logits = _problems(rng, cell, (number, 1, 1, cell.problems)) + shifts[..., None]
        if cell.interaction:
            logits += cell.interaction * rng.standard_normal((number, cell.variants, 1, cell.problems))
        scores.append(rng.binomial(cell.samples, special.expit(logits)) / cell.samples)
    return scores, wanted


def former(scores: list[Array]) -> Array:
    """p-values (N, V - 1) of the former test, before Holm's correction."""
    parts = len(scores)
    seeds = scores[0].shape[2]
    per_seed = v_problems = v_both = spread = np.zeros(())
    for array in scores:
        pair = array[:, 1:] - array[:, :1]
        count, by_seed, by_problem = pair.shape[3], pair.mean(axis=3), pair.mean(axis=2)
        v = by_problem.var(axis=2, ddof=1) / count / parts**2
        rest = pair - by_seed[..., None] - by_problem[:, :, None] + by_seed.mean(axis=2)[..., None, None]
        both = (rest**2).sum(axis=(2, 3)) / ((seeds - 1) * (count - 1)) / (seeds * count) / parts**2
        per_seed, v_problems, v_both = per_seed + by_seed / parts, v_problems + v, v_both + both
        spread = spread + v**2 / (count - 1) + both**2 / ((seeds - 1) * (count - 1))
    v_seeds = per_seed.var(axis=2, ddof=1) / seeds
    variance = np.maximum.reduce([v_problems + v_seeds - v_both, v_problems, v_seeds])
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.maximum(1, variance**2 / (spread + v_seeds**2 / (seeds - 1)))
        p_values = 2 * special.stdtr(df, -np.abs(per_seed.mean(axis=2)) / np.sqrt(variance))
    return np.asarray(np.where(variance > 0, p_values, 1.0 * (per_seed.mean(axis=2) == 0)))


@dataclass
class Rates:
    """Shares of sweeps: false verdicts of both tests, simultaneous coverage; and of true differences found by both."""

    former: float = 0.0
    false: float = 0.0
    covered: float = 0.0
    former_found: float = 0.0
    found: float = 0.0
    error: float = 0.0  # of the mean difference, median of the variants


def rates(cell: Cell, sweeps: int, seed: int = 0, moved: Array | None = None) -> Rates:
    """Simulate a cell; `moved` (V,) are differences of accuracy, none by default."""
    moved = np.zeros(cell.variants) if moved is None else moved
    rng = np.random.default_rng(seed)
    size = cell.variants * cell.seeds * cell.problems * cell.benchmarks
    chunk = max(20, min(250, 2_000_000 // size))
    sums, differences = np.zeros(5), []
    for start in range(0, sweeps, chunk):
        scores, expected = draw(rng, cell, min(chunk, sweeps - start), moved)
        true = expected[1:] - expected[0]
        fitted: Family = family(scores)
        right = np.sign(fitted.difference) == np.sign(np.where(np.abs(true) < 1e-6, 0, true))
        for place, p_values in enumerate((former(scores), fitted.p_values())):
            named = holm(p_values) <= ERROR
            sums[place] += (named & ~right).any(axis=1).sum()
            sums[3 + place] += (named & right).sum() / max(1, (np.abs(true) >= 1e-6).sum())
        inside = fitted.p_values(true) >= ERROR / (cell.variants - 1)
        sums[2] += inside.all(axis=1).sum()
        differences.append(fitted.difference)
    error = float(np.median(np.concatenate(differences).std(axis=0)))
    return Rates(*map(float, [*sums / sweeps, error]))


POWER_AT = 3.5
"""Differences whose power is compared, in standard errors: neither test finds all or none of them."""


def measured(cell: Cell, sweeps: int) -> tuple[Rates, Rates]:
    """Rates of equal variants, and of variants that all differ from the baseline by `POWER_AT` standard errors."""
    equal = rates(cell, sweeps)
    direction = -1 if cell.accuracy > 0.6 else 1
    room = 0.9 * (cell.accuracy if direction < 0 else 1 - cell.accuracy)
    moved = np.full(cell.variants, direction * min(POWER_AT * equal.error, room))
    moved[0] = 0
    return equal, rates(cell, max(200, sweeps // 4), seed=1, moved=moved)


def looked_at(cell: Cell, most: int, sweeps: int) -> tuple[float, float]:
    """Shares of sweeps of equal variants with a false verdict, if seeds are added one by one up to `most` and all are
    tested each time: by the levels of rpg.stats.next_look, and at 5 % each time."""
    rng = np.random.default_rng(0)
    complete = replace(cell, seeds=most)
    false = np.zeros(2)
    for start in range(0, sweeps, 50):
        scores, _ = draw(rng, complete, min(50, sweeps - start), np.zeros(cell.variants))
        ever = np.zeros((2, len(scores[0])), bool)
        looks: list[Look] = []
        for seeds in range(cell.seeds, most + 1):
            runs = [str(run) for run in range(seeds * cell.variants)]
            _, planned, level = next_look(looks, "", runs, len(runs))
            looks.append(Look("", tuple(runs), planned, seeds, level, (), None, {}))
            smallest = holm(family([array[:, :, :seeds] for array in scores]).p_values()).min(axis=1)
            ever |= np.stack([smallest <= level, smallest <= ERROR])
        false += ever.sum(axis=1)
    return float(false[0] / sweeps), float(false[1] / sweeps)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=1000, help="simulated sweeps of each cell")
    parser.add_argument("--only", help="cells of this name")
    parser.add_argument("--looks", action="store_true", help="seeds added one by one")
    options = parser.parse_args()
    if options.looks:
        print("| seeds | spread | false, as reports do | false, 5 % each time |\n|---|--:|--:|--:|")
        for seeds, spread in product((3, 5), (0.0, 0.2, 0.8)):
            ours, naive = looked_at(Cell(seeds=seeds, spread=spread), 20, options.sweeps)
            print(f"| {seeds} to 20 | {spread:g} | {ours:.3f} | {naive:.3f} |", flush=True)
        return
    heads = "cell,variants,seeds,problems x k,accuracy,spread,false (former),false,covered,found (former),found".split(
        ","
    )
    print(f"| {' | '.join(heads)} |\n|---|{'--:|' * (len(heads) - 1)}")
    for cell in grid():
        if options.only not in (None, cell.name):
            continue
        equal, apart = measured(cell, options.sweeps)
        name = cell.name if cell.unequal == "no" else cell.unequal
        kind = [
            name,
            cell.variants,
            cell.seeds,
            f"{cell.problems} x {cell.samples}",
            f"{cell.accuracy:g}",
            f"{cell.spread:g}",
        ]
        shares = [equal.former, equal.false, min(equal.covered, apart.covered)]
        shown = [f"{share:.3f}" for share in shares] + [f"{apart.former_found:.2f}", f"{apart.found:.2f}"]
        if cell.seeds < MINIMUM_SEEDS:
            shown[1] = shown[4] = ""
        print(f"| {' | '.join(map(str, [*kind, *shown]))} |", flush=True)


if __name__ == "__main__":
    main()
