"""Differences of models from the first, by the tests of rpg.stats, with what they can find."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rpg import stats
from rpg.errors import plural
from rpg.interop.compare.pairing import Benchmark, Paired
from rpg.report.format import size_in_points

MEAN = "mean"


@dataclass(frozen=True)
class Verdict:
    """What is said of a difference in one sense, and how."""

    word: str
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    smallest: float = math.nan
    """The smallest difference that is found in 80 % of such comparisons."""


@dataclass(frozen=True)
class Difference:
    """Of a model from the first one, on a benchmark or on the mean of all."""

    model: str
    benchmark: str
    difference: float
    others: Verdict
    """For other problems like them."""
    these: Verdict
    """For these problems."""


@dataclass(frozen=True)
class Level:
    """A model's mean@k on a benchmark (or the mean of all), and its pass@k by k."""

    model: str
    benchmark: str
    mean: stats.Estimate
    pass_at: dict[int, stats.Estimate]


@dataclass(frozen=True)
class Comparison:
    """Everything that is printed."""

    models: list[str]
    benchmarks: list[str]
    problems: int
    samples: str
    varies: str
    levels: list[Level]
    differences: list[Difference]
    power: str
    notes: list[str]

    @property
    def headline(self) -> str:
        """The benchmark that the verdict is about: the mean where there are several."""
        return MEAN if len(self.benchmarks) > 1 else self.benchmarks[0]


def compare(paired: Paired, matters: float = stats.MATTERS) -> Comparison:
    """Judge all models against the first. The mean over benchmarks is one family of tests, single
    benchmarks are another. `matters`: the difference whose cost is told."""
    benchmarks = paired.benchmarks
    groups = {each.name: [each] for each in benchmarks}
    levels = []
    differences = []
    if len(benchmarks) > 1:
        groups = {MEAN: benchmarks} | groups
        differences += _judge(paired, MEAN, benchmarks, parts=1)
    for name, group in groups.items():
        levels += _levels(paired, name, group)
    for each in benchmarks:
        differences += _judge(paired, each.name, [each], parts=len(benchmarks))
    return Comparison(
        models=paired.models,
        benchmarks=[each.name for each in benchmarks],
        problems=sum(len(each.problems) for each in benchmarks),
        samples=_samples_text(benchmarks),
        varies=_varies(paired),
        levels=levels,
        differences=differences,
        power=_power(paired, matters),
        notes=[*paired.notes, *_notes(paired)],
    )


def _judge(
    paired: Paired, name: str, benchmarks: Sequence[Benchmark], parts: int
) -> list[Difference]:
    """All models on one benchmark or the mean of some; `parts`: benchmarks tested together."""
    family = _family(benchmarks)
    comparisons = family.comparisons * parts
    others = _verdicts(family, stats.OTHERS, comparisons)
    these = _verdicts(family, stats.THESE, comparisons)
    return [
        Difference(model, name, float(family.difference[0, at]), others[at], these[at])
        for at, model in enumerate(paired.models[1:])
    ]


def _family(benchmarks: Sequence[Benchmark]) -> stats.Family:
    """The tests' view: seeds where there are several trainings, else samples."""
    clusters = [each.clusters for each in benchmarks]
    if len(benchmarks[0].scores[0]) > 1:
        return stats.family([each.means[None] for each in benchmarks], clusters=clusters)
    return stats.sampled_family([_answers(each) for each in benchmarks], clusters)


def _answers(benchmark: Benchmark) -> stats.Answers:
    variances = [[_variance_of_mean(each) for each in run[0]] for run in benchmark.scores]
    return stats.Answers(
        means=benchmark.means[None, :, 0],
        variances=np.array(variances)[None],
        samples=benchmark.samples[:, 0],
    )


def _variance_of_mean(scores: np.ndarray) -> float:
    if len(scores) < 2:
        return math.nan
    return float(scores.var(ddof=1) / len(scores))


def _several_samples(benchmarks: Sequence[Benchmark]) -> bool:
    return all(each.samples.min() > 1 for each in benchmarks)


def _verdicts(family: stats.Family, scope: str, comparisons: int) -> list[Verdict]:
    """Of each difference; those that are judged with what they can find."""
    smallest = stats.smallest_found(family, scope)
    verdicts = []
    for at, judged in enumerate(stats.judge(family, scope, comparisons)):
        found = math.nan if math.isnan(judged.p) else float(smallest[0, at])
        verdicts.append(Verdict(judged.word, judged.low, judged.high, judged.p, smallest=found))
    return verdicts


def _levels(paired: Paired, name: str, benchmarks: Sequence[Benchmark]) -> list[Level]:
    """mean@k and pass@k of each model."""
    sizes = _powers_of_two(min(int(each.samples.min()) for each in benchmarks))
    binary = all(_is_binary(each) for each in benchmarks)
    levels = []
    for at, model in enumerate(paired.models):
        tables = [_in_clusters(each.means[at], each) for each in benchmarks]
        pass_at = {}
        for k in sizes if binary else ():
            chances = [_in_clusters(_pass_at(each, at, k), each) for each in benchmarks]
            pass_at[k] = stats.accuracy(chances)
        levels.append(Level(model, name, stats.accuracy(tables), pass_at))
    return levels


def _in_clusters(table: np.ndarray, benchmark: Benchmark) -> np.ndarray:
    return stats.units(table, benchmark.clusters)


def _pass_at(benchmark: Benchmark, model: int, k: int) -> np.ndarray:
    """(S, P)."""
    samples = benchmark.samples[model]
    right = np.rint(benchmark.means[model] * samples)
    rows = [stats.pass_at_k(n, c, k) for n, c in zip(samples, right, strict=True)]
    return np.array(rows)


def _powers_of_two(largest: int) -> list[int]:
    return [2**power for power in range(1, largest.bit_length()) if 2**power <= largest]


def _is_binary(benchmark: Benchmark) -> bool:
    means = benchmark.means * benchmark.samples
    return bool(np.allclose(means, np.rint(means))) and all(
        set(np.unique(each)) <= {0.0, 1.0}
        for model in benchmark.scores
        for run in model
        for each in run
    )


def _samples_text(benchmarks: Sequence[Benchmark]) -> str:
    least = min(int(each.samples.min()) for each in benchmarks)
    most = max(int(each.samples.max()) for each in benchmarks)
    return str(least) if least == most else f"{least} to {most}"


def _varies(paired: Paired) -> str:
    """What the verdicts are about, in a sentence."""
    if paired.trainings > 1:
        return (
            f"Trainings vary ({paired.trainings} of each), and problems: {stats.OTHERS!r} is about "
            f"other trainings and other problems, {stats.THESE!r} about other trainings."
        )
    if _several_samples(paired.benchmarks):
        return (
            f"Samples vary, and problems: {stats.OTHERS!r} is about other problems and samples, "
            f"{stats.THESE!r} about other samples. Both are about these trained models; what "
            "another training would give takes trainings with other seeds."
        )
    return (
        f"Problems vary: {stats.OTHERS!r} is about other problems and these trained models. With "
        f"one sample of a problem nothing is known {stats.THESE}: that takes two of each."
    )


def _power(paired: Paired, matters: float) -> str:
    """What this comparison can find, and what a difference that matters would take."""
    benchmarks = paired.benchmarks
    family = _family(benchmarks)
    problems = sum(len(each.problems) for each in benchmarks)
    smallest = float(stats.smallest_found(family).max())
    if math.isnan(smallest):
        return (
            f"{plural(problems, 'problem')}: to tell which differences can be found takes two "
            "independent problems."
        )
    found = (
        f"{plural(problems, 'problem')} and k = {_samples_text(benchmarks)} find differences of "
        f"{size_in_points(smallest)} points or more {stats.OTHERS} (power 80 %)"
    )
    several = paired.trainings == 1 and _several_samples(benchmarks)
    if several:
        here = float(stats.smallest_found(family, stats.THESE).max())
        found += f", {size_in_points(here)} {stats.THESE}"
    if smallest <= matters:
        return f"{found}."
    needed = int(stats.problems_needed(family, problems, matters).max())
    text = f"{found}. To find {100 * matters:g} points takes about {needed:,} problems like these"
    if not several:
        return f"{text}."
    factor = float(stats.samples_needed(family, matters).max())
    if math.isinf(factor):
        return f"{text}; more samples alone do not find them."
    times = f"{factor:,.0f}" if factor >= 10 else f"{factor:.2g}"
    return f"{text}, or {times} times as many samples."


def _notes(paired: Paired) -> list[str]:
    notes = []
    for each in paired.benchmarks:
        if each.clusters:
            clusters = len(set(each.clusters))
            notes.append(
                f"{each.name}: {plural(len(each.problems), 'problem')} in "
                f"{plural(clusters, 'cluster')}; verdicts {stats.OTHERS} count clusters, not "
                "problems"
            )
        counts = each.samples
        if counts.min() != counts.max():
            notes.append(
                f"{each.name}: {counts.min()} to {counts.max()} samples of a problem; each problem "
                "counts equally"
            )
    return notes
