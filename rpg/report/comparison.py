"""A sweep's table: what its chosen checkpoints reached, and tests of their differences from the
baseline."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas

from rpg import stats
from rpg.report import collapsed_seeds, earlier_looks, measured_rows, problem_scores, verdicts
from rpg.report.problem_scores import Pairs, ProblemScores
from rpg.report.selection import MEAN, Selection
from rpg.report.verdicts import Difference
from rpg.store import queries
from rpg.store.queries import Database

TESTED = [
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "p_corrected",
    "verdict",
    "p_mixed",
    "these_low",
    "these_high",
    "these_verdict",
]
"""The columns that `verdicts.Difference` fills, in its order."""
UNTESTED = Difference(math.nan, math.nan, math.nan, math.nan, math.nan, "")


class Terms(NamedTuple):
    """On what terms a sweep is judged: the looks that were taken at its differences before; and of
    its file the size of a difference that matters (`matters`), the tokens at which variants are
    compared (`budget`), and what limits all of its verdicts (`caution`)."""

    looks: tuple[stats.Look, ...] = ()
    matters: float = stats.MATTERS
    budget: float | None = None
    caution: str = ""


NO_TERMS = Terms()


@dataclass(frozen=True)
class Comparison:
    """The table without what variants have spent, and what its differences rest on."""

    table: pandas.DataFrame
    look: stats.Look | None
    """This look at the differences; None if no verdict was given."""
    earlier: list[stats.Look]
    """Looks at these data before it."""
    advice: str
    """What the design can find; empty if that cannot be told."""
    notes: list[str]
    collapses: list[stats.Collapse]
    """Seeds that ended far below their siblings."""

    @property
    def level(self) -> float:
        """The error that this look may make."""
        return self.look.level if self.look else stats.ERROR


@dataclass(frozen=True)
class _Planned:
    """The design of a comparison, what varies in it, and a note on problems that carry too much."""

    design: stats.Design
    spreads: stats.Spreads
    few_problems: str


@dataclass(frozen=True)
class _Tested:
    results: Mapping[tuple[str, str], Difference]
    look: stats.Look | None = None
    earlier: Sequence[stats.Look] = ()


def judge(db: Database, selection: Selection, terms: Terms) -> Comparison:
    """Measure the chosen checkpoints and test their differences from the baseline."""
    pairs = problem_scores.at_last(
        selection.chosen, selection.runs_with_samples, selection.baseline
    )
    evaluated = {(run, step) for step, runs in selection.chosen.values() for run in runs.values()}
    problems = ProblemScores(db, selection.sweep, evaluated | problem_scores.checkpoints(pairs))

    table = measured_rows.measure(selection, problems)
    parts = {name: selection.parts[name] for name in dict.fromkeys(table["benchmark"])}
    planned = _design(problems, pairs, selection.headline_benchmarks)
    tested = _test(selection, problems, pairs, parts, terms.looks)
    look = tested.look
    if look and planned:
        look = look._replace(spreads=planned.spreads)

    rows = zip(table["variant"], table["benchmark"], strict=True)
    differences = [tested.results.get(row, UNTESTED) for row in rows]
    table["verdict"] = ""
    if pairs:
        table[TESTED] = pandas.DataFrame(differences, table.index, TESTED)
    level = look.level if look else stats.ERROR
    table["leads"] = _leads(table, selection, problems, parts, level)
    collapses = collapsed_seeds.found(selection, problems)
    collapsed_seeds.add(table, selection, problems, collapses)
    without = collapsed_seeds.Without(pairs, collapses, level)
    collapsed_seeds.add_without(table, selection, problems, parts, without)

    advice = stats.sentence(planned.design, planned.spreads, terms.matters) if planned else ""
    notes = [
        *_compared_late(selection, pairs),
        *queries.differences(db, selection.sweep),
        *_not_compared(selection, table),
        *collapsed_seeds.notes(table, selection, collapses),
        advice,
        planned.few_problems if planned else "",
    ]
    return Comparison(
        table=table,
        look=look,
        earlier=list(tested.earlier),
        advice=advice,
        notes=[note for note in notes if note],
        collapses=collapses,
    )


def _test(
    selection: Selection,
    problems: ProblemScores,
    pairs: Pairs,
    parts: Mapping[str, Sequence[str]],
    looks: Sequence[stats.Look],
) -> _Tested:
    """Differences and verdicts of both families (of the mean, of single benchmarks), with this look
    at them and those before it."""
    if not pairs:
        return _Tested({})

    # What this look is at: the same name and the same finished runs are the same look again.
    checkpoints = problem_scores.checkpoints(pairs)
    last_steps = dict(sorted(checkpoints))  # of a run with several steps the last one stays
    places = sorted({step for _, step in checkpoints})
    name = json.dumps([selection.baseline, sorted(pairs), places, sorted(parts)])
    runs = selection.runs
    reached = runs["run"].map(last_steps)
    is_finished = runs["state"].eq("done") | (reached >= runs["steps"])
    finished = sorted(runs["run"][reached.notna() & is_finished])
    grown = list(earlier_looks.grown(looks, name, pairs, set(finished)))
    earlier, planned, level = stats.next_look(grown, name, finished, len(runs))

    results: dict[tuple[str, str], Difference] = {}
    for of_mean in (True, False):
        family = verdicts.tested_together(parts, of_mean)
        results |= verdicts.compare(problems, pairs, family, level)
    results = earlier_looks.looked_at(results, earlier)
    if all(result.verdict in verdicts.NO_VERDICT for result in results.values()):
        return _Tested(results)
    look = stats.Look(
        compared=name,
        runs=finished,
        planned=planned,
        number=len(earlier) + 1,
        level=level,
        benchmarks=[benchmark for benchmark in parts if benchmark != MEAN],
        spreads=None,
        results=earlier_looks.outcomes(results),
    )
    return _Tested(results, look, earlier)


def _leads(
    table: pandas.DataFrame,
    selection: Selection,
    problems: ProblemScores,
    parts: Mapping[str, Sequence[str]],
    level: float,
) -> list[bool]:
    """Whether a row is the best of its benchmark and better than every other by the paired test.

    The highest is tested against every other variant as if it were the baseline. Its difference
    from the baseline itself is the table's, so that both say the same.
    """
    against: dict[tuple[str, bool], dict[tuple[str, str], Difference]] = {}
    leads = pandas.Series(False, index=table.index)
    for benchmark, part in table.groupby("benchmark"):
        place = part["last"].idxmax()
        leader = part.loc[place, "variant"]
        of_mean = benchmark == MEAN
        if (leader, of_mean) not in against:
            pairs = problem_scores.at_last(selection.chosen, selection.runs_with_samples, leader)
            family = verdicts.tested_together(parts, of_mean)
            against[leader, of_mean] = verdicts.compare(problems, pairs, family, level)
        others = {
            variant: result.verdict
            for (variant, name), result in against[leader, of_mean].items()
            if name == benchmark
        }
        in_table = part.set_index("variant")["verdict"]
        baseline = selection.baseline
        if leader == baseline:
            others = in_table.drop(leader).to_dict()
        elif baseline is not None and baseline in in_table:
            others[baseline] = stats.WORSE if in_table[leader] == stats.BETTER else ""
        all_worse = all(verdict == stats.WORSE for verdict in others.values())
        leads[place] = len(others) == len(part) - 1 > 0 and all_worse
    return [bool(lead) for lead in leads]


def _design(problems: ProblemScores, pairs: Pairs, benchmarks: Sequence[str]) -> _Planned | None:
    """Of the variants that are compared at the same place with the same seeds; None if there are
    none, or if all answers are alike, which says nothing about how much they differ elsewhere."""
    for _, baseline in pairs.values():
        beside = [runs for runs, other in pairs.values() if other == baseline]
        compared = problems.compared(benchmarks, [baseline, *beside], {})
        if not compared or compared.strata[0].shape[1] < 2:
            continue
        strata = compared.strata
        places = [(run, place[0][0]) for run, place in baseline.values()]
        samples = min(
            problems.fewest_samples[run, step, name] for run, step in places for name in benchmarks
        )
        spreads = stats.spreads(strata, samples)
        if not any(spreads):
            return None
        variants, seeds = strata[0].shape[:2]
        sizes = tuple(array.shape[2] for array in strata)
        design = stats.Design(variants, seeds, sizes, samples, baseline_seeds=len(baseline))
        return _Planned(design, spreads, stats.carried_by_few(strata, compared.clusters))
    return None


def _compared_late(selection: Selection, pairs: Pairs) -> list[str]:
    """Variants that were not compared at their last step, and runs that are not in their
    numbers."""
    notes = []
    steps = {name: place[0][0] for name, (ours, _) in pairs.items() for _, place in ours.values()}
    for variant, (step, seeds) in selection.chosen.items():
        label = selection.labels[variant]
        variant_runs = selection.runs[selection.runs["variant"] == variant]
        compared = steps.get(variant, step)
        total = variant_runs["steps"].max()
        if min(compared, step) < total:
            evaluated = "last evaluated" if compared == step else f"last evaluated at step {step}"
            notes.append(f"{label}: {evaluated}, and compared, at step {compared} of {total:.0f}")
        left_out = sorted(set(variant_runs["run"]) - set(seeds.values()))
        if left_out:
            notes.append(f"{label}: the numbers leave out {', '.join(left_out)}")
    return notes


def _not_compared(selection: Selection, table: pandas.DataFrame) -> list[str]:
    baseline = selection.baseline
    if baseline is None or baseline not in selection.chosen:
        return []
    compared = set(table.loc[table["verdict"] != "", "variant"])
    apart = [
        selection.labels[variant]
        for variant in selection.chosen
        if variant in selection.variants_with_samples - compared - {baseline}
    ]
    if not apart:
        return []
    return [
        f"not compared with {selection.labels[baseline]}, since their samples do not match: "
        + ", ".join(apart)
    ]
