"""The numbers behind the report and the dashboard's table: first, last and best per variant, and tests of differences.

A variant is judged at the last checkpoint that was evaluated on all its benchmarks. Runs that have not got that far (failed,
running, not started) are not part of its numbers; the notes name them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas

from rpg import stats
from rpg.report import diagnostics
from rpg.store import StoreError, queries
from rpg.store.current import require_comparable

MEAN = "mean"
Checkpoints = dict[str, tuple[int, dict[int, str]]]
"""Variant -> the step at which it is judged, and its runs there by seed."""


class Summary(NamedTuple):
    """`table`: one row per variant and benchmark (and `mean`), variants in order, columns as in `COLUMNS`."""

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
    "difference",  # last minus the baseline's last, paired by seed and problem
    "difference_low",  # its interval at the level of Holm's test: without zero exactly where the verdict is not noise
    "difference_high",
    "p",
    "p_corrected",
    "verdict",
    "leads",  # the highest `last` of its benchmark, and better than every other by the paired test, corrected
)
_WORKING = ("difference_error", "difference_df")


def label(variant: str, algorithm: str | None, display_name: str | None) -> str:
    """The readable name of a variant: `rpg-ufkl algorithm.beta=0.001` becomes `RPG-UFKL beta=0.001`."""
    if not algorithm or not variant.startswith(algorithm):
        return variant
    return (display_name or algorithm) + re.sub(r"(\w+\.)+(?=\w+=)", "", variant[len(algorithm) :])


def labels(found: pandas.DataFrame) -> dict[str, str]:
    """Variant -> label; variants whose labels would be equal keep their names."""
    made = {row.variant: label(row.variant, row.algorithm, row.display_name) for row in found.itertuples()}
    counts = pandas.Series(list(made.values())).value_counts()
    return {variant: name if counts[name] == 1 else variant for variant, name in made.items()}


def series_labels(
    found: pandas.DataFrame, baselines: Mapping[str, Any], sweeps: Sequence[str]
) -> dict[queries.Series, str]:
    """Every variant of these sweeps with its label; with several sweeps the label says which. Baselines first.

    `found` are the variants (queries.variants), `baselines` is {sweep: its baseline}.
    """
    names: dict[queries.Series, str] = {}
    for sweep in sweeps:
        of_variants = labels(found[found["sweep"] == sweep])
        for variant in sorted(of_variants, key=lambda name: (name != baselines[sweep], name)):
            prefix = f"{sweep} · " if len(sweeps) > 1 else ""
            names[queries.Series(sweep, variant)] = prefix + of_variants[variant]
    return names


def summarise(
    db: duckdb.DuckDBPyConnection,
    sweep: str,
    baseline: str | None = None,
    names: Sequence[str] | None = None,
    superseded: bool = False,
) -> Summary:
    """Judge the variants of a sweep. `baseline` replaces the sweep's own; `names` picks benchmarks (default all);
    `superseded`: with the older runs of the same name as variants of their own. Raises StoreError: the database does not
    hold the sweep; NotComparable: current runs differ in more than the sweep's axes
    (rpg.store.current.require_comparable).
    """
    known = queries.sweeps(db).set_index("sweep")
    if sweep not in known.index:
        raise StoreError(
            f"no sweep {sweep!r} in the results database; it holds {', '.join(known.index) or 'none'}"
        )
    require_comparable(queries.manifests(db, sweep))
    runs = queries.runs(db, sweep, superseded)
    benchmarks = [name for name in queries.benchmarks(db, [sweep]) if names is None or name in names]
    found = queries.variants(db, [sweep], superseded)
    baseline = baseline or known.loc[sweep, "baseline"]
    baseline = baseline if isinstance(baseline, str) else None
    variants = sorted(found["variant"], key=lambda variant: (variant != baseline, variant))
    scores = queries.scores(db, sweep, superseded)
    sampled = set(scores.loc[scores["pass_at_k"].notna(), "variant"])
    notes = _notes(runs, baseline, variants, sampled)
    if not superseded:
        notes += _superseded(queries.runs(db, sweep, superseded=True))
    notes += _one_initial_model(queries.manifests(db, sweep))
    elsewhere = set(runs.loc[runs["imported"].notna(), "variant"])
    judged = _judged(scores, elsewhere, benchmarks)
    chosen: Checkpoints = {}
    for variant in variants:
        parts = judged
        if variant in elsewhere:  # whoever trained it may have evaluated it on less, or on more
            parts = [name for name in benchmarks if _has(scores, variant, name)]
        if (checkpoint := _checkpoint(scores, variant, parts))[1]:
            chosen[variant] = checkpoint
    names_of = labels(found)
    waiting = [names_of[variant] for variant in variants if variant not in chosen]
    if waiting:
        notes.append(f"no checkpoint evaluated on all benchmarks yet: {', '.join(waiting)}")
    for variant in sorted(elsewhere & set(chosen)):
        if missing := [name for name in judged if not _has(scores, variant, name)]:
            notes.append(f"{names_of[variant]}: no score on {', '.join(missing)}, so it has no mean")
    notes += _late(chosen, runs, names_of)
    notes += queries.differences(db, sweep)
    rows = _rows(db, sweep, runs, scores, chosen, benchmarks, judged, baseline)
    derived = ("label", "p_corrected", "verdict", "leads")
    table = pandas.DataFrame(rows, columns=[*(name for name in COLUMNS if name not in derived), *_WORKING])
    twins = _identical(scores)
    kept = [baseline if baseline in group else group[0] for group in twins]  # each represents its group
    _correct(table, {variant for group in twins for variant in group} - set(kept))
    table["leads"] = _leads(db, sweep, chosen, table, twins, judged)
    table.insert(1, "label", table["variant"].map(names_of))
    ill = _health(db, sweep, runs, names_of, twins) + _seeds(table, benchmarks)
    return Summary(
        sweep, baseline, benchmarks, variants, names_of, table[list(COLUMNS)], notes + ill, queries.rules(db, sweep),
        tuple(ill),
    )  # fmt: skip


def _notes(runs: pandas.DataFrame, baseline: str | None, variants: list[str], sampled: set[str]) -> list[str]:
    notes = []
    for row in runs[~runs["state"].isin(["done", "pending"])].itertuples():
        place = f" at step {row.step:.0f}" if pandas.notna(row.step) else ""
        if row.state == "failed":
            error = row.error if isinstance(row.error, str) else "unknown error"
            notes.append(f"{row.run} failed{place}: {error}")
        else:
            of = f" of {row.steps:.0f}" if place and pandas.notna(row.steps) else ""
            notes.append(f"{row.run} is {row.state}{place}{of}")
    for (variant, source), mine in runs[runs["imported"].notna()].groupby(["variant", "imported"]):
        seeds = f"{len(mine)} seed{'s' * (len(mine) > 1)}"
        notes.append(
            f"{variant} ({seeds}) was trained elsewhere and imported from {source}: settings and data are not known to be "
            "the same" + ("" if variant in sampled else ", and without samples there is no paired test")
        )
    pending = runs.loc[runs["state"] == "pending", "run"]
    if len(pending):
        notes.append(f"not begun: {', '.join(pending)}")
    if baseline and baseline not in variants:
        notes.append(f"the baseline {baseline} has no runs yet: nothing is compared with it")
    return notes


def _one_initial_model(manifests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A note if seeds share a warm start, so that the spread over seeds has none of initial models."""
    models = [(one["seed"], one["spec"].get("model", {})) for one in manifests.values()]
    starts = {(model.get("warm_start") or {}).get("seed") for _, model in models}
    if len({seed for seed, _ in models}) < 2 or len(starts) != 1 or starts == {None}:
        return []
    return [
        f"all seeds start from one initial model (model.warm_start.seed {starts.pop()}): what is said here is about that "
        "model, and may differ from another by more than the intervals"
    ]


def _superseded(runs: pandas.DataFrame) -> list[str]:
    """Notes on older runs of the same name, which are not part of the numbers."""
    reasons = runs["superseded"].dropna().value_counts()
    return [
        f"{count} older run{'s' * (count > 1)} of this sweep superseded, and in no number here: {why}"
        for why, count in reasons.items()
    ]


def _checkpoint(scores: pandas.DataFrame, variant: str, benchmarks: list[str]) -> tuple[int, dict[int, str]]:
    """The last step at which some run of the variant has all benchmarks, and all such runs by seed."""
    mine = scores[(scores["variant"] == variant) & scores["benchmark"].isin(benchmarks)]
    complete = mine.groupby(["step", "seed", "run"])["benchmark"].nunique()
    complete = complete[complete == len(benchmarks)].reset_index()
    if complete.empty or not benchmarks:
        return 0, {}
    step = int(complete["step"].max())
    at = complete[complete["step"] == step]
    return step, dict(zip(at["seed"].astype(int), at["run"], strict=True))


def _has(scores: pandas.DataFrame, variant: str, benchmark: str) -> bool:
    return bool(((scores["variant"] == variant) & (scores["benchmark"] == benchmark)).any())


def _judged(scores: pandas.DataFrame, elsewhere: set[str], benchmarks: list[str]) -> list[str]:
    """The benchmarks over whose mean variants are judged: those of the runs trained here, or all if there are none."""
    own = set(scores.loc[~scores["variant"].isin(elsewhere), "benchmark"])
    return [name for name in benchmarks if name in own] or benchmarks


def _late(chosen: Checkpoints, runs: pandas.DataFrame, names: dict[str, str]) -> list[str]:
    notes = []
    for variant, (step, seeds) in chosen.items():
        mine = runs[runs["variant"] == variant]
        steps = mine["steps"].max()
        if pandas.notna(steps) and step < steps:
            notes.append(f"{names[variant]}: last evaluated, and compared, at step {step} of {steps:.0f}")
        left_out = sorted(set(mine["run"]) - set(seeds.values()))
        if left_out:
            notes.append(f"{names[variant]}: numbers without {', '.join(left_out)}")
    return notes


def _health(
    db: duckdb.DuckDBPyConnection,
    sweep: str,
    runs: pandas.DataFrame,
    names: dict[str, str],
    twins: list[list[str]],
) -> list[str]:
    """Findings of rpg.report.diagnostics, with one line for all runs of a variant that show the same."""
    rows = queries.health_metrics(db, sweep, diagnostics.OFTEN, diagnostics.WINDOW)
    findings = {run: diagnostics.of_training(found) for run, found in rows.items()}
    for one in queries.without_answer(db, sweep).itertuples():
        findings.setdefault(one.run, []).extend(
            diagnostics.of_answers(one.benchmark, int(one.step), one.missing)
        )
    lines = []
    for variant, mine in runs[runs["superseded"].isna()].groupby("variant"):
        of_runs = [{finding.rule: finding for finding in findings.get(run, [])} for run in mine["run"]]
        for rule in dict.fromkeys(rule for found in of_runs for rule in found):
            shown = [found[rule] for found in of_runs if rule in found]
            lines.append(f"{names[variant]} ({len(shown)} of {len(mine)} runs): {shown[0]}")
    shares = _kl_shares(db, sweep, rows)
    for group in twins:
        known = [shares[variant] for variant in group if variant in shares]
        whole = known if len(known) == len(group) else []
        lines.append(str(diagnostics.identical([names[variant] for variant in group], whole)))
    return lines


def _kl_shares(
    db: duckdb.DuckDBPyConnection, sweep: str, rows: dict[str, list[dict[str, Any]]]
) -> dict[str, float]:
    """Variant -> what its KL term weighs against the reward, at most, in the steps that are looked at."""
    shares: dict[str, float] = {}
    for run, manifest in queries.manifests(db, sweep).items():
        settings = manifest["spec"].get("algorithm", {})
        beta, kind = settings.get("beta"), settings.get("kl", {}).get("type")
        old = settings.get("reference", {}).get("type") == "old"
        name = "kl_policy_to_old" if old else "kl_policy_to_ref"
        values = [row[name] for row in rows.get(run, []) if name in row and pandas.notna(row[name])]
        if kind is None or not isinstance(beta, int | float) or not (values or kind == "none"):
            continue
        share = 0.0 if kind == "none" else diagnostics.kl_share(beta, max(values))
        shares[manifest["variant"]] = max(share, shares.get(manifest["variant"], 0.0))
    return shares


def _identical(scores: pandas.DataFrame) -> list[list[str]]:
    """Groups of variants that agree in every evaluation, so that their differences had no visible effect.

    A group is one hypothesis: it counts once in the correction for multiple tests.
    """
    trained = scores[scores["step"] > 0]
    groups: dict[tuple[Any, ...], list[str]] = {}
    for variant, part in trained.groupby("variant"):
        columns = ["seed", "benchmark", "step", "accuracy"]
        key = tuple(part[columns].sort_values(columns).itertuples(index=False, name=None))
        groups.setdefault(key, []).append(variant)
    return [group for group in groups.values() if len(group) > 1]


def _seeds(table: pandas.DataFrame, benchmarks: list[str]) -> list[str]:
    """The differences within noise, with the number of seeds that they need."""
    judged = MEAN if len(benchmarks) > 1 else (benchmarks or [MEAN])[0]
    found = []
    for row in table[(table["benchmark"] == judged) & (table["verdict"] == "within noise")].itertuples():
        low, high = stats.student_interval(0.0, row.difference_error, row.difference_df, 1 - stats.LEVEL)
        found.append(diagnostics.Unsettled(row.label, row.difference, (high - low) / 2, int(row.seeds)))
    return [str(finding) for finding in diagnostics.too_few_seeds(found)]


def _rows(
    db: duckdb.DuckDBPyConnection,
    sweep: str,
    runs: pandas.DataFrame,
    scores: pandas.DataFrame,
    chosen: Checkpoints,
    benchmarks: list[str],
    judged: list[str],
    baseline: str | None,
) -> list[dict[str, Any]]:
    problems = _Problems(db, sweep, chosen, baseline)
    steps = runs.groupby("variant")["steps"].max()
    rows = []
    for variant, (step, seeds) in chosen.items():
        own = scores[scores["run"].isin(seeds.values()) & (scores["step"] <= step)]
        arrays = problems.arrays(benchmarks, step, seeds)
        against = problems.against(variant) if baseline in chosen and variant != baseline else None
        for benchmark in [*benchmarks, MEAN] if len(benchmarks) > 1 else benchmarks:
            parts = judged if benchmark == MEAN else [benchmark]
            if any(name not in arrays for name in parts):
                if not set(parts) & set(arrays) and all(_has(own, variant, name) for name in parts):
                    rows.append(
                        _scored(variant, benchmark, own[own["benchmark"].isin(parts)], step, steps[variant])
                    )
                continue
            estimate = stats.accuracy([arrays[name] for name in parts])
            # The mean's curve is averaged here, not taken from the database: `names` may pick benchmarks.
            curve = own[own["benchmark"].isin(parts)].groupby(["run", "step"])
            curve = curve[["accuracy", "pass_at_k", "maj_at_k"]].mean()[curve.size() == len(parts)]
            at_last = curve.xs(step, level="step")
            row = _course(variant, benchmark, curve["accuracy"], step, steps[variant]) | {
                "seeds": len(seeds),
                "problems": estimate.problems,
                "k": problems.samples(parts, step, seeds),
                "last": estimate.mean,
                "low": estimate.low,
                "high": estimate.high,
                "pass_at_k": float(at_last["pass_at_k"].mean()),
                "maj_at_k": float(at_last["maj_at_k"].mean()),
            }
            if against and parts and all(name in against[0] for name in parts):
                compared = stats.compare(*([side[name] for name in parts] for side in against))
                row |= {"difference": compared.difference, "p": compared.p}
                row |= {"difference_error": compared.standard_error, "difference_df": compared.df}
            rows.append(row)
    return rows


def _course(variant: str, benchmark: str, accuracy: pandas.Series, step: int, steps: float) -> dict[str, Any]:
    """The part of a row that the accuracies by (run, step) decide: the first ones and the best."""
    first_step = int(accuracy.index.get_level_values("step").min())
    return {
        "variant": variant,
        "benchmark": benchmark,
        "step": step,
        "steps": int(steps) if pandas.notna(steps) else step,
        "first_step": first_step,
        "first": float(accuracy.xs(first_step, level="step").mean()),
        "best": float(accuracy.groupby("run").max().mean()),
    }


def _scored(
    variant: str, benchmark: str, scores: pandas.DataFrame, step: int, steps: float
) -> dict[str, Any]:
    """The row of a variant with scores but without samples; its interval is over seeds and needs three of them."""
    parts = scores.groupby(["run", "step"])["accuracy"]
    curve = parts.mean()[parts.size() == scores["benchmark"].nunique()]
    last = curve.xs(step, level="step")
    half = math.nan
    if len(last) > 2:
        half = float(stats.t_quantile(len(last) - 1) * last.std() / math.sqrt(len(last)))
    mean = float(last.mean())
    numbers = {"seeds": len(last), "last": mean, "low": mean - half, "high": mean + half}
    missing = {"problems": 0, "k": 0, "pass_at_k": math.nan, "maj_at_k": math.nan}
    return _course(variant, benchmark, curve, step, steps) | numbers | missing


class _Problems:
    """Accuracy per seed and problem at the required checkpoints, fetched in one query."""

    def __init__(
        self, db: duckdb.DuckDBPyConnection, sweep: str, chosen: Checkpoints, baseline: str | None
    ) -> None:
        self.chosen, self.baseline = chosen, baseline
        self.pairs: dict[str, tuple[int, list[int]]] = {}
        for variant, (step, seeds) in chosen.items():
            if baseline is not None and baseline in chosen and variant != baseline:
                other_step, other_seeds = chosen[baseline]
                self.pairs[variant] = (min(step, other_step), sorted(set(seeds) & set(other_seeds)))
        wanted = {(run, step) for step, seeds in chosen.values() for run in seeds.values()}
        for variant, (step, common) in self.pairs.items():
            for seed in common:
                wanted |= {(chosen[name][1][seed], step) for name in (variant, baseline) if name}
        found = queries.problem_scores(db, sweep, sorted(wanted))
        self.k = found.groupby(["run", "step", "benchmark"])["samples"].min().to_dict()
        self.tables = {}
        for benchmark, part in found.groupby("benchmark"):
            table = part.pivot(index=["run", "step"], columns="problem_id", values="accuracy")
            self.tables[benchmark] = {key: place for place, key in enumerate(table.index)}, table.to_numpy()

    def _array(self, benchmark: str, step: int, runs: list[str]) -> np.ndarray | None:
        """(runs, problems that all of them have)."""
        places, values = self.tables.get(benchmark, ({}, None))
        if not runs or any((run, step) not in places for run in runs):
            return None
        values = values[[places[run, step] for run in runs]]
        values = values[:, ~np.isnan(values).any(axis=0)]
        return values if values.size else None

    def arrays(self, benchmarks: list[str], step: int, seeds: dict[int, str]) -> dict[str, np.ndarray]:
        made = {name: self._array(name, step, [seeds[seed] for seed in sorted(seeds)]) for name in benchmarks}
        return {name: array for name, array in made.items() if array is not None}

    def samples(self, benchmarks: list[str], step: int, seeds: dict[int, str]) -> int:
        return int(min(self.k[run, step, name] for name in benchmarks for run in seeds.values()))

    def against(self, variant: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Arrays of the variant and the baseline, same seeds and problems, at the last step of both."""
        step, seeds = self.pairs[variant]
        mine, theirs = (
            {seed: self.chosen[name][1][seed] for seed in seeds} for name in (variant, str(self.baseline))
        )
        sides: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})
        for name in self.tables:
            array = self._array(name, step, [*mine.values(), *theirs.values()])
            if array is not None:
                sides[0][name], sides[1][name] = np.split(array, 2)
        return sides


def _correct(table: pandas.DataFrame, repeated: set[str]) -> None:
    """Holm's correction, the mean accuracy as one family and the single benchmarks together as another.

    `repeated`: variants whose evaluations all equal another's; they are no further hypothesis and get its result.
    """
    table["p_corrected"] = table["level"] = math.nan
    for chosen in (table["benchmark"] == MEAN, table["benchmark"] != MEAN):
        own = chosen & ~table["variant"].isin(repeated)
        p_values = table.loc[own, "p"].astype(float).tolist()
        table.loc[own, "p_corrected"] = stats.holm(p_values)
        table.loc[own, "level"] = stats.holm_levels(p_values)
        for place in table.index[chosen & ~own]:
            same = own & (table[["benchmark", "p"]] == table.loc[place, ["benchmark", "p"]]).all(axis=1)
            if same.any():
                table.loc[place, ["p_corrected", "level"]] = table.loc[same, ["p_corrected", "level"]].iloc[0]
            elif table.loc[place, "difference"] == 0:  # the baseline's own twin
                table.loc[place, ["p_corrected", "level"]] = 1.0, 1 - stats.LEVEL
    bounds = [
        stats.student_interval(row.difference, row.difference_error, row.difference_df, row.level)
        if pandas.notna(row.level)
        else (math.nan, math.nan)
        for row in table.astype({"difference_error": float, "difference_df": float}).itertuples()
    ]
    table["difference_low"], table["difference_high"] = zip(*bounds, strict=True) if bounds else ((), ())
    table["verdict"] = [
        stats.verdict(row.difference, row.p_corrected) if pandas.notna(row.difference) else ""
        for row in table.itertuples()
    ]


def _leads(
    db: duckdb.DuckDBPyConnection,
    sweep: str,
    chosen: Checkpoints,
    table: pandas.DataFrame,
    twins: list[list[str]],
    judged: list[str],
) -> list[bool]:
    """Whether a row is the best of its benchmark and beats every other in the paired test, corrected for their number."""
    leads = pandas.Series(False, index=table.index)
    against: dict[str, _Problems] = {}
    for benchmark, part in table.groupby("benchmark"):
        place = part["last"].idxmax()
        best = str(part.loc[place, "variant"])
        same = next((set(group) for group in twins if best in group), {best})
        others = [variant for variant in part["variant"] if variant not in same]
        if best not in against:
            against[best] = _Problems(db, sweep, chosen, best)
        problems = against[best]
        parts = judged if benchmark == MEAN else [str(benchmark)]
        p_values: list[float] = []
        for other in others:
            mine, theirs = problems.against(other)
            if not all(name in mine for name in parts):
                break
            found = stats.compare([theirs[name] for name in parts], [mine[name] for name in parts])
            p_values.append(found.p if found.difference > 0 else 1.0)
        corrected = stats.holm(p_values)
        if len(same) == 1 and others and len(p_values) == len(others):
            leads[place] = all(stats.verdict(1.0, p) == "better" for p in corrected)
    return [bool(lead) for lead in leads]
