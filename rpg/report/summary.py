"""The numbers behind the report and the dashboard's table: first, last and best per variant, and
tests of differences.

A variant is judged at the last checkpoint that was evaluated on all its benchmarks. Runs that have
not got that far (failed, running, not started) are not part of its numbers; the notes name them.
"""

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import pandas

from rpg import stats
from rpg.report import diagnostics, verdicts
from rpg.report.labels import labels
from rpg.report.spending import SPENT, Equal, add_spending, at_equal_spending, short_of, unequal
from rpg.report.verdicts import Checkpoints, Pairs, ProblemScores
from rpg.store import Layout, StoreError, queries
from rpg.store.current import how_it_came, require_comparable
from rpg.store.queries import Database

MEAN = "mean"


class History(NamedTuple):
    """Looks that were taken at a sweep's differences; and of its file the size of a difference that
    matters (`matters`) and the tokens at which variants are compared (`budget`)."""

    looks: tuple[stats.Look, ...] = ()
    matters: float = stats.MATTERS
    budget: float | None = None


UNSEEN = History()


class Summary(NamedTuple):
    """`table`: one row per variant and benchmark (and `mean`), variants in order, columns as in
    `COLUMNS`."""

    sweep: str
    baseline: str | None
    benchmarks: list[str]
    variants: list[str]
    labels: dict[str, str]
    table: pandas.DataFrame
    notes: list[str]
    rules: list[str]  # by which answers were graded
    health: tuple[str, ...] = ()
    """Problems of the trainings (rpg.report.diagnostics); the notes contain them too."""
    look: stats.Look | None = None
    """This look at the differences; None if no verdict was given."""
    equal: tuple[Equal, ...] = ()
    """Differences at equal tokens and at equal seconds, where variants have spent unequally."""
    spending: str = ""
    """One line that says how unequally, empty if they have not."""
    at: str = "tokens"
    """Which of `equal` tables show."""
    advice: str = ""
    """The note on what the design can find, and on what a difference that matters would take after
    its semicolon."""
    question: str = ""
    """The description in the sweep's file."""

    @property
    def series(self) -> dict[queries.Series, str]:
        """The variants with their labels, in order."""
        return {
            queries.Series(self.sweep, variant): self.labels[variant] for variant in self.variants
        }

    @property
    def headline(self) -> str:
        """What variants are judged by: the mean over benchmarks, or the only benchmark."""
        return MEAN if len(self.benchmarks) > 1 else (self.benchmarks or [MEAN])[0]

    @property
    def judged(self) -> pandas.DataFrame:
        """The rows of the table that compare a variant with the baseline, on what variants are
        judged by."""
        return self.table[
            (self.table["benchmark"] == self.headline) & (self.table["verdict"] != "")
        ]

    @property
    def baseline_label(self) -> str:
        return self.labels.get(self.baseline or "", self.baseline or "")


SHARES = ("accuracy", "pass_at_k", "maj_at_k", "unread")

COLUMNS = (
    "variant",
    "label",
    "benchmark",
    "seeds",
    "problems",
    "k",
    "step",  # the checkpoint that `last` is of
    "steps",  # the training steps there shall be
    "first_step",
    "first",
    "last",
    "low",  # 95 % interval of `last`, over seeds and problems
    "high",
    "best",  # mean over seeds of each run's best checkpoint: optimistic
    "pass_at_k",
    "maj_at_k",
    "unread",  # share of the answers at `step` that could not be read, and count as wrong
    "difference",  # last minus the baseline's last, paired by seed and problem
    "difference_low",  # its 95 % interval, which holds for all differences of the table together
    "difference_high",
    "p",
    "p_corrected",  # by Holm's method for all differences of the table, and for earlier looks
    "verdict",
    "leads",  # the highest `last` of its benchmark, and better than every other by the same test
    *SPENT,
)


def summarise(
    db: Database,
    sweep: str,
    baseline: str | None = None,
    names: Sequence[str] | None = None,
    past: History = UNSEEN,
) -> Summary:
    """Judge the variants of a sweep. `baseline` replaces the sweep's own; `names` picks benchmarks
    (default all); `past`: looks taken at it before. Raises StoreError: the database does not hold
    the sweep; NotComparable: current runs differ in more than the sweep's axes
    (rpg.store.current.require_comparable).
    """
    sweeps = queries.sweeps(db).set_index("sweep")
    if sweep not in sweeps.index:
        why = f"no sweep {sweep!r} in the results database; it holds {', '.join(sweeps.index) or 'none'}"
        raise StoreError(why)
    require_comparable(queries.manifests(db, sweep))
    runs = queries.runs(db, sweep)
    benchmarks = [
        name for name in queries.benchmarks(db, [sweep]) if names is None or name in names
    ]
    variant_rows = queries.variants(db, [sweep])
    baseline = baseline or sweeps.loc[sweep, "baseline"]
    baseline = baseline if isinstance(baseline, str) else None
    variants = sorted(variant_rows["variant"], key=lambda variant: (variant != baseline, variant))
    scores = queries.scores(db, sweep)
    sampled = set(scores.loc[scores["pass_at_k"].notna(), "variant"])
    notes = _notes(runs, baseline, variants, sampled)
    reasons = queries.runs(db, sweep, superseded=True)["superseded"].dropna().value_counts()
    notes += [
        f"{count} older run{'s' * (count > 1)} of this sweep superseded, and not included here: {why}"
        for why, count in reasons.items()
    ]
    notes += _one_initial_model(queries.manifests(db, sweep))
    elsewhere = set(runs.loc[runs["imported"].notna(), "variant"])
    trained_here = set(scores.loc[~scores["variant"].isin(elsewhere), "benchmark"])
    judged = [name for name in benchmarks if name in trained_here] or benchmarks
    measured = {str(variant): set(part["benchmark"]) for variant, part in scores.groupby("variant")}
    chosen: Checkpoints = {}
    for variant in variants:
        parts = judged
        if variant in elsewhere:  # whoever trained it may have evaluated it on less, or on more
            parts = [name for name in benchmarks if name in measured.get(variant, ())]
        of_variant = scores[(scores["variant"] == variant) & scores["benchmark"].isin(parts)]
        if complete := _complete(of_variant, len(parts)):
            chosen[variant] = max(complete.items())
    names_of = labels(variant_rows)
    if waiting := [names_of[variant] for variant in variants if variant not in chosen]:
        notes.append(f"no checkpoint evaluated on all benchmarks yet: {', '.join(waiting)}")
    for variant in (name for name in chosen if name in elsewhere):
        if missing := [name for name in judged if name not in measured[variant]]:
            notes.append(
                f"{names_of[variant]}: no score on {', '.join(missing)}, so it has no mean"
            )
    answered = scores[scores["pass_at_k"].notna() & scores["benchmark"].isin(benchmarks)]
    samples = {
        v: _complete(answered[answered["run"].isin(of.values())]) for v, (_, of) in chosen.items()
    }
    pairs = verdicts.at_last(chosen, samples, baseline)
    notes += _late(chosen, pairs, runs, names_of)
    notes += queries.differences(db, sweep)
    evaluated = {(run, step) for step, seeds in chosen.values() for run in seeds.values()}
    problems = ProblemScores(db, sweep, evaluated | verdicts.checkpoints(pairs))
    table = pandas.DataFrame(
        _rows(runs, scores, chosen, benchmarks, judged, problems), columns=list(COLUMNS)
    )
    table["label"] = table["variant"].map(names_of)
    spent = queries.spending(db, sweep).set_index(["run", "step"])
    add_spending(table, spent, chosen)
    parts_of = {
        name: judged if name == MEAN else [name] for name in dict.fromkeys(table["benchmark"])
    }
    planned = _design(problems, pairs, judged)
    look, earlier = _judge(table, problems, pairs, parts_of, runs, past.looks, baseline)
    if look and planned:
        look = look._replace(spreads=planned[1])
    pairs_of, level = (
        partial(verdicts.at_last, chosen, samples),
        look.level if look else stats.ERROR,
    )
    tested = cache(
        lambda of, mean: verdicts.compare(problems, pairs_of(of), _family(parts_of, mean), level)
    )
    table["leads"] = _leads(table, baseline, tested)
    told = set(table.loc[table["verdict"] != "", "variant"])
    if baseline in chosen and (
        apart := [names_of[v] for v in chosen if v in sampled - told - {baseline}]
    ):
        notes.append(
            f"not compared with {names_of[baseline]}, for want of samples alike: {', '.join(apart)}"
        )
    ill = _health(db, sweep, runs, names_of)
    advice, few = (stats.sentence(*planned[:2], past.matters), planned[2]) if planned else ("", "")
    notes += [line for line in (advice, few) if line]
    measured_at = scores[scores["benchmark"].isin(judged)].groupby(["run", "step"]).size()
    everywhere = set(measured_at.index[measured_at == len(judged)])
    compared = (
        everywhere,
        chosen,
        baseline,
        spent,
        judged,
        names_of,
        past.budget,
        notes,
        earlier,
        look,
    )
    equal, look = at_equal_spending(db, sweep, *compared)
    notes += short_of(past.budget, spent, chosen, names_of)
    return Summary(
        sweep,
        baseline,
        benchmarks,
        variants,
        names_of,
        table,
        notes + ill,
        queries.rules(db, sweep),
        tuple(ill),
        look,
        tuple(equal),
        unequal(table, names_of),
        advice=advice,
        question=str(sweeps.loc[sweep, "description"]),
    )


def _notes(
    runs: pandas.DataFrame, baseline: str | None, variants: list[str], sampled: set[str]
) -> list[str]:
    notes = []
    for row in runs[~runs["state"].isin(["done", "pending"])].itertuples():
        place = f" at step {row.step:.0f}" if pandas.notna(row.step) else ""
        if row.state == "failed":
            error = row.error if isinstance(row.error, str) else "unknown error"
            notes.append(f"{row.run} failed{place}: {error}")
        else:
            of = f" of {row.steps:.0f}" if place and pandas.notna(row.steps) else ""
            notes.append(f"{row.run} is {row.state}{place}{of}")
    for (variant, source), imported in runs[runs["imported"].notna()].groupby(
        ["variant", "imported"]
    ):
        seeds = f"{len(imported)} seed{'s' * (len(imported) > 1)}"
        notes.append(
            f"{variant} ({seeds}) was {how_it_came(source)}: settings and data are not known to be the same"
            + ("" if variant in sampled else ", and without samples there is no paired test")
        )
    pending = runs.loc[runs["state"] == "pending", "run"]
    if len(pending):
        notes.append(f"not started: {', '.join(pending)}")
    if baseline and baseline not in variants:
        notes.append(f"the baseline {baseline} has no runs yet: nothing is compared with it")
    return notes


def _one_initial_model(manifests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A note if seeds share a warm start, so that the spread over seeds has none of initial models."""
    models = [
        (manifest["seed"], manifest["spec"].get("model", {})) for manifest in manifests.values()
    ]
    starts = {(model.get("warm_start") or {}).get("seed") for _, model in models}
    if len({seed for seed, _ in models}) < 2 or len(starts) != 1 or starts == {None}:
        return []
    return [
        f"all seeds start from one initial model (model.warm_start.seed {starts.pop()}): the results are about that "
        "model, and may differ for another by more than the intervals"
    ]


def _complete(rows: pandas.DataFrame, benchmarks: int | None = None) -> dict[int, dict[int, str]]:
    """Step -> seed -> run, where a run has this many benchmarks among the `rows` (None: as many as
    any has)."""
    counts = rows.groupby(["step", "seed", "run"])["benchmark"].nunique()
    complete = counts[counts == (counts.max() if benchmarks is None else benchmarks)].reset_index()
    steps = complete.astype({"step": int, "seed": int}).groupby("step")
    return {int(step): dict(zip(at["seed"], at["run"], strict=True)) for step, at in steps}


def _late(
    chosen: Checkpoints, pairs: Pairs, runs: pandas.DataFrame, names: dict[str, str]
) -> list[str]:
    notes = []
    compared = {
        name: place[0][0] for name, (ours, _) in pairs.items() for _, place in ours.values()
    }
    for variant, (step, seeds) in chosen.items():
        variant_runs = runs[runs["variant"] == variant]
        at, steps = compared.get(variant, step), variant_runs["steps"].max()
        if min(at, step) < steps:
            what = f"last evaluated{f' at step {step}' * (at != step)}, and compared, at step {at} of {steps:.0f}"
            notes.append(f"{names[variant]}: {what}")
        if left_out := sorted(set(variant_runs["run"]) - set(seeds.values())):
            notes.append(f"{names[variant]}: numbers without {', '.join(left_out)}")
    return notes


def _health(db: Database, sweep: str, runs: pandas.DataFrame, names: dict[str, str]) -> list[str]:
    """Findings of rpg.report.diagnostics, with one line for all runs of a variant that show the
    same."""
    rows = queries.health_metrics(db, sweep, diagnostics.OFTEN, diagnostics.WINDOW)
    findings = {run: diagnostics.of_training(steps) for run, steps in rows.items()}
    for row in queries.without_answer(db, sweep).itertuples():
        run_findings = findings.setdefault(row.run, [])
        shares = row.missing, row.answer, row.repeated, row.accuracy
        run_findings += diagnostics.of_answers(row.benchmark, int(row.step), *shares)
        forms = {entry["key"]: entry["value"] for entry in row.forms} if row.unread else {}
        accuracies = (row.accuracy, None if pandas.isna(row.second_reading) else row.second_reading)
        run_findings += diagnostics.of_unread(
            row.benchmark, int(row.step), row.unread, forms, accuracies
        )
    lines = []
    for variant, of_variant in runs.groupby("variant"):
        of_runs = [
            {finding.rule: finding for finding in findings.get(run, [])}
            for run in of_variant["run"]
        ]
        for rule in dict.fromkeys(rule for each in of_runs for rule in each):
            shown = [each[rule] for each in of_runs if rule in each]
            lines.append(f"{names[variant]} ({len(shown)} of {len(of_variant)} runs): {shown[0]}")
    for variants in queries.identical_variants(db, sweep):
        lines.append(str(diagnostics.identical([names[variant] for variant in variants])))
    return lines


def _rows(
    runs: pandas.DataFrame,
    scores: pandas.DataFrame,
    chosen: Checkpoints,
    benchmarks: list[str],
    judged: list[str],
    problems: ProblemScores,
) -> list[dict[str, Any]]:
    steps = runs.groupby("variant")["steps"].max()
    rows, curves = [], {}
    parts_of = {name: [name] for name in benchmarks} | (
        {MEAN: judged} if len(benchmarks) > 1 else {}
    )
    for benchmark, parts in parts_of.items():
        # The mean's curve is averaged here, not taken from the database: `names` may pick
        # benchmarks.
        each = scores[scores["benchmark"].isin(parts)].groupby(["run", "step"])
        curves[benchmark] = each[list(SHARES)].mean()[each.size() == len(parts)].reset_index()
    for variant, (step, seeds) in chosen.items():
        for benchmark, parts in parts_of.items():
            curve = curves[benchmark]
            curve = curve[curve["run"].isin(seeds.values()) & (curve["step"] <= step)]
            last, evaluated = curve[curve["step"] == step], curve.groupby("step").size()
            first_step = evaluated.index[evaluated >= len(last)].min()  # at which all of them were
            per_benchmark = [problems.array(name, verdicts.at_step(seeds, step)) for name in parts]
            arrays = [array for array in per_benchmark if array is not None]
            if last.empty or 0 < len(arrays) < len(parts):
                continue
            sampled = parts[: len(arrays)]
            samples = [problems.samples[run, step, name] for name in sampled for run in last["run"]]
            row = {
                "variant": variant,
                "benchmark": benchmark,
                "step": step,
                "steps": int(steps[variant]),
                "first_step": int(first_step),
                "first": float(curve.loc[curve["step"] == first_step, "accuracy"].mean()),
                "best": float(curve.groupby("run")["accuracy"].max().mean()),
                "seeds": len(last),
                "k": min(samples, default=0),
            }
            row |= {name: float(last[name].mean()) for name in SHARES if name != "accuracy"}
            rows.append(row | _last(arrays, last["accuracy"]))
    return rows


def _last(arrays: Sequence[Any], accuracies: pandas.Series) -> dict[str, Any]:
    """The last accuracy with its interval; without samples that is Student's over seeds, and needs
    three of them."""
    if arrays:
        score = stats.accuracy(arrays)
        return {
            "last": score.mean,
            "low": score.low,
            "high": score.high,
            "problems": score.problems,
        }
    seeds, mean = len(accuracies), float(accuracies.mean())
    half = float(stats.t_quantile(seeds - 1) * accuracies.sem()) if seeds > 2 else math.nan
    return {"last": mean, "low": mean - half, "high": mean + half, "problems": 0}


def history(layout: Layout, sweep: str) -> History:
    """From the sweep's folder."""
    looks = [stats.Look(**fields) for fields in layout.read_looks(sweep)]
    written: dict[str, Any] = {}
    with contextlib.suppress(StoreError):
        written = layout.read_sweep(sweep)
    return History(
        tuple(looks), float(written.get("matters", stats.MATTERS)), written.get("budget")
    )


def _judge(
    table: pandas.DataFrame,
    problems: ProblemScores,
    pairs: Pairs,
    parts: Mapping[str, Sequence[str]],
    runs: pandas.DataFrame,
    looks: Sequence[stats.Look],
    baseline: str | None,
) -> tuple[stats.Look | None, list[stats.Look]]:
    """Fill in differences and verdicts, family by family. Returns this look and those before it."""
    table["verdict"] = ""
    if not pairs:
        return None, []
    places = sorted(verdicts.checkpoints(pairs))
    name = json.dumps(
        [baseline, sorted(pairs), sorted({step for _, step in places}), sorted(parts)]
    )
    reached = runs["run"].map(dict(places))
    finished = sorted(
        runs["run"][reached.notna() & (runs["state"].eq("done") | (reached >= runs["steps"]))]
    )
    grown = verdicts.grown(looks, name, pairs, set(finished))
    earlier, planned, level = stats.next_look([*grown], name, finished, len(runs))
    results: dict[tuple[str, str], verdicts.Difference] = {}
    for mean in (True, False):
        results |= verdicts.compare(problems, pairs, _family(parts, mean), level)
    results = verdicts.looked_at(results, earlier)
    names = ["difference", "difference_low", "difference_high", "p", "p_corrected", "verdict"]
    rows, untested = zip(table["variant"], table["benchmark"], strict=True), (*[math.nan] * 5, "")
    table[names] = pandas.DataFrame(
        [results.get(row, untested) for row in rows], table.index, names
    )
    if all(result.verdict == verdicts.TOO_FEW for result in results.values()):
        return None, []
    benchmarks = [benchmark for benchmark in parts if benchmark != MEAN]
    found = verdicts.outcomes(results)
    return stats.Look(
        name, finished, planned, len(earlier) + 1, level, benchmarks, None, found
    ), earlier


def _family(parts: Mapping[str, Sequence[str]], mean: bool) -> dict[str, Sequence[str]]:
    """What is tested as one family: the mean accuracies, or all single benchmarks."""
    return {benchmark: names for benchmark, names in parts.items() if (benchmark == MEAN) == mean}


def _leads(
    table: pandas.DataFrame, baseline: str | None, against: Callable[[str, bool], Mapping[Any, Any]]
) -> list[bool]:
    """Whether a row is the best of its benchmark and better than every other by the paired test:
    `against` its variant, in the family of its benchmark. What the table says of the baseline is
    said here, too."""
    leads = pandas.Series(False, index=table.index)
    for benchmark, part in table.groupby("benchmark"):
        place = part["last"].idxmax()
        leader, told = part.loc[place, "variant"], part.set_index("variant")["verdict"]
        compared = against(leader, benchmark == MEAN).items()
        others = {
            variant: result.verdict for (variant, name), result in compared if name == benchmark
        }
        if leader == baseline:
            others = told.drop(leader).to_dict()
        elif baseline in told:
            others[baseline] = "worse" if told[leader] == "better" else ""
        leads[place] = len(others) == len(part) - 1 > 0 and all(
            other == "worse" for other in others.values()
        )
    return [bool(lead) for lead in leads]


def _design(
    problems: ProblemScores, pairs: Pairs, judged: Sequence[str]
) -> tuple[stats.Design, stats.Spreads, str] | None:
    """Of the variants that are compared at the same place with the same seeds, and a note on their
    problems; None if there are none, or if all answers are alike, which says nothing about how much
    they differ elsewhere."""
    for _, baseline in pairs.values():
        beside = [runs for runs, other in pairs.values() if other == baseline]
        strata = problems.block(judged, [baseline, *beside])
        if strata and strata[0].shape[1] > 1:
            first = [(run, place[0][0]) for run, place in baseline.values()]
            samples = min(
                problems.samples[run, step, name] for run, step in first for name in judged
            )
            sizes = tuple(array.shape[2] for array in strata)
            variants, seeds = strata[0].shape[:2]
            spreads = stats.spreads(strata, samples)
            design, few = (
                stats.Design(variants, seeds, sizes, samples),
                stats.carried_by_few(strata),
            )
            return (design, spreads, few) if any(spreads) else None
    return None
