"""The report of a study: its numbers are those of the files, whatever its texts hold."""

import math
import re

import numpy as np
import pandas
import pytest

from benchmarks import synthetic_study
from benchmarks.synthetic import Shape
from rpg.interop.importing import take_over
from rpg.interop.importing.trainer_logs import Log
from rpg.report import compute_curves
from rpg.report.sweep_report import write_report
from rpg.stats import searches
from rpg.store import Layout, StoreError, atomic_write_json, queries
from rpg.store.atomic_files import read_json_object
from rpg.store.database import build, connect
from rpg.study import analysis, study_report
from rpg.study.registration import record_path, registration
from rpg.study.spec import Range

HOSTILE = "<img src=x onerror=window.pwned=1> **[a](http://evil)** \\input{/etc/passwd} & 100 %"
FACTORS = {"model.warm_start.seed": [0, 1]}
SHAPE = Shape(steps=20, eval_every=2, problems=8, samples=4)


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    home = tmp_path_factory.mktemp("study")
    given = {"trials": 4, "searches": 3, "seeds": 3, "factors": FACTORS}
    layout = synthetic_study.write(home, question=HOSTILE, shape=SHAPE, **given)
    build(layout)
    return layout


@pytest.fixture(scope="module")
def found(layout):
    return study_report.material(layout, "kl-forms")


def trials(*rows):
    """batch, state and objective of a variant's trials."""
    return pandas.DataFrame(rows, columns=["batch", "state", "objective"])


def test_a_pruned_or_failed_trial_is_never_better_than_one_that_finished_beside_it():
    rows = trials(
        (0, "finished", 0.6),
        (0, "pruned", 0.7),
        (0, "pruned", 0.2),
        (0, "failed", math.nan),
        (1, "finished", 0.8),
        (1, "pruned", 0.7),
        (1, "pending", 0.9),
        (2, "pruned", 0.5),
    )
    assert analysis.held(rows).tolist() == [0.6, 0.6, 0.2, 0.0, 0.8, 0.7, 0.5]


def test_the_good_share_is_of_the_space_in_its_logarithms():
    rows = trials(
        (0, "finished", 0.5),
        (0, "finished", 0.49),
        (0, "finished", 0.3),
        (0, "pruned", 0.5),
    )
    rows = rows.assign(rate=[1e-4, 1e-3, 1e-2, 1e-1], form=[{"k": 1}, "b", "b", "b"])

    # In logarithms the trials lie at 0, 1/3, 2/3 and 1: the first two own half of the line.
    space = {"rate": Range(log=(1e-4, 1e-1))}
    assert analysis.good_share(rows, space, 0.02) == pytest.approx(1 / 2, abs=0.01)
    assert analysis.good_share(rows, space, 0.005) == pytest.approx(1 / 6, abs=0.01)

    form = {"form": Range(choices=({"k": 1}, "b"))}
    assert analysis.good_share(rows[:2], form, 0.005) == pytest.approx(1 / 2, abs=0.01)

    nothing_finished = rows[3:]
    assert math.isnan(analysis.good_share(nothing_finished, space, 0.02))
    assert math.isnan(analysis.good_share(rows, {}, 0.02))


def test_what_k_trials_would_have_found_is_read_off_the_trials(found):
    [grid] = study_report.fewer_trials(found).grids
    values = {name: analysis.held(part) for name, part in found.trials.groupby("variant")}
    assert [row[0].text for row in grid.rows] == ["1", "2", "4"], "a search has no more"
    for row in grid.rows:
        best = {
            name: searches.expected_best(each)[int(row[0].text) - 1]
            for name, each in values.items()
        }
        assert row[1].text == max(best, key=best.get)
        assert row[2].text == f"{max(best.values()):.3f}"
        assert ("[" in row[3].text) == (int(row[0].text) <= 12 // 4)


def test_scores_are_those_of_the_samples_by_variant_level_and_seed(layout, found):
    with connect(layout) as db:
        scores = analysis.reported(db, found.registered)
        rows = db.execute(
            """SELECT run, benchmark, problem_id, avg(correct::INT) FROM samples
               WHERE sweep = ? AND step = 20 GROUP BY ALL ORDER BY ALL""",
            [found.registered.sweep],
        ).fetchall()
    assert scores.samples == 4
    assert scores.variants == list(synthetic_study.BEST)
    truth = {}
    for run, benchmark, _, value in rows:
        planned = found.registered.runs[run]
        key = (
            planned["variant"],
            planned["factors"]["model.warm_start.seed"],
            planned["seed"],
            benchmark,
        )
        truth.setdefault(key, []).append(value)
    for at, benchmark in enumerate(found.registered.benchmarks):
        expected = [
            [[truth[variant, level, seed, benchmark] for seed in range(3)] for level in (0, 1)]
            for variant in scores.variants
        ]
        assert scores.cells[at] == pytest.approx(np.array(expected))
        assert scores.strata[at] == pytest.approx(np.array(expected).mean(axis=1))
    made = analysis.components(scores, list(FACTORS))
    assert list(made) == ["initial model", "seed", "problem", "interactions", "sampling"]
    with connect(layout) as db:
        [grid] = study_report.comparison(db, layout, found.registered)[0].grids
    means = np.mean([array.mean(axis=(1, 2)) for array in scores.strata], axis=0)
    assert [row[0].text for row in grid.rows] == scores.variants
    assert [row[1].text for row in grid.rows] == [f"{mean:.3f}" for mean in means]


def scores(differences, noise, seed=0):
    """Of two variants that differ by `differences` (levels, seeds) in their share of right
    answers."""
    rng = np.random.default_rng(seed)
    levels, seeds = differences.shape
    means = 0.5 + np.stack([0 * differences, differences])[..., None]
    cells = means + rng.normal(0, noise, (2, levels, seeds, 60))
    return analysis.Reported(["one", "two"], [cells], [cells.mean(axis=1)], 4, [])


def test_a_difference_has_to_hold_for_other_levels_and_for_other_seeds():
    steady = analysis.over_levels(scores(np.full((3, 4), 0.2), 0.05), "one", 0.05)["two"]
    assert steady.verdict == "better"
    assert steady.low < 0.2 < steady.high
    back = analysis.over_levels(scores(np.full((3, 4), 0.2), 0.05), "two", 0.05)["one"]
    assert back.verdict == "worse"
    assert back[:3] == pytest.approx((-steady[0], -steady[2], -steady[1]))
    # The mean is as far from zero and either seeds or levels agree, but the other ones do not.
    uneven = np.array([0.55, 0.0, 0.05, 0.2])
    for differences in (np.tile(uneven[:3, None], 4), np.tile(uneven, (3, 1))):
        assert differences.mean() == pytest.approx(0.2)
        apart = analysis.over_levels(scores(differences, 0.05), "one", 0.05)["two"]
        assert apart.verdict == "within noise"
        assert apart.low < 0 < apart.high
    two = analysis.over_levels(scores(np.full((2, 4), 0.2), 0.05), "one", 0.05)["two"]
    assert two.verdict == "too few seeds"
    assert two.low < 0.2 < two.high


@pytest.mark.parametrize(("levels", "word"), [(3, "too few problems move"), (2, "too few seeds")])
def test_over_levels_too_few_moving_problems_leave_no_interval(levels, word):
    measured = scores(np.full((levels, 4), 0.2), 0.05)
    measured.cells[0][..., 8:] = 1.0
    strata = [measured.cells[0].mean(axis=1)]
    difference = analysis.over_levels(measured._replace(strata=strata), "one", 0.05)["two"]
    assert difference.verdict == word
    assert difference.difference > 0
    assert np.isnan([difference.low, difference.high]).all()


def test_costs_are_those_of_the_runs(layout, found):
    with connect(layout) as db:
        [grid] = study_report.cost(db, found).grids
        tokens = (
            "SELECT run, max(tokens) FROM metrics WHERE sweep IN (?, 'kl-forms.tuning') GROUP "
            "BY run"
        )
        spent = dict(db.execute(tokens, [found.registered.sweep]).fetchall())
    for row in grid.rows:
        name, count, tuning, _, reported, _ = (cell.text for cell in row)
        runs = [run for run, planned in found.registered.runs.items() if planned["variant"] == name]
        assert count == "12"
        assert reported == f"{sum(spent[run] for run in runs):,.0f}"
        tried = found.trials.loc[found.trials["variant"] == name, "run_ids"].sum()
        assert len(tried) == 18
        assert tuning == f"{sum(spent[run] for run in tried):,.0f}"


def test_fits_follow_the_axis_and_average_over_factors(layout, found):
    with connect(layout) as db:
        tokens, steps = (study_report.compute(db, found.registered, x) for x in ("tokens", "step"))
    assert [row[0].text for row in tokens.grids[0].rows] == list(synthetic_study.BEST)
    assert {row[1].text for row in tokens.grids[0].rows} == {"3"}
    assert tokens.grids[0].header[3] == "Midpoint, response tokens"
    assert steps.grids[0].header[3].endswith("step")
    assert tokens.grids[0].rows != steps.grids[0].rows


def test_runs_trained_elsewhere_are_fitted(tmp_path):
    """Of a log with steps, tokens and scores; a refusal is a sentence."""
    layout = Layout.at(tmp_path)
    rng = np.random.default_rng(0)
    for seed in range(3):
        steps = [{"step": step, "tokens": 1000.0 * step} for step in range(1, 21)]
        curves = {
            "TRL GRPO": lambda step: 0.2 + 0.5 / (1 + (4 / max(step, 1e-9)) ** 2),
            HOSTILE: lambda step: 0.2 + 0.02 * step,
        }
        for variant, of in curves.items():
            curve = {step: of(step) + rng.normal(0, 0.01) for step in range(21)}
            source = tmp_path / f"{seed}.json"
            source.write_text("{}")
            log = Log(steps, {"easy": curve}, [], [])
            take_over(
                layout, log, kind="trl", source=source, sweep="theirs", variant=variant, seed=seed
            )
    build(layout)
    labels = {queries.Series("theirs", name): name for name in ("TRL GRPO", HOSTILE)}
    with connect(layout) as db:
        data = compute_curves.measured(db, labels, ["easy"], "tokens")
    made = compute_curves.fits(data, list(labels.values()))
    good = made["TRL GRPO"]
    bad = made[HOSTILE]
    assert good.asymptote.low < 0.7 < good.asymptote.high
    assert good.midpoint.low < 4000 < good.midpoint.high
    part = compute_curves.section(data, list(labels.values()), list(labels.values()), "tokens")
    assert part.notes == [f"{HOSTILE}: no extrapolation: {bad.refusal}."]
    assert "no saturation is in sight" in bad.refusal


def test_runs_without_any_compute_are_not_fitted(layout, found):
    with connect(layout) as db:
        db.execute("CREATE TEMP TABLE metrics AS SELECT * REPLACE (0 AS tokens) FROM main.metrics")
        part = study_report.compute(db, found.registered, "tokens")
    assert part.lines == ["No checkpoint of known compute has been evaluated yet."]


def test_the_report_is_complete_and_its_texts_are_text(layout, found):
    study_report.write_study_report(layout, "kl-forms")
    paths = {path.name: path for path in (layout.study_folder("kl-forms") / "report").iterdir()}
    names = {
        "report.html",
        "report.tex",
        "trials.csv",
        "search-1.png",
        "compute.svg",
        "profiles.png",
    }
    assert names <= paths.keys()
    html = paths["report.html"].read_text()
    tex = paths["report.tex"].read_text()
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html
    assert found.registered.digest in html
    assert "; unchanged since." in html
    below = ["Over problems", "Where the variance is", "Over compute", "Search", "Cost"]
    for title in ("Registered", "Verdicts", *below):
        assert f">{title}</h2>" in html
    begun, ended = (len(re.findall(rf"\\{word}{{table\*?}}", tex)) for word in ("begin", "end"))
    assert begun == ended == html.count("<thead")
    assert paths["search-1.png"].read_bytes().startswith(b"\x89PNG")
    assert len(pandas.read_csv(paths["trials.csv"])) == 36


@pytest.mark.system
def test_one_search_for_several_seeds_is_said_wherever_a_verdict_is(tmp_path):
    layout = synthetic_study.write(tmp_path, shape=SHAPE, trials=2, searches=1, seeds=3)
    build(layout)
    plan = registration(layout, "kl-forms")
    words = "ne search per variant for 3 reported seeds"
    assert words in plan.caution
    study_report.write_study_report(layout, "kl-forms")
    assert words in (layout.study_folder("kl-forms") / "report" / "report.html").read_text()
    write_report(layout, plan.sweep)
    for name in ("report.html", "verdict.txt", "table.md", "table.tex", "table.csv"):
        assert words in (layout.reports(plan.sweep) / name).read_text(), name


def test_searches_of_their_own_need_no_such_words(found):
    assert found.registered.caution == ""


def test_a_changed_record_is_shown_in_the_report(layout):
    path = record_path(layout, "kl-forms")
    record = read_json_object(path)
    atomic_write_json(path, record | {"matters": 0.2})
    try:
        plan = registration(layout, "kl-forms")
        part = study_report.registered(study_report.material(layout, "kl-forms"))
    finally:
        atomic_write_json(path, record)
    assert plan.deviations
    assert list(part.notes) == plan.deviations
    assert "changed since" in part.lines[0]


def test_before_anything_has_ended_every_part_says_so(tmp_path):
    small = Shape(steps=4, eval_every=4, problems=2, samples=1)
    layout = synthetic_study.write(tmp_path, trials=2, shape=small, stop_after=1)
    build(layout)
    found = study_report.material(layout, "kl-forms")
    assert set(found.trials["state"]) == {"pending"}
    assert study_report.fewer_trials(found).lines == [
        "Shown when two variants have two ended trials each."
    ]
    assert study_report.search(found).grids[0].rows[0][4].text == ""
    proposed = study_report.search(found).charts[0][2][0].to_dict(validate=False)["layer"][1]
    assert proposed["mark"]["invalid"] is None
    assert proposed["encoding"]["color"]["condition"]["value"] == "#BBBBBB"
    before = study_report.search(found._replace(trials=found.trials[:0]))
    assert before.lines == ["No trial has been proposed yet."]
    assert "Nothing is registered yet" in study_report.registered(found).lines[0]
    study_report.write_study_report(layout, "kl-forms")
    with pytest.raises(StoreError, match="gone"):
        study_report.material(layout, "gone")
