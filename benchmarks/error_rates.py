"""How often verdicts are false, intervals cover and differences are found: simulated sweeps,
analysed as reports do.

    python -m benchmarks.error_rates                        # every cell, 4,000 sweeps each
    python -m benchmarks.error_rates --only floor --sweeps 500
    python -m benchmarks.error_rates --looks --sweeps 600   # seeds added one by one
    python -m benchmarks.error_rates --collapses            # how often a seed is called collapsed
    python -m benchmarks.error_rates --accuracies           # intervals of accuracies

A cell is a kind of sweep. Answers are binomial; the logit of a right one is the sum of a problem's
ease, a seed's shift (partly shared by all variants of the seed), and what the kind adds: variant by
problem, topics that suit some variants, discriminations (2PL), slopes that differ by seed, seeds
that collapse. Variants are equal in distribution, except for the spread of their seeds. For power
the last variant is moved by 3.9 standard errors, or by eight points of accuracy where the cell is
named so.

`mixed` is the plain crossed mixed model with pooled variances (Dunnett): `found` is also shown as a
share of what it finds. The exit code is 1 if a cell has more false verdicts than it may have (0.06,
or 0.08 where spreads differ by five times), by more than 1.64 standard errors of the simulation.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas
from scipy import special

from rpg.stats import (
    ERROR,
    MINIMUM_MOVING,
    Family,
    Look,
    accuracy,
    collapsed,
    family,
    next_look,
)

Array = np.ndarray
MOVED = 3.9
"""Standard errors by which the last variant is moved where power is measured."""
BEYOND = 1.64
"""Standard errors of the simulation that a level may be exceeded by."""
PATTERNS = ("baseline 3 x", "last 3 x", "half 3 x", "0.3 to 3 x")


@dataclass(frozen=True)
class Cell:
    """One kind of sweep; `spread` is the seeds' standard deviation in logits, `pattern` how it
    differs between variants, `correlation` how much of it all variants of a seed share."""

    name: str = "equal"
    variants: int = 7  # with the baseline
    seeds: int = 3
    further: int = 0  # seeds that only the baseline has
    problems: tuple[int, ...] = (60,)
    samples: tuple[int, ...] = (8,)
    accuracies: tuple[float, ...] = (0.5,)
    spread: float = 0.2
    correlation: float = 0.5
    pattern: str = ""
    heavy: bool = False  # shifts have a t distribution with 3 degrees of freedom
    ease: float = 1.2  # standard deviation of the problems' logits
    interaction: float = 0.0  # of variant by problem
    topics: int = 0  # clusters of problems, given as a column
    of_topics: float = 0.0  # standard deviation of variant by topic
    slopes: float = 0.0  # of log discriminations, and of slopes by seed
    collapse: float = 0.0  # chance that a seed ends at zero
    single: bool = False  # single benchmarks are judged, not their mean
    points: float = 0.0  # by so much accuracy the last variant is better; 0: by MOVED

    @property
    def allowed(self) -> float:
        return 0.08 if "5 x" in self.pattern else 0.06

    @property
    def title(self) -> list[str]:
        seeds = f"{self.seeds} + {self.further}" if self.further else str(self.seeds)
        return [self.name, self.pattern or "alike", str(self.variants), seeds, f"{self.spread:g}"]

    def spreads(self) -> Array:
        place = np.arange(self.variants)
        factors = {
            "baseline 3 x": 1 + 2 * (place == 0),
            "baseline 5 x": 1 + 4 * (place == 0),
            "last 3 x": 1 + 2 * (place == self.variants - 1),
            "last 5 x": 1 + 4 * (place == self.variants - 1),
            "half 3 x": 1 + 2 * (place >= self.variants // 2),
            "0.3 to 3 x": np.linspace(0.3, 3, self.variants),
        }
        alike = np.ones(self.variants)
        return np.asarray(factors.get(self.pattern, alike) * self.spread)


DESIGNS = ((3, 0), (5, 0), (10, 0), (3, 6))
AIME = Cell(
    name="aime",
    problems=(30, 30, 40),
    samples=(32, 32, 32),
    accuracies=(0.2, 0.3, 0.6),
    spread=0.17,
    interaction=0.3,
)
EIGHT_POINTS = replace(
    AIME, name="eight points", spread=0.165, correlation=0.0, interaction=0.0, points=0.08
)
"""Seeds with a standard deviation of 2.5 points."""
UNEVEN = Cell(
    name="single benchmarks",
    problems=(30, 40, 200),
    samples=(16, 16, 16),
    accuracies=(0.02, 0.5, 0.8),
    interaction=0.7,
    single=True,
)
TOPICS = Cell(name="topics", topics=12, of_topics=0.5)


def grid() -> Iterator[Cell]:
    """The cells: designs by patterns of spreads, then kinds."""
    for variants, (seeds, further) in product((3, 7, 15), DESIGNS):
        design = Cell(variants=variants, seeds=seeds, further=further)
        for pattern in ("", *PATTERNS, "baseline 5 x", "last 5 x"):
            yield replace(design, pattern=pattern)
    for (seeds, further), kind in product(DESIGNS, kinds()):
        yield replace(kind, seeds=seeds, further=further)


def kinds() -> Iterator[Cell]:
    yield AIME
    yield replace(AIME, pattern="baseline 3 x")
    yield EIGHT_POINTS
    yield replace(EIGHT_POINTS, variants=3)
    yield replace(EIGHT_POINTS, variants=15)
    yield Cell(name="quiet", problems=(30,), samples=(4,), spread=0.05, interaction=0.5)
    yield Cell(name="loud", spread=0.5)
    yield Cell(name="heavy", heavy=True, spread=0.3)
    yield Cell(name="unshared", correlation=0.0)
    yield Cell(name="2PL and slopes", slopes=0.5)
    yield TOPICS
    yield Cell(name="floor", problems=(60,), samples=(32,), accuracies=(0.05,), interaction=0.7)
    yield Cell(name="ceiling", problems=(60,), samples=(32,), accuracies=(0.95,), interaction=0.7)
    yield Cell(name="unequal sizes", problems=(12, 200), samples=(32, 1), accuracies=(0.3, 0.7))
    yield Cell(name="collapsing seeds", collapse=0.1)
    yield UNEVEN


@dataclass(frozen=True)
class Tables:
    """Simulated scores per benchmark, as rpg.stats.family takes them."""

    scores: list[Array]
    further: list[Array]
    clusters: list[list[int] | None]

    def families(self, cell: Cell) -> list[Family]:
        if not cell.single:
            return [family(self.scores, self.further, self.clusters)]
        each = zip(self.scores, self.further, self.clusters, strict=True)
        return [family([scores], [further], [cluster]) for scores, further, cluster in each]


def draw(rng: np.random.Generator, cell: Cell, number: int, moved: float = 0.0) -> Tables:
    """So many sweeps, whose last variant is better by `moved` logits."""
    seeds = cell.seeds + cell.further
    shared = _shifts(rng, cell, (number, 1, seeds))
    alone = _shifts(rng, cell, (number, cell.variants, seeds))
    shifts = math.sqrt(cell.correlation) * shared + math.sqrt(1 - cell.correlation) * alone
    shifts = cell.spreads()[:, None] * shifts
    shifts[:, -1] += moved
    slopes = np.exp(cell.slopes / 2 * rng.standard_normal((number, cell.variants, seeds, 1)))
    ends = rng.random((number, cell.variants, seeds)) >= cell.collapse
    scores, further, clusters = [], [], []
    for problems, samples, share in zip(cell.problems, cell.samples, cell.accuracies, strict=True):
        ease = cell.ease * rng.standard_normal((number, 1, 1, problems))
        if cell.slopes:
            ease = ease * slopes * np.exp(cell.slopes * rng.standard_normal(ease.shape))
        logits = ease + special.logit(share) * math.sqrt(1 + cell.ease**2 / 2.9)
        if cell.interaction:
            suits = rng.standard_normal((number, cell.variants, 1, problems))
            logits = logits + cell.interaction * suits
        labels = None
        if cell.topics:
            labels = [place % cell.topics for place in range(problems)]
            suits = rng.standard_normal((number, cell.variants, 1, cell.topics))
            logits = logits + cell.of_topics * suits[..., labels]
        chances = special.expit(logits + shifts[..., None]) * ends[..., None]
        answers = rng.binomial(samples, chances) / samples
        scores.append(answers[:, :, : cell.seeds])
        further.append(answers[:, 0, cell.seeds :])
        clusters.append(labels)
    return Tables(scores, further, clusters)


def _shifts(rng: np.random.Generator, cell: Cell, shape: tuple[int, ...]) -> Array:
    if cell.heavy:
        return np.asarray(rng.standard_t(3, shape) / math.sqrt(3))
    return np.asarray(rng.standard_normal(shape))


@dataclass(frozen=True)
class Outcomes:
    """Of simulated sweeps (N, m): simultaneous p-values of the test and of the mixed model, the
    differences, and Kish's number of problems that move (N, families)."""

    p: Array
    mixed: Array
    difference: Array
    moving: Array

    @property
    def false(self) -> Array:
        return np.asarray((self.p <= ERROR).any(axis=1))

    @property
    def false_mixed(self) -> Array:
        return np.asarray((self.mixed <= ERROR).any(axis=1))

    @property
    def found(self) -> float:
        return float((self.p[:, -1] <= ERROR).mean())

    @property
    def found_mixed(self) -> float:
        return float((self.mixed[:, -1] <= ERROR).mean())


def simulated(cell: Cell, sweeps: int, seed: int, moved: float = 0.0) -> Outcomes:
    rng = np.random.default_rng(seed)
    size = cell.variants * (cell.seeds + cell.further) * sum(cell.problems)
    chunk = max(20, min(500, 2_000_000 // size))
    parts = []
    for start in range(0, sweeps, chunk):
        tables = draw(rng, cell, min(chunk, sweeps - start), moved)
        parts.append(_judged(tables.families(cell)))
    return Outcomes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _judged(families: list[Family]) -> tuple[Array, Array, Array, Array]:
    comparisons = sum(each.comparisons for each in families)
    p, mixed = [], []
    for each in families:
        moves = each.moving[:, None] >= MINIMUM_MOVING
        p.append(np.where(moves, each.familywise_p(comparisons=comparisons), 1.0))
        mixed.append(each.mixed_p(comparisons))
    difference = np.concatenate([each.difference for each in families], axis=1)
    moving = np.stack([each.moving for each in families], axis=1)
    return np.concatenate(p, axis=1), np.concatenate(mixed, axis=1), difference, moving


@dataclass(frozen=True)
class Measured:
    """A cell with equal variants, and with the last one moved."""

    cell: Cell
    equal: Outcomes
    moved: Outcomes

    @property
    def false(self) -> float:
        return float(self.equal.false.mean())

    @property
    def holds(self) -> bool:
        error = math.sqrt(max(self.false * (1 - self.false), 1e-9) / len(self.equal.p))
        return self.false - BEYOND * error <= self.cell.allowed

    def row(self) -> list[str]:
        mixed = float(self.equal.false_mixed.mean())
        share = self.moved.found / max(self.moved.found_mixed, 1e-9)
        none = float((self.equal.moving < MINIMUM_MOVING).mean())
        return [
            *self.cell.title,
            f"{mixed:.3f}",
            f"{self.false:.3f}",
            f"{self.moved.found_mixed:.2f}",
            f"{self.moved.found:.2f}",
            f"{share:.2f}" if mixed <= self.cell.allowed else "",
            f"{none:.2f}" if none else "",
        ]


def measured(cell: Cell, sweeps: int) -> Measured:
    equal = simulated(cell, sweeps, seed=1)
    points = cell.points or MOVED * float(equal.difference[:, -1].std())
    # A logit moves the mean by the mean of p (1 - p), about 0.8 of its value at the mean accuracy;
    # a first trial says how far that is off.
    share = cell.accuracies[-1] if cell.single else float(np.mean(cell.accuracies))
    moved = points / (0.8 * share * (1 - share))
    trial = simulated(cell, max(100, sweeps // 8), seed=3, moved=moved)
    moved *= points / max(float(trial.difference[:, -1].mean()), points / 3)
    return Measured(cell, equal, simulated(cell, max(200, sweeps // 2), seed=2, moved=moved))


def looked_at(cell: Cell, most: int, sweeps: int) -> tuple[float, float]:
    """Shares of sweeps of equal variants with a false verdict, if seeds are added one by one up to
    `most` and all are tested each time: by the levels of rpg.stats.next_look, and at 5 % each time.
    """
    rng = np.random.default_rng(0)
    complete = replace(cell, seeds=most)
    false = np.zeros(2)
    for start in range(0, sweeps, 50):
        scores = draw(rng, complete, min(50, sweeps - start)).scores
        ever = np.zeros((2, len(scores[0])), bool)
        looks: list[Look] = []
        for seeds in range(cell.seeds, most + 1):
            runs = [str(run) for run in range(seeds * cell.variants)]
            _, planned, level = next_look(looks, "", runs, len(runs))
            looks.append(Look("", tuple(runs), planned, seeds, level, (), None, {}))
            p = family([array[:, :, :seeds] for array in scores]).familywise_p().min(axis=1)
            ever |= np.stack([p <= level, p <= ERROR])
        false += ever.sum(axis=1)
    return float(false[0] / sweeps), float(false[1] / sweeps)


def collapses(sweeps: int) -> pandas.DataFrame:
    """Shares of sweeps in which a seed is called collapsed, without collapses, and of collapsed
    seeds that are named."""
    rows = []
    for variants, seeds, spread, pattern in product(
        (3, 7), (3, 5), (0.2, 0.5), ("", "last 3 x", "0.3 to 3 x")
    ):
        cell = Cell(variants=variants, seeds=seeds, spread=spread, pattern=pattern)
        rng = np.random.default_rng(0)
        tables = draw(rng, cell, sweeps).scores[0].mean(axis=3)
        alarms = sum(bool(collapsed(_by_name(table))) for table in tables)
        tables[:, 1, 0] = 0.02
        named = sum(
            any(each.variant == "1" and each.seed == 0 for each in collapsed(_by_name(table)))
            for table in tables
        )
        rows.append([*cell.title[1:], f"{alarms / sweeps:.3f}", f"{named / sweeps:.2f}"])
    heads = ["spreads", "variants", "seeds", "spread", "false alarms", "named"]
    return pandas.DataFrame(rows, columns=heads)


def _by_name(table: Array) -> dict[str, dict[int, float]]:
    return {str(at): dict(enumerate(row.tolist())) for at, row in enumerate(table)}


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


HEADS = (
    "cell,spreads,variants,seeds,spread,false (mixed),false,found (mixed),found,share,no verdict"
)


def by_kind(rows: Iterable[list[str]]) -> pandas.DataFrame:
    """A row for each kind and design: extremes of the levels, and the least power."""
    table = pandas.DataFrame(list(rows), columns=HEADS.split(","))
    numbers = table[["false (mixed)", "false", "share"]].apply(pandas.to_numeric)
    each = numbers.groupby([table["cell"], table["variants"], table["seeds"]], sort=False)
    shown = each.agg({"false (mixed)": "max", "false": "max"}).map("{:.3f}".format)
    shown["share"] = each["share"].min().map(lambda share: f"{share:.2f}" if share > 0 else "")
    return shown.reset_index()


def print_line(cells: Iterable[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def print_table(table: pandas.DataFrame) -> None:
    print_line(table.columns)
    print(f"|---|{'--:|' * (len(table.columns) - 1)}")
    for row in table.itertuples(index=False):
        print_line(row)


def print_looks(sweeps: int) -> None:
    heads = ["seeds", "spread", "false, as reports do", "false, 5 % each time"]
    print_table(pandas.DataFrame(columns=heads))
    for seeds, spread in product((3, 5), (0.0, 0.2, 0.8)):
        ours, naive = looked_at(Cell(seeds=seeds, spread=spread), 20, sweeps)
        print_line([f"{seeds} to 20", f"{spread:g}", f"{ours:.3f}", f"{naive:.3f}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=4000, help="simulated sweeps of each cell")
    parser.add_argument("--only", help="cells of this name")
    parser.add_argument("--variants", type=int, help="cells with so many variants")
    parser.add_argument("--looks", action="store_true", help="seeds added one by one")
    parser.add_argument("--collapses", action="store_true", help="seeds called collapsed")
    parser.add_argument("--accuracies", action="store_true", help="intervals of accuracies")
    options = parser.parse_args()
    if options.looks:
        print_looks(options.sweeps)
        return
    if options.collapses:
        print_table(collapses(options.sweeps))
        return
    if options.accuracies:
        print_table(accuracies())
        return
    cells = [
        cell
        for cell in grid()
        if options.only in (None, cell.name) and options.variants in (None, cell.variants)
    ]
    print_table(pandas.DataFrame(columns=HEADS.split(",")))
    results = []
    with ProcessPoolExecutor() as pool:
        for result in pool.map(partial(measured, sweeps=options.sweeps), cells):
            results.append(result)
            print_line(result.row())
    print()
    print_table(by_kind(result.row() for result in results))
    outside = [" ".join(result.cell.title) for result in results if not result.holds]
    worst = max(result.false for result in results)
    print(f"\n{len(results)} cells. False verdicts: worst {worst:.3f}; beyond what is allowed in")
    print(f"{len(outside)} cells. {'; '.join(outside)}")
    raise SystemExit(bool(outside))


if __name__ == "__main__":
    main()
