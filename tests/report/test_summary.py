"""The table of a sweep by hand, whatever ran, and the notes around it, whole."""

import itertools
import json
import math
import shutil

import numpy as np
import pytest
import scipy.stats
import vl_convert

from rpg import stats
from rpg.interop.importing import take_over
from rpg.interop.importing.imported_runs import write_scores
from rpg.interop.importing.trainer_logs import Log
from rpg.report import (
    charts,
    earlier_looks,
    frontier,
    problem_scores,
    tables,
    theme,
    verdicts,
)
from rpg.report.comparison import History
from rpg.report.conclusion import conclusion
from rpg.report.summary import history, summarise
from rpg.store import StoreError
from rpg.store.database import connect
from rpg.store.run_writer import write_failed, write_manifest
from rpg.store.samples import read_samples, write_samples
from tests.report.sweeps import (
    SHAPE,
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


def test_mean_accuracy_its_difference_and_pass_at_k_by_hand(layout):
    found = row(summary(layout), "rpg-urkl", "mean")
    mine = [array(layout, "rpg-urkl", name, 8) for name in ("easy", "hard")]
    base = [array(layout, "grpo", name, 8) for name in ("easy", "hard")]
    expected = stats.family([np.stack([b, m])[None] for b, m in zip(base, mine, strict=True)])
    low, high = expected.intervals(0.05)
    assert found["last"] == pytest.approx(np.mean([mine[0].mean(), mine[1].mean()]))
    assert found["difference"] == pytest.approx(expected.difference.item())
    assert (found["difference_low"], found["difference_high"]) == pytest.approx(
        (low.item(), high.item())
    )
    assert found["p"] == found["p_corrected"] == pytest.approx(expected.p_values().item())
    assert math.isnan(row(summary(layout), "grpo", "mean")["difference"])
    assert row(summary(layout), "grpo", "mean")["verdict"] == ""
    shares = {name: (array(layout, "grpo", name, 8) > 0).mean() for name in ("easy", "hard")}
    for benchmark, share in {**shares, "mean": np.mean([*shares.values()])}.items():
        assert 0 < row(summary(layout), "grpo", benchmark)["pass_at_k"] == pytest.approx(share)


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
    late = summary(clear, past=History((before,))).table
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
        "Verdicts need three seeds" in (said := shown(layout))
        and "tested as one family" not in said
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


def test_a_report_of_the_same_runs_is_the_same_look_and_more_seeds_are_the_next(tmp_path):
    layout = demo(tmp_path)
    assert "This is look" not in shown(layout)
    shown(layout)
    [first] = layout.read_looks("demo")
    assert first["level"] == pytest.approx(0.05) and first["planned"] == 6
    record = layout.read_sweep("demo")
    layout.write_sweep(record | {"runs": [*record["runs"], "grpo-seed3", "rpg-urkl-seed3"]})
    again = summary(layout, past=history(layout, "demo")).look
    assert (again.level, again.planned) == (first["level"], 6), "as if no seeds had been added"
    demo(tmp_path, ("grpo", "rpg-urkl"), (0, 1, 2, 3))
    assert (
        "This is look 2 at these differences, with 8 finished runs of 6 planned at first"
        in shown(layout)
    )
    assert shown(layout).count("This is look 2") == 1
    levels = {look["number"]: look["level"] for look in layout.read_looks("demo")}
    assert levels == pytest.approx({1: 0.05, 2: 0.01 * (1 - 6 / 8)})


def test_runs_that_took_the_place_of_others_are_judged_by_themselves(tmp_path):
    """A setting of all was changed: the former runs' verdict stood beside the difference of the new
    ones."""
    layout, runs = demo(tmp_path), demo(tmp_path).read_sweep("demo")["runs"]
    for name in runs:
        shutil.copytree(layout.run("demo", name).path, layout.run("demo", f"{name}-new").path)
    for run in layout.run_folders("demo"):
        right = run.name.startswith("grpo") == run.name.endswith("new")
        answered(run, 8, lambda problem, sample, right=right: problem % 2 or right)
    assert "RPG-URKL is better than GRPO" in shown(layout)
    layout.write_sweep(layout.read_sweep("demo") | {"runs": [f"{name}-new" for name in runs]})
    assert "RPG-URKL is worse than GRPO" in (text := shown(layout)) and "This is look" not in text


def test_what_is_left_for_a_look_is_what_earlier_ones_at_its_data_left():
    """Whoever watched a training, or added a variant and seeds, had 5 % each time: verdicts were
    false in 27 and 17 %."""
    looks, found = [], {json.dumps(["a", "mean"]): (0.1, 0.3, "better")}

    def level(variants, seeds, step=8, finished=True, baseline="0", prefix=""):
        of = {
            v: problem_scores.at_step({s: f"{prefix}{v}{s}" for s in range(seeds)}, step)
            for v in "0" + variants
        }
        pairs = {v: (of[v], of["0"]) for v in variants}
        name = json.dumps([baseline, list(variants), [step], ["mean"]])
        runs = [run for side in of.values() for run, _ in side.values()] * finished
        earlier, _, left = stats.next_look(
            [*earlier_looks.grown(looks, name, pairs, {*runs})], name, runs, 9
        )
        looks.append(stats.Look(name, runs, 9, 1, left, (), None, found))
        return left, [look.results for look in earlier]

    assert [level("ab", 3, step, finished=False) for step in (2, 4)] == [(1e-6, [])] * 2
    assert level("ab", 3) == level("ab", 3, prefix="new ") == (0.05, []), (
        "what took its place is other data"
    )
    assert level("abcd", 4) == (pytest.approx(0.01 * (1 - 9 / 20)), [found])
    assert level("abc", 3) == level("abc", 3, baseline="a") == (0.05, []), (
        "nothing new; another question"
    )
    assert level("abcd", 4, step=9) == (1e-6, [{}] * 3), "found at another step"


def spend(layout, **per_step):
    """Give the runs of each variant this many tokens per step."""
    for run in layout.run_folders("demo"):
        tokens = per_step[run.name.partition("-")[0]]
        rewritten(run, lambda one, tokens=tokens: {"tokens": tokens * one["step"]})


def test_unequal_spending_is_said_and_compared_at_equal_tokens(layout):
    spend(layout, grpo=100, rpg=200)
    found = summary(layout)
    unequal = "Unequal spending: RPG-URKL has spent 2 times as many tokens as GRPO (1,600 and 800)."
    assert found.spending == unequal
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    assert equal.budget == 800
    rpg = equal.table.set_index("variant").loc["rpg-urkl"]
    halfway = np.mean([array(layout, "rpg-urkl", name, 4).mean() for name in ("easy", "hard")])
    base = np.mean([array(layout, "grpo", name, 8).mean() for name in ("easy", "hard")])
    assert (rpg["accuracy"], rpg["difference"]) == pytest.approx((halfway, halfway - base))
    text = tables.markdown(found)
    parts = ("## Mean accuracy", "Unequal spending", "## At 800 tokens each")
    assert sorted(parts, key=text.index) == [*parts] and "RPG-URKL | 8 |" in text
    # A seed without the accuracy of one benchmark there.
    layout.run("demo", "rpg-urkl-seed1").eval_path("hard", 4).unlink()
    assert "rpg-urkl" in set(summary(layout).equal[0].table["variant"])


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        ("rpg-urkl", "first evaluated when more had been spent"),
        ("grpo", "baseline: first evaluated when more had been spent"),
    ],
)
def test_who_was_first_evaluated_later_is_not_measured_in_table_note_and_headline(
    layout, late, reason
):
    spending = {"grpo": 100, "rpg": 100} | {late.partition("-")[0]: 200}
    spend(layout, **spending)
    for seed, name, step in itertools.product(range(3), SHAPE.benchmarks, (0, 4)):
        layout.run("demo", f"{late}-seed{seed}").eval_path(name, step).unlink()
    found = summary(layout)
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    rows = equal.table.set_index("variant")
    assert rows.loc["rpg-urkl", "verdict"] == "not measured"
    assert np.isnan(rows.loc["rpg-urkl", "difference"])
    assert f"not measured at equal tokens: RPG-URKL ({reason})" in found.notes
    assert "times the tokens; not measured at equal tokens" in conclusion(found)


def test_verdicts_at_equal_tokens_share_the_error_of_all_looks(layout):
    spend(layout, grpo=100, rpg=200)
    for run, step in itertools.product(layout.run_folders("demo"), (4, 8)):
        if run.name.startswith("rpg"):
            answered(run, step, right=lambda problem, sample: problem or sample)

    def at_tokens(*looks):
        found = summary(layout, past=History(looks))
        return found.equal[0].table.set_index("variant").loc["rpg-urkl"], found.look

    first, look = at_tokens()
    late, _ = at_tokens(before := look._replace(runs=look.runs[1:], results={}))
    assert (first["verdict"], late["verdict"]) == ("better", "within noise"), "little error is left"
    kept, _ = at_tokens(before._replace(results=look.results))
    assert kept["verdict"] == "better" and kept["low"] == first["low"] > late["low"], (
        "what was found stays"
    )


@pytest.mark.parametrize(("budget", "compared"), [(400, 400), (1000, 800)])
def test_a_budget_of_tokens_is_where_variants_are_compared(layout, budget, compared):
    spend(layout, grpo=100, rpg=100)
    layout.write_sweep(layout.read_sweep("demo") | {"budget": budget})
    rebuild(layout)
    with connect(layout) as db:
        found = summarise(db, "demo", past=history(layout, "demo"))
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    assert equal.budget == compared
    base = np.mean(
        [array(layout, "grpo", name, compared // 100).mean() for name in ("easy", "hard")]
    )
    assert equal.table.set_index("variant").loc["grpo", "accuracy"] == pytest.approx(base)
    short = [note for note in found.notes if "budget" in note]
    ended = "runs ended before the budget of 1,000 tokens: GRPO (800), RPG-URKL (800)"
    assert short == [ended] * (budget > 800)


# --- notes


def design(layout, samples):
    """What the sweep could find, from the arrays of its last checkpoints."""
    blocks = []
    for name in ("easy", "hard"):
        blocks.append(np.stack([array(layout, v, name, 8) for v in ("grpo", "rpg-urkl")]))
    planned = stats.Design(2, 3, (SHAPE.problems, SHAPE.problems), samples)
    return stats.sentence(planned, stats.spreads(blocks, samples), stats.MATTERS)


def test_a_finished_sweep_says_what_it_could_find_with_the_fewest_samples_and_nothing_else(layout):
    assert summary(layout).notes == [design(layout, SHAPE.samples)]
    path = layout.run("demo", "grpo-seed1").eval_path("hard", 8)
    rows = [one for one in read_samples(path).to_pylist() if one["sample"] < 3]
    write_samples(path, rows)
    assert summary(layout).notes == [design(layout, 3)]
    assert (
        row(summary(layout), "grpo", "hard")["k"] == 3
        and row(summary(layout), "grpo", "easy")["k"] == 4
    )


def test_runs_that_did_not_finish_are_left_out_and_named(layout):
    shutil.rmtree(layout.run("demo", "rpg-urkl-seed1").path / "evals")
    failed = layout.run("demo", "rpg-urkl-seed1")
    write_failed(failed, "ValueError: loss is nan at step 3\ntraceback", step=3)
    record = layout.read_sweep("demo")
    layout.write_sweep(record | {"runs": [*record["runs"], "dapo-seed0"]})
    found = summary(layout)
    numbers = row(found, "rpg-urkl", "easy")
    assert numbers["seeds"] == 2
    assert numbers["last"] == pytest.approx(array(layout, "rpg-urkl", "easy", 8, (0, 2)).mean())
    mine = array(layout, "rpg-urkl", "easy", 8, (0, 2))
    base = array(layout, "grpo", "easy", 8, (0, 2))
    further = array(layout, "grpo", "easy", 8, (1,))
    expected = stats.family([np.stack([base, mine])[None]], further=[further[None]])
    assert numbers["difference"] == pytest.approx(expected.difference.item())
    assert "rpg-urkl-seed1 failed at step 8: ValueError: loss is nan at step 3" in found.notes
    assert "not started: dapo-seed0" in found.notes
    assert "RPG-URKL: numbers without rpg-urkl-seed1" in found.notes
    assert "loss is nan" in shown(layout)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (4, "last evaluated, and compared, at step 4 of 8"),
        (6, "last evaluated at step 6, and compared, at step 4 of 8"),
        (8, "last evaluated at step 8, and compared, at step 4 of 8"),  # by a score without samples
    ],
)
def test_a_sweep_is_compared_at_the_last_step_at_which_both_have_samples(layout, last, said):
    for seed in range(3):
        run = layout.run("demo", f"rpg-urkl-seed{seed}")
        for name in SHAPE.benchmarks:
            samples = run.eval_path(name, 8)
            samples.rename(run.eval_path(name, 6)) if last == 6 else samples.unlink()
        if last == 8:
            write_scores(run, {name: {8: 0.5} for name in SHAPE.benchmarks})
    found = summary(layout)
    numbers = row(found, "rpg-urkl", "hard")
    assert (numbers["step"], numbers["steps"]) == (last, 8)
    expected = array(layout, "rpg-urkl", "hard", 4) - array(layout, "grpo", "hard", 4)
    assert numbers["difference"] == pytest.approx(expected.mean())
    assert f"RPG-URKL: {said}" in found.notes and numbers["verdict"]


def test_only_variants_that_agree_in_training_and_evaluation_are_called_identical(layout):
    """Equal accuracies alone (all at 0, say) are no proof, and change no test."""
    for seed in range(3):
        source, target = (
            layout.run("demo", f"{name}-seed{seed}").path for name in ("grpo", "rpg-urkl")
        )
        shutil.rmtree(target / "evals")
        shutil.copytree(source / "evals", target / "evals")
    found = summary(layout)
    assert not any("identical" in note for note in found.notes)
    assert row(found, "rpg-urkl", "mean")["verdict"] == "within noise"
    for seed in range(3):
        source, target = (
            layout.run("demo", f"{name}-seed{seed}").path for name in ("grpo", "rpg-urkl")
        )
        shutil.copy(*(next(path.glob("metrics-*.jsonl")) for path in (source, target)))
    assert any(
        note.startswith("GRPO, RPG-URKL: identical in every step") for note in summary(layout).notes
    )


def test_who_has_no_checkpoint_is_named_and_no_step_is_made_up(layout):
    for seed in range(3):
        shutil.rmtree(layout.run("demo", f"rpg-urkl-seed{seed}").path / "evals")
    ended = layout.run("demo", "rpg-urkl-seed0")
    write_failed(ended, "E", step=3)
    ended.metrics_path(ended.attempts()[0]).unlink()
    assert summary(layout).notes == [
        "rpg-urkl-seed0 failed: E",
        "no checkpoint evaluated on all benchmarks yet: RPG-URKL",
    ]
    layout.write_sweep(layout.read_sweep("demo") | {"baseline": "dapo"})
    assert "the baseline dapo has no runs yet: nothing is compared with it" in summary(layout).notes


def test_a_table_whose_seeds_share_one_initial_model_says_so(tmp_path):
    layout = demo(tmp_path, seeds=(0, 1))

    def start(seed_of):
        for run in layout.run_folders("demo"):
            manifest = run.read_manifest()
            manifest["spec"]["model"] = {
                "type": "tiny",
                "warm_start": {"seed": seed_of(manifest["seed"])},
            }
            write_manifest(run, manifest)
        return " ".join(summary(layout).notes)

    assert "one initial model (model.warm_start.seed 7)" in start(lambda seed: 7)
    assert "one initial model" not in start(lambda seed: seed)


EASY = {0: {0: 0.1, 4: 0.4, 8: 0.3}, 1: {0: 0.2, 4: 0.2, 8: 0.5}, 2: {0: 0.0, 4: 0.1, 8: 0.4}}


def imported(layout, tmp_path, curves, sweep="demo"):
    """Runs of the variant `theirs`: benchmark -> seed -> step -> accuracy."""
    log = tmp_path / "log"
    log.write_text("a log")
    for seed in EASY:
        steps = [{"step": step, "reward": 0.0} for step in range(1, 11)]
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


def test_a_collapsed_seed_is_named_and_compared_with_and_without(tmp_path):
    layout = demo(tmp_path, ("grpo", "dapo", "rpg-urkl"))
    for seed, run in enumerate(layout.run_folders("demo")):
        answered(
            run, 8, lambda problem, sample, out=seed: (problem + sample) % 2 and problem != out
        )
    answered(layout.run("demo", "dapo-seed1"), 8, right=lambda problem, sample: False)
    found = summary(layout)
    one = row(found, "dapo", "mean")
    assert (one["collapsed"], "1: 0.000" in one["seed_accuracies"]) == ("1", True)
    assert (one["collapsed_low"], one["collapsed_high"]) == stats.share_collapsed(1, 3)
    kept = [array(layout, "dapo", name, 8, (0, 2)).mean() for name in ("easy", "hard")]
    base = [array(layout, "grpo", name, 8).mean() for name in ("easy", "hard")]
    # The baseline's seed without a pair counts, too, though less.
    assert one["without_difference"] == pytest.approx(np.mean(kept) - np.mean(base), abs=0.05)
    assert one["difference"] < one["without_difference"]
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
