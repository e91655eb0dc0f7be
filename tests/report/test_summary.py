"""The table of a sweep by hand, whatever ran, and the notes around it, whole."""

import itertools
import json
import math

import numpy as np
import pytest
import scipy.stats
import vl_convert

from rpg import stats
from rpg.interop.importing import take_over
from rpg.interop.importing.trainer_logs import Log
from rpg.report import (
    charts,
    frontier,
    tables,
    theme,
    verdicts,
)
from rpg.report import format as written
from rpg.report.comparison import Terms
from rpg.report.summary import summarise
from rpg.store import StoreError
from rpg.store.database import connect
from rpg.store.run_writer import write_manifest
from tests.report.sweeps import (
    answered,
    array,
    demo,
    rebuild,
    rewritten,
    row,
    shown,
    summary,
)


@pytest.fixture
def layout(tmp_path):
    return demo(tmp_path)


def test_last_first_and_best_by_hand(layout):
    found = row(summary(layout), "rpg-urkl", "easy")
    last = array(layout, "rpg-urkl", "easy", 8)
    assert found["last"] == pytest.approx(last.mean())
    assert found["first"] == pytest.approx(array(layout, "rpg-urkl", "easy", 0).mean())
    per_seed = [array(layout, "rpg-urkl", "easy", step).mean(axis=1) for step in (0, 4, 8)]
    assert found["best"] == pytest.approx(np.max(per_seed, axis=0).mean())
    estimate = stats.accuracy([last])
    assert (found["low"], found["high"]) == pytest.approx((estimate.low, estimate.high))
    assert (found["seeds"], found["problems"], found["k"], found["step"], found["steps"]) == (
        3,
        24,
        4,
        8,
        8,
    )


def test_mean_accuracy_and_its_difference_by_hand(layout):
    found = summary(layout)
    ours = row(found, "rpg-urkl", "mean")
    mine = {name: array(layout, "rpg-urkl", name, 8) for name in ("easy", "hard")}
    base = {name: array(layout, "grpo", name, 8) for name in ("easy", "hard")}
    expected = stats.family([np.stack([base[name], mine[name]])[None] for name in mine])
    low, high = expected.intervals(0.05)

    assert ours["last"] == pytest.approx(np.mean([mine["easy"].mean(), mine["hard"].mean()]))
    assert ours["difference"] == pytest.approx(expected.difference.item())
    assert ours["difference_low"] == pytest.approx(low.item())
    assert ours["difference_high"] == pytest.approx(high.item())
    assert ours["p"] == pytest.approx(expected.p_values().item())
    assert ours["p_corrected"] == ours["p"], "the only comparison of its family"

    baseline = row(found, "grpo", "mean")
    assert math.isnan(baseline["difference"])
    assert baseline["verdict"] == ""


def test_pass_at_k_by_hand(layout):
    """With k samples of k a problem counts if any of them is right."""
    found = summary(layout)
    shares = {name: (array(layout, "grpo", name, 8) > 0).mean() for name in ("easy", "hard")}
    shares["mean"] = np.mean([shares["easy"], shares["hard"]])
    for benchmark, share in shares.items():
        assert share > 0
        assert row(found, "grpo", benchmark)["pass_at_k"] == pytest.approx(share)


def test_a_benchmark_that_no_run_names_any_more_is_in_no_number(layout):
    """`evaluation.benchmarks` names fewer, and a seed was added since."""
    layout.run("demo", "grpo-seed2").eval_path("hard", 8).unlink()
    for run in layout.run_folders("demo"):
        write_manifest(run, run.read_manifest() | {"benchmarks": ["easy"]})
    found = summary(layout)
    assert (found.benchmarks, row(found, "grpo", "easy")["seeds"]) == (["easy"], 3)
    with connect(layout) as db:
        assert len(frontier.diversity(db, "demo", "grpo")["pass"][1]) == 1


def test_p_values_are_corrected_per_family(tmp_path):
    layout = demo(tmp_path, ("a", "b", "c", "d"), (0, 1, 2))
    table = summary(layout).table
    for family in (table["benchmark"] == "mean", table["benchmark"] != "mean"):
        part = table[family & (table["variant"] != "a")]
        for corrected, alone in zip(part["p_corrected"], part["p"], strict=True):
            # Dunnett's correction lies between none and Bonferroni's.
            assert alone <= corrected <= min(1, len(part) * alone) + 1e-9
    assert (table["benchmark"] != "mean").sum() == 8


def test_another_baseline_fewer_benchmarks_and_an_unknown_sweep(layout):
    found = summary(layout, baseline="rpg-urkl", names=["hard"])
    assert found.variants[0] == "rpg-urkl"
    assert set(found.table["benchmark"]) == {"hard"}
    assert row(found, "grpo", "hard")["difference"] == pytest.approx(
        array(layout, "grpo", "hard", 8).mean() - array(layout, "rpg-urkl", "hard", 8).mean()
    )
    with connect(layout) as db, pytest.raises(StoreError, match=r"no sweep 'dome'.* it holds demo"):
        summarise(db, "dome")


def test_only_a_best_that_is_really_better_is_bold(layout, tmp_path):
    """Of three variants one is far above: bold. Of two within noise of each other, for two
    benchmarks together, none is."""
    assert "**" not in tables.markdown(summary(layout))
    clear = demo(tmp_path, ("grpo", "dapo", "rpg-urkl"))
    nearly = {
        "rpg": lambda problem, sample: True,
        "dapo": lambda problem, sample: sample or problem % 2,
    }
    for rights in (
        nearly,
        {"rpg": lambda problem, sample: True, "dapo": lambda problem, sample: sample},
    ):
        for run, (name, right) in itertools.product(clear.run_folders("demo"), rights.items()):
            if run.name.startswith(name):
                answered(run, 8, right)
        found = summary(clear)
        assert found.table.set_index(["variant", "benchmark"])["leads"].to_dict() == {
            (variant, name): variant == "rpg-urkl" and max(against_all(clear, variant, name)) < 0.05
            for variant in found.variants
            for name in ("easy", "hard", "mean")
        }
    assert max(against_all(clear, "rpg-urkl", "mean")) < 0.05
    assert "**RPG" not in tables.markdown(found) and tables.markdown(found).count("**") >= 2
    before = found.look._replace(runs=found.look.runs[1:], results={})
    late = summary(clear, terms=Terms((before,))).table
    assert (late["verdict"] != "better").all() and not late["leads"].any(), "little error is left"


def against_all(layout, best, benchmark):
    """Corrected p-values of all others with `best` as the baseline; single benchmarks are one
    family."""
    order = sorted(("grpo", "dapo", "rpg-urkl"), key=lambda variant: variant != best)
    arrays = [
        np.stack([array(layout, v, name, 8) for v in order])[None] for name in ("easy", "hard")
    ]
    tested = [arrays] if benchmark == "mean" else [[each] for each in arrays]
    number = 2 * len(tested)
    together = [stats.family(strata).familywise_p(comparisons=number)[0] for strata in tested]
    p_values = np.concatenate(together)
    return p_values[2:] if benchmark == "hard" else p_values[:2]


def test_two_seeds_give_an_interval_and_no_verdict(tmp_path):
    layout = demo(tmp_path, seeds=(0, 1))
    found = row(summary(layout), "rpg-urkl", "mean")
    assert found["verdict"] == "too few seeds" and math.isnan(found["p"])
    assert -1 <= found["difference_low"] < found["difference"] < found["difference_high"] <= 1
    assert (
        "Verdicts need three seeds" in (said := shown(layout)) and "corrected together" not in said
    )
    assert not layout.read_looks("demo"), "nothing was decided"


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_where_no_problem_moves_few_seeds_have_no_interval_either(tmp_path, seeds):
    layout = demo(tmp_path, seeds=seeds)
    for run in layout.run_folders("demo"):
        answered(run, 8, right=lambda problem, sample: False)
    found = row(summary(layout), "rpg-urkl", "mean")
    assert found["verdict"] == "too few seeds"
    assert found["difference"] == 0
    assert math.isnan(found["difference_low"])
    assert math.isnan(found["difference_high"])


def test_variants_that_happen_to_be_equal_stay_in_the_family(tmp_path):
    layout = demo(tmp_path, ("grpo", "dapo", "rpg-urkl"))
    for run in layout.run_folders("demo"):
        if not run.name.startswith("dapo"):
            answered(run, 8, right=lambda problem, sample: False)
    found = summary(layout)
    assert row(found, "rpg-urkl", "mean")["p_corrected"] == 1
    dapo = row(found, "dapo", "mean")
    assert dapo["p"] <= dapo["p_corrected"] <= min(1, 2 * dapo["p"])


EASY = {0: {0: 0.1, 4: 0.4, 8: 0.3}, 1: {0: 0.2, 4: 0.2, 8: 0.5}, 2: {0: 0.0, 4: 0.1, 8: 0.4}}


def imported(layout, tmp_path, curves, sweep="demo", metrics=lambda seed: {}):
    """Runs of the variant `theirs`: benchmark -> seed -> step -> accuracy; beside the reward their
    log has `metrics`."""
    log = tmp_path / "log"
    log.write_text("a log")
    for seed in EASY:
        steps = [{"step": step, "reward": 0.0, **metrics(seed)} for step in range(1, 11)]
        scores = {name: of_seeds[seed] for name, of_seeds in curves.items()}
        about = {"kind": "wandb", "source": log, "sweep": sweep, "variant": "theirs", "seed": seed}
        take_over(layout, Log(steps, scores, [], []), **about)


def test_scores_without_samples_have_an_interval_over_seeds(layout, tmp_path):
    hard = {
        seed: {at: x / 2 for at, x in curve.items() if at or seed} for seed, curve in EASY.items()
    }
    imported(layout, tmp_path, {"easy": EASY, "hard": hard})
    found = summary(layout)
    last = np.array([curve[8] for curve in EASY.values()])
    half = scipy.stats.t.ppf(0.975, 2) * last.std(ddof=1) / math.sqrt(3)
    for benchmark, share, step in (("easy", 1.0, 0), ("hard", 0.5, 4), ("mean", 0.75, 4)):
        one = row(found, "theirs", benchmark)
        assert one["last"] == pytest.approx(share * last.mean())
        bounds = (last.mean() - half, last.mean() + half)
        assert (one["low"] / share, one["high"] / share) == pytest.approx(bounds)
        assert one["first"] == pytest.approx(
            share * np.mean([curve[step] for curve in EASY.values()])
        )
        assert one["best"] == pytest.approx(share * (0.4 + 0.5 + 0.4) / 3), (
            "the mean of each seed's best"
        )
        assert (one["seeds"], one["problems"], one["k"]) == (3, 0, 0)
        assert (one["first_step"], one["step"], one["steps"]) == (step, 8, 10)
    assert found.notes[:2] == [
        "theirs (3 seeds) was trained elsewhere, imported from wandb: settings and data are "
        "not known to be the same, "
        "and without samples there is no paired test",
        "theirs: last evaluated, and compared, at step 8 of 10",
    ]


def test_health_says_of_each_imported_log_which_columns_it_lacks_and_of_own_runs_nothing(
    layout, tmp_path
):
    imported(
        layout,
        tmp_path,
        {"easy": EASY},
        metrics=lambda seed: {"ratio_max": 1.0} if seed else {"entropy": 1.0},
    )
    rewritten(layout.run("demo", "grpo-seed0"), lambda row: {"ratio_max": None})
    said = [line for line in summary(layout).health if "not measured" in line]
    one, two = sorted(said, key=lambda line: "ratio exploding" in line)
    assert one.startswith("theirs (2 of 3 runs): not measured: ")
    assert two.startswith("theirs (1 of 3 runs): not measured: ")
    assert "entropy collapsed needs column entropy" in one
    assert "ratio exploding needs column ratio_max" in two
    assert "entropy collapsed" not in two


def test_one_who_was_evaluated_on_less_has_no_mean_and_an_imported_sweep_what_it_has(
    layout, tmp_path
):
    imported(layout, tmp_path, {"easy": EASY})
    found = summary(layout)
    assert set(found.table.loc[found.table["variant"] == "theirs", "benchmark"]) == {"easy"}
    assert "theirs: no score on hard, so it has no mean" in found.notes
    assert set(found.table.loc[found.table["variant"] == "grpo", "benchmark"]) == {
        "easy",
        "hard",
        "mean",
    }
    imported(layout, tmp_path, {"easy": EASY, "hard": EASY}, sweep="elsewhere")
    rebuild(layout)
    with connect(layout) as db:
        table = summarise(db, "elsewhere", layout).table
    assert set(table["benchmark"]) == {"easy", "hard", "mean"} and set(table["step"]) == {8}


def test_the_best_is_bold_also_where_the_baseline_has_no_mean(tmp_path):
    layout = demo(tmp_path, ("grpo", "dapo", "rpg-urkl"))
    for run in layout.run_folders("demo"):
        good = run.name.startswith("rpg")
        answered(run, 8, lambda problem, sample, good=good: problem % 2 or good)
        if run.name.startswith("grpo"):
            for step in (0, 4, 8):
                run.eval_path("hard", step).unlink()
    found = summary(layout)
    assert any(
        "no checkpoint evaluated on all benchmarks yet: GRPO" in note for note in found.notes
    )
    assert row(found, "rpg-urkl", "mean")["leads"]
    assert not row(found, "dapo", "mean")["leads"]


def test_a_collapsed_seed_is_named_and_compared_with_and_without(tmp_path):
    layout = demo(tmp_path, ("grpo", "dapo", "rpg-urkl"))
    for seed, run in enumerate(layout.run_folders("demo")):
        answered(
            run, 8, lambda problem, sample, out=seed: (problem + sample) % 2 and problem != out
        )
    answered(layout.run("demo", "dapo-seed1"), 8, right=lambda problem, sample: False)
    for seed in (0, 2):
        run = layout.run("demo", f"dapo-seed{seed}")
        answered(run, 8, right=lambda problem, sample: sample % 4, benchmarks=["hard"])
    found = summary(layout)
    one = row(found, "dapo", "mean")
    assert (one["collapsed"], "1: 0.000" in one["seed_accuracies"]) == ("1", True)
    assert (one["collapsed_low"], one["collapsed_high"]) == stats.share_collapsed(1, 3)
    kept = [array(layout, "dapo", name, 8, (0, 2)).mean() for name in ("easy", "hard")]
    base = [array(layout, "grpo", name, 8).mean() for name in ("easy", "hard")]
    # The baseline's seed without a pair counts, too, though less.
    assert one["without_difference"] == pytest.approx(np.mean(kept) - np.mean(base), abs=0.05)
    assert one["difference"] < one["without_difference"]
    parts = [row(found, "dapo", name)["without_difference"] for name in ("easy", "hard")]
    each = [of_dapo - of_grpo for of_dapo, of_grpo in zip(kept, base, strict=True)]
    assert parts == pytest.approx(each, abs=0.05)
    assert abs(parts[1] - parts[0]) > 0.2
    [said] = [note for note in found.notes if note.startswith("DAPO without collapsed seeds")]
    assert f": {written.points(one['without_difference'])} points [" in said
    other = row(found, "rpg-urkl", "mean")
    assert (other["collapsed"], other["collapsed_low"]) == ("", 0.0)
    assert other["without_difference"] == pytest.approx(other["difference"])
    assert any("dapo" in note.lower() and "seed 1 collapsed" in note for note in found.notes)
    [grid] = [grid for grid in tables.grids(found) if grid.key == "collapsed"]
    shown = {row[0].text: [cell.text for cell in row[1:]] for row in grid.rows}
    assert shown["DAPO"][:2] == ["seed 1", "0.333 [0.008, 0.906]"]
    assert shown["DAPO"][2] != shown["DAPO"][4] and shown["RPG-URKL"][0] == "none"
    hover = json.dumps(charts.differences(found).to_dict())
    assert "accuracy of each seed" in hover and "1: 0.000" in hover


@pytest.mark.parametrize("width", [320, 640])
def test_a_forest_has_one_zero_line_and_its_names_stand_beside_the_intervals(tmp_path, width):
    found = summary(demo(tmp_path, ("grpo", "dapo", "rpg-urkl")))
    chart = charts.differences(found).properties(width=width)
    drawn = vl_convert.vegalite_to_scenegraph(theme.specification(chart))["scenegraph"]
    layers = {mark["name"]: mark["items"] for mark in marks(drawn) if "_marks" in mark["name"]}

    [zero] = layers["layer_0_marks"]
    assert abs(zero["y2"] - zero["y"]) == 2 * 38  # over both rows
    column = min(item["x"] for item in layers["layer_1_marks"])
    assert 60 < column < 0.6 * width
    names = layers["layer_4_marks"] + layers["layer_5_marks"]
    assert {item["text"] for item in names} > {"DAPO", "RPG-URKL"}
    assert all(item.get("x", 0) == 0 and item["limit"] <= column for item in names)


def marks(group):
    """The named marks of a drawing, at any depth."""
    for item in group.get("items", ()):
        if "name" in item:
            yield item
        yield from marks(item)


def test_where_too_few_problems_move_nothing_is_said_to_be_noise(tmp_path):
    layout = demo(tmp_path)
    for run in layout.run_folders("demo"):
        right = run.name.startswith("rpg")
        answered(run, 8, lambda problem, sample, right=right: problem or right)
    one = row(summary(layout), "rpg-urkl", "mean")
    assert one["verdict"] == one["these_verdict"] == "too few problems move"
    assert math.isnan(one["difference_low"]) and math.isnan(one["p_corrected"])
    assert "Too few problems move for a verdict. RPG-URKL minus GRPO is" in shown(layout)


@pytest.mark.parametrize("word", verdicts.NO_VERDICT)
def test_where_no_verdict_is_given_no_test_is_spoken_of(tmp_path, word):
    made = summary(demo(tmp_path))
    assert tables.significant(made) and tables.TEST_NOTE in tables.caption(made)
    table = made.table.assign(
        verdict=made.table["verdict"].where(made.table["verdict"] == "", word)
    )
    untested = made._replace(table=table)
    assert tables.significant(untested) == []
    assert not {tables.TEST_NOTE, tables.BOLD_NOTE} & set(tables.caption(untested))
