"""How often verdicts are false, intervals cover and differences are found: simulated sweeps,
analysed as reports do.

    python -m benchmarks.error_rates                          # every cell of the grid, 1,000 sweeps each
    python -m benchmarks.error_rates --only heavy --sweeps 10000
    python -m benchmarks.error_rates --beyond                 # seeds that differ by more than the test was made for
    python -m benchmarks.error_rates --looks --sweeps 600     # seeds added one by one, tested each time
    python -m benchmarks.error_rates --accuracies             # intervals of accuracies, not of differences

A problem's chance of a right answer is drawn from a beta distribution; a seed shifts the logits of
all problems of its variant. The shifts of one seed are correlated across variants, and may differ
in size between them. Cells of other names replace a part of this; `probit` replaces all of it.
Variants are equal in expected accuracy, also where their seeds' spreads differ; for power, they are
moved away from the baseline by a multiple of the standard error. `former` is the test that was used
until version 0.2: Satterthwaite's degrees of freedom and Holm's correction.

Cells in doubt (near a bound, or where the former test found more) are simulated again, with 10,000
sweeps. The exit code is 1 if, with three seeds or more, a cell's rate of false verdicts exceeds
0.06, or its simultaneous coverage is below 0.94, by more than the error of the simulation (binomial
test at 5 %, Bonferroni over the cells).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas
from scipy import special, stats

from rpg.stats import ERROR, MINIMUM_SEEDS, Look, accuracy, components, family, holm, next_look

Array = np.ndarray
FALSE_ALLOWED, COVERED_AT_LEAST = 0.06, 0.94
IN_DOUBT = 10_000


@dataclass(frozen=True)
class Cell:
    """One kind of sweep; `spread` is the seeds' standard deviation in logits, `unequal` how
    variants differ in it."""

    name: str = "equal"
    variants: int = 7  # with the baseline
    seeds: int = 3
    problems: int = 192
    samples: int = 4
    accuracy: float = 0.5
    spread: float = 0.2
    correlation: float = 0.5
    unequal: str = ""
    heavy: bool = False  # shifts have a t distribution with 3 degrees of freedom
    # problems are normal in logits or probits, with this standard deviation, not beta
    problem_scale: float = 0.0
    probit: bool = False
    interaction: float = 0.0  # standard deviation of variant x problem, in logits
    seed_interaction: float = 0.0  # and of variant x seed x problem
    benchmarks: int = 1
    apart: float = 0.0  # accuracies of the variants lie on a line of this length, in logits
    collapsed: bool = False  # the last variant is always wrong

    def spreads(self) -> Array:
        place = np.arange(self.variants)
        factors = {
            "one variant 3 x": 1 + 2 * (place == self.variants - 1),
            "baseline 3 x": 1 + 2 * (place == 0),
            "half 3 x": 1 + 2 * (place >= self.variants // 2),
            "0.3 to 3 x": np.linspace(0.3, 3, self.variants),
        }
        return np.asarray(factors.get(self.unequal, np.ones(self.variants)) * self.spread)

    @property
    def title(self) -> list[str]:
        name = self.unequal + ", heavy" * self.heavy if self.unequal else self.name
        kind = [name, self.variants, self.seeds, f"{self.problems} x {self.samples}"]
        return [*map(str, kind), f"{self.accuracy:g}", f"{self.spread:g}"]


def grid() -> Iterator[Cell]:
    """The cells. With two seeds there are intervals only."""
    base = Cell()
    for variants, seeds, spread in product((3, 7, 15), (2, 3, 5, 10), (0.0, 0.1, 0.2, 0.4, 0.8)):
        yield replace(base, variants=variants, seeds=seeds, spread=spread)
    small = replace(base, name="small", problems=30)
    for seeds, samples, share, spread in product(
        (3, 5), (1, 4, 32), (0.05, 0.5, 0.9, 0.98), (0.0, 0.2, 0.8)
    ):
        yield replace(small, seeds=seeds, samples=samples, accuracy=share, spread=spread)
    probit = replace(
        base,
        name="probit",
        probit=True,
        problem_scale=1.2,
        heavy=True,
        interaction=0.3,
        seed_interaction=0.3,
    )
    kinds = [
        replace(base, name="uncorrelated", correlation=0.0),
        replace(base, name="correlated", correlation=0.9),
        replace(base, name="heavy", heavy=True),
        replace(base, name="logistic", problem_scale=1.5),
        replace(base, name="interaction", interaction=0.7, problems=30),
        replace(base, name="benchmarks", benchmarks=3, problems=30),
        replace(base, name="apart", apart=4.0),
        replace(base, name="unequal", unequal="one variant 3 x"),
        replace(base, name="unequal", unequal="baseline 3 x"),
        replace(base, name="unequal", unequal="half 3 x"),
        replace(base, name="unequal", unequal="0.3 to 3 x"),
        probit,
        replace(probit, name="probit, one collapsed", collapsed=True, accuracy=0.2),
    ]
    for kind, variants, seeds, spread in product(kinds, (3, 7, 15), (3, 5, 10), (0.1, 0.3)):
        yield replace(kind, variants=variants, seeds=seeds, spread=spread)


def beyond() -> Iterator[Cell]:
    """Cells that the test was not made for: spreads of up to 2.4 logits, where a seed is nearly all
    right or all wrong; and few problems, or few that are neither nearly always right nor wrong, of
    which each suits other variants."""
    kinds = ("one variant 3 x", "baseline 3 x", "half 3 x", "0.3 to 3 x")
    for unequal, heavy, variants, seeds in product(kinds, (False, True), (3, 7), (3, 5, 10)):
        yield Cell(unequal=unequal, heavy=heavy, variants=variants, seeds=seeds, spread=0.8)
    few = Cell(name="few problems", interaction=0.7, spread=0.3)
    for variants, problems, seeds in product((3, 7), (5, 10, 15, 20), (3, 5, 10)):
        yield replace(few, variants=variants, problems=problems, seeds=seeds)
    few = replace(few, name="few that move", samples=32)
    for share, problems, seeds in product((0.9, 0.98), (30, 60), (3, 5, 10)):
        yield replace(few, accuracy=share, problems=problems, seeds=seeds)


def _shifts(rng: np.random.Generator, cell: Cell, shape: tuple[int, ...]) -> Array:
    return rng.standard_t(3, shape) / math.sqrt(3) if cell.heavy else rng.standard_normal(shape)


def _problems(rng: np.random.Generator, cell: Cell, shape: tuple[int, ...]) -> Array:
    if cell.problem_scale:
        return np.asarray(cell.problem_scale * rng.standard_normal(shape))
    chance = rng.beta(2 * cell.accuracy, 2 * (1 - cell.accuracy), shape)
    return np.asarray(special.logit(np.clip(chance, 1e-4, 1 - 1e-4)))


def _chances(cell: Cell, latent: Array) -> Array:
    return np.asarray(special.ndtr(latent) if cell.probit else special.expit(latent))


@cache
def _population(cell: Cell) -> tuple[Array, Array]:
    """Quantiles of the problems' logits, interactions included, and of a seed's shift in units of
    its spread."""
    rng = np.random.default_rng(5)
    both = math.hypot(cell.interaction, cell.seed_interaction)
    problems = _problems(rng, cell, (400_000,)) + both * rng.standard_normal(400_000)
    shifts = math.sqrt(cell.correlation) * _shifts(rng, cell, (400_000,))
    shifts += math.sqrt(1 - cell.correlation) * _shifts(rng, cell, (400_000,))
    places = (np.arange(300) + 0.5) / 300
    return np.quantile(problems, places), np.quantile(np.concatenate([shifts, -shifts]), places)


def _accuracy(cell: Cell, offset: float, spread: float) -> float:
    problems, shifts = _population(cell)
    return float(_chances(cell, problems[:, None] + offset + spread * shifts).mean())


@cache
def _offset(cell: Cell, target: float, spread: float) -> float:
    """The offset in logits with which a variant of this spread has the accuracy `target`."""
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _accuracy(cell, middle, spread) < target else (low, middle)
    return (low + high) / 2


def draw(
    rng: np.random.Generator, cell: Cell, number: int, moved: Array
) -> tuple[list[Array], Array]:
    """Scores (number, V, S, P) per benchmark, and the expected accuracies; `moved` shifts the
    variants' accuracies."""
    kind = replace(
        cell,
        name="",
        variants=0,
        seeds=0,
        problems=0,
        samples=0,
        unequal="",
        benchmarks=0,
        spread=0,
    )
    lines = np.linspace(0, cell.apart, cell.variants) - cell.apart / 2
    middle = 0.0 if cell.apart else _offset(kind, cell.accuracy, cell.spread)
    wanted = moved + [
        _accuracy(kind, middle + line * bool(cell.apart), cell.spread) for line in lines
    ]
    wanted = np.clip(wanted, 0.002, 0.998)
    spreads = cell.spreads()
    offsets = np.array(
        [_offset(kind, float(w), float(s)) for w, s in zip(wanted, spreads, strict=True)]
    )
    common = math.sqrt(cell.correlation) * _shifts(rng, cell, (number, 1, cell.seeds))
    single = math.sqrt(1 - cell.correlation) * _shifts(
        rng, cell, (number, cell.variants, cell.seeds)
    )
    shifts = spreads[:, None] * (common + single) + offsets[:, None]
    scores = []
    for _ in range(cell.benchmarks):
        latent = (_problems(rng, cell, (number, 1, 1, cell.problems)) + shifts[..., None]).astype(
            np.float32
        )
        if cell.interaction:
            shape = (number, cell.variants, 1, cell.problems)
            latent += cell.interaction * rng.standard_normal(shape, np.float32)
        if cell.seed_interaction:
            latent += cell.seed_interaction * rng.standard_normal(latent.shape, np.float32)
        chances = _chances(cell, latent)
        if cell.collapsed:
            chances[:, -1] = 0
        scores.append(_answers(rng, chances, cell.samples) / cell.samples)
    if cell.collapsed:
        wanted[-1] = 0
    return scores, wanted


def _answers(rng: np.random.Generator, chances: Array, samples: int) -> Array:
    if samples > 8:
        return rng.binomial(samples, chances)
    right = np.zeros(chances.shape, np.int8)
    for _ in range(samples):
        right += rng.random(chances.shape, np.float32) < chances
    return right


def former(scores: list[Array]) -> Array:
    """p-values (N, V - 1) of the former test, before Holm's correction."""
    seeds = scores[0].shape[2]
    pair = components([array[:, 1:] - array[:, :1] for array in scores])
    variance = np.maximum.reduce(
        [pair.problems + pair.seeds - pair.both, pair.problems, pair.seeds]
    )
    spread = pair.problems_spread + pair.both_spread + pair.seeds**2 / (seeds - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.maximum(1, variance**2 / spread)
        p_values = 2 * special.stdtr(df, -np.abs(pair.mean) / np.sqrt(variance))
    return np.asarray(np.where(variance > 0, p_values, 1.0 * (pair.mean == 0)))


class Outcomes(NamedTuple):
    """Of simulated sweeps (N,): whether there was a false verdict by either test, and whether all
    intervals covered; the share of true differences that each test found; and the differences (N, V
    - 1)."""

    former: Array
    false: Array
    covered: Array
    former_found: Array
    found: Array
    differences: Array


def simulated(cell: Cell, sweeps: int, seed: int, moved: Array) -> Outcomes:
    """Simulate a cell; `moved` (V,) are differences of accuracy."""
    rng = np.random.default_rng(seed)
    size = cell.variants * cell.seeds * cell.problems * cell.benchmarks
    chunk = max(20, min(250, 2_000_000 // size))
    parts = []
    for start in range(0, sweeps, chunk):
        scores, expected = draw(rng, cell, min(chunk, sweeps - start), moved)
        true = expected[1:] - expected[0]
        apart = np.abs(true) >= 1e-6
        fitted = family(scores)
        right = np.sign(fitted.difference) == np.where(apart, np.sign(true), 0)
        named = [holm(p_values) <= ERROR for p_values in (former(scores), fitted.p_values())]
        false = [(verdicts & ~right).any(axis=1) for verdicts in named]
        found = [(verdicts & right).sum(axis=1) / max(1, apart.sum()) for verdicts in named]
        covered = np.all(fitted.p_values(true) >= ERROR / len(true), axis=1)
        parts.append(Outcomes(false[0], false[1], covered, found[0], found[1], fitted.difference))
    return Outcomes(*map(np.concatenate, zip(*parts, strict=True)))


POWER_AT = 3.5
"""Differences whose power is compared, in standard errors: neither test finds all or none of them.
"""


class Measured(NamedTuple):
    """A cell with equal variants, and with variants that all differ from the baseline by `POWER_AT`
    standard errors."""

    cell: Cell
    equal: Outcomes
    apart: Outcomes

    @property
    def false(self) -> float:
        return float(self.equal.false.mean())

    @property
    def covered(self) -> Array:
        """Of the kind in which fewer intervals cover."""
        return min(
            (self.equal.covered, self.apart.covered), key=lambda covered: float(covered.mean())
        )

    def lost(self, error: float) -> float:
        """How much more of the differences the former test found, if that is beyond the error of
        the simulation; else 0."""
        lost = self.apart.former_found - self.apart.found
        beyond = stats.norm.isf(error) * max(float(lost.std()), 1e-9) / math.sqrt(len(lost))
        return float(lost.mean()) if lost.mean() > beyond else 0.0

    def row(self) -> list[str]:
        shown = [
            f"{self.equal.former.mean():.3f}",
            f"{self.false:.3f}",
            f"{self.covered.mean():.3f}",
        ]
        shown += [f"{self.apart.former_found.mean():.2f}", f"{self.apart.found.mean():.2f}"]
        if self.cell.seeds < MINIMUM_SEEDS:
            shown[1] = shown[4] = ""
        return [*self.cell.title, *shown]


def measured(cell: Cell, sweeps: int) -> Measured:
    equal = simulated(cell, sweeps, 0, np.zeros(cell.variants))
    error = float(np.median(equal.differences.std(axis=0)))
    direction = -1 if cell.accuracy > 0.6 else 1
    room = 0.9 * (cell.accuracy if direction < 0 else 1 - cell.accuracy)
    moved = np.full(cell.variants, direction * min(POWER_AT * error, room))
    moved[0] = 0
    apart = simulated(cell, max(200, sweeps // 4), 1, moved)
    result = Measured(cell, equal, apart)
    near = result.false > 0.055 or result.covered.mean() < 0.945 or result.lost(ERROR)
    return (
        measured(cell, IN_DOUBT)
        if near and cell.seeds >= MINIMUM_SEEDS and sweeps < IN_DOUBT
        else result
    )


def _tail(events: Array, share: float, tail: str) -> float:
    return float(stats.binomtest(int(events.sum()), len(events), share, tail).pvalue)


def judgement(results: list[Measured]) -> tuple[list[str], bool]:
    """Sentences, and whether levels and coverage hold."""
    tested = [result for result in results if result.cell.seeds >= MINIMUM_SEEDS]
    level = ERROR / max(1, len(tested))
    lines, holds = [f"{len(tested)} cells with {MINIMUM_SEEDS} seeds or more."], True
    for what, worst, allowed, tail in (
        ("False verdicts", [(r, r.equal.false) for r in tested], FALSE_ALLOWED, "greater"),
        ("Coverage", [(r, r.covered) for r in tested], COVERED_AT_LEAST, "less"),
    ):
        outside = [
            " ".join(result.cell.title)
            for result, events in worst
            if _tail(events, allowed, tail) < level
        ]
        extreme = (max if tail == "greater" else min)(float(events.mean()) for _, events in worst)
        holds &= not outside
        lines.append(
            f"{what}: worst {extreme:.3f}; beyond {allowed} in {len(outside)} cells. {'; '.join(outside)}"
        )
    kept = [r for r in tested if _tail(r.equal.former, ERROR, "greater") > ERROR]
    lower = [
        f"{' '.join(r.cell.title)} ({lost:.2f})"
        for r in kept
        if (lost := r.lost(ERROR / len(kept)))
    ]
    lines.append(
        f"Power: the former test kept its level in {len(kept)} cells and finds more in {len(lower)} of them. "
        + "; ".join(lower)
    )
    return lines, holds


def looked_at(cell: Cell, most: int, sweeps: int) -> tuple[float, float]:
    """Shares of sweeps of equal variants with a false verdict, if seeds are added one by one up to
    `most` and all are tested each time: by the levels of rpg.stats.next_look, and at 5 % each time.
    """
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
            smallest = holm(family([array[:, :, :seeds] for array in scores]).p_values()).min(
                axis=1
            )
            ever |= np.stack([smallest <= level, smallest <= ERROR])
        false += ever.sum(axis=1)
    return float(false[0] / sweeps), float(false[1] / sweeps)


def accuracies(repetitions: int = 6000) -> pandas.DataFrame:
    """Coverage of the interval of an accuracy (50 problems x 8, normal in logits), by seeds and
    their spread in logits."""
    rng = np.random.default_rng(0)

    def covered(seeds: int, spread: float) -> str:
        inside = 0
        for _ in range(repetitions):
            logits = 1.2 * rng.standard_normal(50) + spread * rng.standard_normal((seeds, 1))
            interval = accuracy([rng.binomial(8, special.expit(logits)) / 8])
            inside += interval.low <= 0.5 <= interval.high
        return f"{100 * inside / repetitions:.1f} %"

    table = {
        f"{spread:g}": [covered(seeds, spread) for seeds in (2, 3, 5)]
        for spread in (0, 0.1, 0.2, 0.4, 0.6, 1.0)
    }
    return pandas.DataFrame({"seeds": ["2", "3", "5"], **table})


HEADS = "cell,variants,seeds,problems x k,accuracy,spread,false (former),false,covered,found (former),found"


def by_kind(rows: Sequence[Sequence[str]]) -> pandas.DataFrame:
    """The cells with verdicts, a row for each kind: extremes of levels and coverage, means of
    power."""
    table = pandas.DataFrame(list(rows), columns=HEADS.split(","))
    table = table[table["seeds"].astype(int) >= MINIMUM_SEEDS]
    numbers = table.iloc[:, 6:].astype(float).groupby(table["cell"], sort=False)
    shown = numbers.agg({"false (former)": "max", "false": "max", "covered": "min"}).map(
        "{:.3f}".format
    )
    shown = shown.join(numbers[["found (former)", "found"]].mean().map("{:.2f}".format))
    shown.insert(0, "cells", numbers.size().astype(str))
    return shown.reset_index(names="kind")


def print_line(cells: Iterable[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def print_table(table: pandas.DataFrame) -> None:
    print_line(table.columns)
    print(f"|---|{'--:|' * (len(table.columns) - 1)}")
    for row in table.itertuples(index=False):
        print_line(row)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=1000, help="simulated sweeps of each cell")
    parser.add_argument("--only", help="cells of this name")
    parser.add_argument(
        "--beyond", action="store_true", help="cells with larger spreads, instead of the grid"
    )
    parser.add_argument("--looks", action="store_true", help="seeds added one by one")
    parser.add_argument("--accuracies", action="store_true", help="intervals of accuracies")
    options = parser.parse_args()
    if options.looks:
        print_table(
            pandas.DataFrame(
                columns=["seeds", "spread", "false, as reports do", "false, 5 % each time"]
            )
        )
        for seeds, spread in product((3, 5), (0.0, 0.2, 0.8)):
            ours, naive = looked_at(Cell(seeds=seeds, spread=spread), 20, options.sweeps)
            print_line([f"{seeds} to 20", f"{spread:g}", f"{ours:.3f}", f"{naive:.3f}"])
        return
    if options.accuracies:
        print_table(accuracies())
        return
    print_table(pandas.DataFrame(columns=HEADS.split(",")))
    results = []
    cells = [
        cell
        for cell in (beyond() if options.beyond else grid())
        if options.only in (None, cell.name)
    ]
    with ProcessPoolExecutor() as pool:
        for result in pool.map(partial(measured, sweeps=options.sweeps), cells):
            results.append(result)
            print_line(result.row())
    print()
    print_table(by_kind([result.row() for result in results]))
    lines, holds = judgement(results)
    print("", *lines, sep="\n")
    raise SystemExit(not holds)


if __name__ == "__main__":
    main()
