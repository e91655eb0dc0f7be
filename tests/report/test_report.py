"""The report says what the run folders say: numbers by hand, notes on what is missing, nothing unescaped."""

import io
import itertools
import json
import math
import re
import shutil

import altair as alt
import numpy as np
import pandas
import pyarrow.parquet
import pytest
import scipy.stats
from rich.console import Console

from benchmarks.synthetic import Shape, write_run, write_sweep
from rpg import stats
from rpg.report import curves, tables, theme
from rpg.report.labels import label
from rpg.report.shared_page import Choice, write_shared
from rpg.report.summary import Summary, history, summarise
from rpg.report.sweep_report import library, print_report, score_curves, write_report
from rpg.store import Layout, StoreError, queries
from rpg.store.database import build, connect
from rpg.store.notes import add_note
from rpg.store.run_writer import append_metrics, write_failed
from rpg.store.samples import read_eval, write_eval

SHAPE = Shape(steps=8, eval_every=4, problems=6, samples=4, benchmarks=("easy", "hard"))


@pytest.fixture
def layout(tmp_path):
    return write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)


def summary(layout, **options):
    build(layout)
    with connect(layout) as db:
        return summarise(db, "demo", **options)


def row(found, variant, benchmark):
    table = found.table
    [one] = table[(table["variant"] == variant) & (table["benchmark"] == benchmark)].to_dict("records")
    return one


def array(layout, variant, benchmark, step, seeds=(0, 1, 2)):
    """(seeds, problems) straight from the run folders."""
    rows = []
    for seed in seeds:
        table = read_eval(layout.run("demo", f"{variant}-seed{seed}"), benchmark, step).to_pandas()
        rows.append(table.groupby("problem_id")["correct"].mean().sort_index().to_numpy())
    return np.array(rows)


def shown(layout, width=140):
    stream = io.StringIO()
    build(layout)
    print_report(layout, "demo", Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def test_the_main_table_says_how_many_answers_could_not_be_read(layout):
    assert "Unread" not in shown(layout)
    folder = layout.run("demo", "grpo-seed0")
    samples = read_eval(folder, "easy", 8).to_pylist()
    for sample in samples[:6]:
        sample |= {"correct": False, "extracted": "?", "reason": "answer line: not read: unclear; read as ?"}
    folder.eval_path("easy", 8).unlink()
    write_eval(folder, "easy", 8, samples)
    # 6 of 24 answers of one of three seeds, to one of two benchmarks
    assert row(summary(layout), "grpo", "mean")["unread"] == pytest.approx(6 / 24 / 3 / 2)
    assert row(summary(layout), "rpg-urkl", "mean")["unread"] == 0
    text = shown(layout)
    assert "Unread" in text and "4.2%" in text and tables.UNREAD_NOTE in " ".join(text.split())


def test_last_first_and_best_by_hand(layout):
    found = row(summary(layout), "rpg-urkl", "easy")
    last = array(layout, "rpg-urkl", "easy", 8)
    assert found["last"] == pytest.approx(last.mean())
    assert found["first"] == pytest.approx(array(layout, "rpg-urkl", "easy", 0).mean())
    per_seed = [array(layout, "rpg-urkl", "easy", step).mean(axis=1) for step in (0, 4, 8)]
    assert found["best"] == pytest.approx(np.max(per_seed, axis=0).mean())
    estimate = stats.accuracy([last])
    assert (found["low"], found["high"]) == pytest.approx((estimate.low, estimate.high))
    assert (found["seeds"], found["problems"], found["k"], found["step"], found["steps"]) == (3, 6, 4, 8, 8)


def test_best_is_the_mean_over_seeds_of_each_seeds_best_checkpoint(layout):
    """Seeds whose best checkpoints differ: the best of the mean curve would be lower."""
    for seed, best in enumerate((4, 8, 0)):
        for step in (0, 4, 8):
            path = layout.run("demo", f"rpg-urkl-seed{seed}").eval_path("easy", step)
            samples = pyarrow.parquet.read_table(path)
            verdicts = pyarrow.array([step == best] * len(samples))
            samples = samples.set_column(samples.column_names.index("correct"), "correct", verdicts)
            pyarrow.parquet.write_table(samples, path)
    found = summary(layout, names=["easy"])
    assert row(found, "rpg-urkl", "easy")["best"] == 1.0
    assert row(found, "rpg-urkl", "easy")["last"] == pytest.approx(1 / 3)


def test_mean_accuracy_and_its_difference_by_hand(layout):
    found = row(summary(layout), "rpg-urkl", "mean")
    mine = [array(layout, "rpg-urkl", name, 8) for name in ("easy", "hard")]
    base = [array(layout, "grpo", name, 8) for name in ("easy", "hard")]
    expected = stats.family([np.stack([b, m])[None] for b, m in zip(base, mine, strict=True)])
    low, high = expected.intervals(0.05)
    assert found["last"] == pytest.approx(np.mean([mine[0].mean(), mine[1].mean()]))
    assert found["difference"] == pytest.approx(expected.difference.item())
    assert (found["difference_low"], found["difference_high"]) == pytest.approx((low.item(), high.item()))
    assert found["p"] == found["p_corrected"] == pytest.approx(expected.p_values().item())
    assert math.isnan(row(summary(layout), "grpo", "mean")["difference"])
    assert row(summary(layout), "grpo", "mean")["verdict"] == ""


def test_a_table_whose_seeds_share_one_initial_model_says_so(layout):
    def start(seed_of):
        for run in layout.run_folders("demo"):
            manifest = json.loads(run.manifest_path.read_text())
            manifest["spec"]["model"] = {"type": "tiny", "warm_start": {"seed": seed_of(manifest["seed"])}}
            run.manifest_path.write_text(json.dumps(manifest))

    start(lambda seed: 0)
    assert "one initial model (model.warm_start.seed 0)" in shown(layout)
    start(lambda seed: seed)
    assert "one initial model" not in shown(layout)


def test_p_values_are_corrected_per_family(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("a", "b", "c", "d"), (0, 1, 2), SHAPE)
    table = summary(layout).table
    for family in (table["benchmark"] == "mean", table["benchmark"] != "mean"):
        part = table[family & (table["variant"] != "a")]
        assert part["p_corrected"].tolist() == pytest.approx(stats.holm(part["p"].tolist()))
    assert (table["benchmark"] != "mean").sum() == 8


def test_another_baseline_and_fewer_benchmarks(layout):
    found = summary(layout, baseline="rpg-urkl", names=["hard"])
    assert found.variants[0] == "rpg-urkl"
    assert set(found.table["benchmark"]) == {"hard"}
    assert row(found, "grpo", "hard")["difference"] == pytest.approx(
        array(layout, "grpo", "hard", 8).mean() - array(layout, "rpg-urkl", "hard", 8).mean()
    )


def test_runs_that_did_not_finish_are_left_out_and_named(layout):
    shutil.rmtree(layout.run("demo", "rpg-urkl-seed1").path / "evals")
    failed = layout.run("demo", "rpg-urkl-seed1")
    write_failed(failed, "ValueError: loss is nan at step 3\ntraceback", step=3)
    layout.write_sweep(
        layout.read_sweep("demo") | {"runs": [*layout.read_sweep("demo")["runs"], "dapo-seed0"]}
    )
    found = summary(layout)
    numbers = row(found, "rpg-urkl", "easy")
    assert numbers["seeds"] == 2
    assert numbers["last"] == pytest.approx(array(layout, "rpg-urkl", "easy", 8, (0, 2)).mean())
    expected = array(layout, "rpg-urkl", "easy", 8, (0, 2)) - array(layout, "grpo", "easy", 8, (0, 2))
    assert numbers["difference"] == pytest.approx(expected.mean())  # only the seeds that both have
    assert "rpg-urkl-seed1 failed at step 8: ValueError: loss is nan at step 3" in found.notes
    assert "not started: dapo-seed0" in found.notes
    assert "RPG-URKL: numbers without rpg-urkl-seed1" in found.notes
    assert "loss is nan" in shown(layout)


def test_a_sweep_in_progress_is_compared_where_both_are(layout):
    for seed in range(3):
        for name in SHAPE.benchmarks:
            layout.run("demo", f"rpg-urkl-seed{seed}").eval_path(name, 8).unlink()
    found = summary(layout)
    numbers = row(found, "rpg-urkl", "hard")
    assert (numbers["step"], numbers["steps"]) == (4, 8)
    expected = array(layout, "rpg-urkl", "hard", 4) - array(layout, "grpo", "hard", 4)
    assert numbers["difference"] == pytest.approx(expected.mean())
    assert "RPG-URKL: last evaluated, and compared, at step 4 of 8" in found.notes


def test_only_variants_that_agree_in_training_and_evaluation_are_called_identical(layout):
    """Equal accuracies alone (all at 0, say) are no proof, and change no test."""
    for seed in range(3):
        source, target = (layout.run("demo", f"{name}-seed{seed}").path for name in ("grpo", "rpg-urkl"))
        shutil.rmtree(target / "evals")
        shutil.copytree(source / "evals", target / "evals")
    found = summary(layout)
    assert not any("identical" in note for note in found.notes)
    assert row(found, "rpg-urkl", "mean")["verdict"] == "within noise"
    for seed in range(3):
        source, target = (layout.run("demo", f"{name}-seed{seed}").path for name in ("grpo", "rpg-urkl"))
        shutil.copy(*(next(path.glob("metrics-*.jsonl")) for path in (source, target)))
    assert any(note.startswith("GRPO, RPG-URKL: identical in every step") for note in summary(layout).notes)


def test_variants_that_are_never_right_are_not_the_same(layout):
    for run in layout.run_folders("demo"):
        for name, step in ((name, step) for name in SHAPE.benchmarks for step in (4, 8)):
            samples = read_eval(run, name, step).to_pylist()
            wrong = [one | {"correct": False, "extracted": run.name} for one in samples]
            write_eval(run, name, step, wrong)
    assert not any("identical" in note for note in summary(layout).notes)


def test_nothing_evaluated_yet(layout):
    for run in layout.run_folders("demo"):
        shutil.rmtree(run.path / "evals")
    assert "no checkpoint has been evaluated" in shown(layout)
    names = {path.name for path in write_report(layout, "demo")}
    assert "report.png" in names  # training curves are there


def test_nothing_at_all_yet(tmp_path):
    layout = Layout.at(tmp_path)
    layout.write_sweep(
        {"name": "demo", "source": "", "baseline": "grpo", "created": 1.0, "runs": ["grpo-seed0"]}
    )
    assert "not started: grpo-seed0" in shown(layout)
    assert "report.png" not in {path.name for path in write_report(layout, "demo")}


def test_an_unknown_sweep_is_named(layout):
    build(layout)
    with connect(layout) as db, pytest.raises(StoreError, match=r"no sweep 'dome'.* it holds demo"):
        summarise(db, "dome")


def test_one_benchmark_and_no_baseline(tmp_path):
    shape = Shape(steps=4, eval_every=4, problems=6, samples=4, benchmarks=("easy",))
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo"), (0,), shape)
    layout.write_sweep(layout.read_sweep("demo") | {"baseline": None})
    text = shown(layout)
    assert "Accuracy on easy" in text and "Verdict" not in text and "per benchmark" not in text
    assert "With one seed, an interval covers the choice of problems" in text


def test_labels():
    for variant, expected in (
        ("rpg-ufkl", "RPG-UFKL"),
        ("rpg-ufkl algorithm.beta=0.001", "RPG-UFKL, beta 0.001"),
        ("rpg-ufkl algorithm.clip.low=0.1 training.steps=4", "RPG-UFKL, clip low 0.1, steps 4"),
        ("else", "else"),
    ):
        assert label(variant, "rpg-ufkl", "RPG-UFKL") == expected


def test_only_a_best_that_is_really_better_is_bold(layout, tmp_path):
    """Of three variants one is far above: bold. Of two within noise of each other none is."""
    assert "**" not in tables.markdown(summary(layout))
    clear = write_sweep(tmp_path, "demo", ("grpo", "dapo", "rpg-urkl"), (0, 1, 2), SHAPE)
    for run in clear.run_folders("demo"):
        if run.name.startswith("rpg-urkl"):
            answered(run, 8, right=lambda problem, sample: problem or sample)
    found = summary(clear)
    assert found.table.set_index(["variant", "benchmark"])["leads"].to_dict() == {
        (variant, name): variant == "rpg-urkl" and max(against_all(clear, variant, name)) < 0.05
        for variant in found.variants
        for name in ("easy", "hard", "mean")
    }
    assert max(against_all(clear, "rpg-urkl", "mean")) < 0.05
    assert "**RPG" not in tables.markdown(found) and tables.markdown(found).count("**") >= 2


def answered(run, step, right):
    """Answer a run's stored evaluations anew: right(problem, sample) says which samples are right."""
    for benchmark in ("easy", "hard"):
        rows = read_eval(run, benchmark, step).to_pylist()
        problems = sorted({row["problem_id"] for row in rows})
        for row in rows:
            row["correct"] = bool(right(problems.index(row["problem_id"]), row["sample"]))
            row["extracted"] = row["answer"] if row["correct"] else "no"
        run.eval_path(benchmark, step).unlink()
        write_eval(run, benchmark, step, rows)


def against_all(layout, best, benchmark):
    """Corrected p-values of all others with `best` as the baseline."""
    names = ("easy", "hard") if benchmark == "mean" else (benchmark,)
    others = [variant for variant in ("grpo", "dapo", "rpg-urkl") if variant != best]
    scores = [
        np.stack([array(layout, variant, name, 8) for variant in (best, *others)])[None] for name in names
    ]
    return stats.holm(stats.family(scores).p_values())[0]


def test_two_seeds_give_an_interval_and_no_verdict(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1), SHAPE)
    found = row(summary(layout), "rpg-urkl", "mean")
    assert found["verdict"] == "too few seeds" and math.isnan(found["p"])
    assert -1 <= found["difference_low"] < found["difference"] < found["difference_high"] <= 1
    assert "Verdicts need three seeds" in shown(layout)
    assert not layout.read_looks("demo"), "nothing was decided"


def test_variants_that_happen_to_be_equal_stay_in_the_family(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo", "rpg-urkl"), (0, 1, 2), SHAPE)
    for run in layout.run_folders("demo"):
        if not run.name.startswith("dapo"):
            answered(run, 8, right=lambda problem, sample: False)
    found = summary(layout)
    assert row(found, "rpg-urkl", "mean")["p_corrected"] == 1
    dapo = row(found, "dapo", "mean")
    assert dapo["p_corrected"] == pytest.approx(min(1, 2 * dapo["p"]))


def test_a_report_of_the_same_runs_is_the_same_look_and_more_seeds_are_the_next(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)
    assert "This is look" not in shown(layout)
    shown(layout)
    [first] = layout.read_looks("demo")
    assert first["level"] == pytest.approx(0.05) and first["planned"] == 6
    write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1, 2, 3), SHAPE)
    assert "This is look 2 at these differences, with 8 runs of 6 planned at first" in shown(layout)
    assert shown(layout).count("This is look 2") == 1
    assert [look["number"] for look in layout.read_looks("demo")] == [1, 2]
    assert layout.read_looks("demo")[1]["level"] == pytest.approx(0.01 * (1 - 6 / 8))


def test_unequal_spending_is_said_and_compared_at_equal_tokens(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)
    for run in layout.run_folders("demo"):
        rows = [json.loads(line) for line in run.metrics_path(1).read_text().splitlines()]
        per_step = 100 if run.name.startswith("grpo") else 200
        changed = [json.dumps(one | {"tokens": per_step * one["step"]}) for one in rows]
        run.metrics_path(1).write_text("\n".join(changed) + "\n")
    found = summary(layout)
    assert found.spending == (
        "Unequal spending: RPG-URKL has spent 2.0 times as many tokens as GRPO (1,600 and 800)."
    )
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    assert equal.budget == 800
    rpg = equal.table.set_index("variant").loc["rpg-urkl"]
    halfway = np.mean([array(layout, "rpg-urkl", name, 4).mean() for name in ("easy", "hard")])
    base = np.mean([array(layout, "grpo", name, 8).mean() for name in ("easy", "hard")])
    assert (rpg["accuracy"], rpg["difference"]) == pytest.approx((halfway, halfway - base))
    text = tables.markdown(found)
    assert (
        text.index("## Mean accuracy") < text.index("Unequal spending") < text.index("## At 800 tokens each")
    )
    assert "| RPG\\-URKL | 8 |" in text or "RPG-URKL | 8 |" in text


@pytest.mark.parametrize(("budget", "compared"), [(400, 400), (1000, 800)])
def test_a_budget_of_tokens_is_where_variants_are_compared(tmp_path, budget, compared):
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)
    for run in layout.run_folders("demo"):
        rows = [json.loads(line) for line in run.metrics_path(1).read_text().splitlines()]
        changed = [json.dumps(one | {"tokens": 100 * one["step"]}) for one in rows]
        run.metrics_path(1).write_text("\n".join(changed) + "\n")
    layout.write_sweep(layout.read_sweep("demo") | {"budget": budget})
    build(layout)
    with connect(layout) as db:
        found = summarise(db, "demo", past=history(layout, "demo"))
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    assert equal.budget == compared
    base = np.mean([array(layout, "grpo", name, compared // 100).mean() for name in ("easy", "hard")])
    assert equal.table.set_index("variant").loc["grpo", "accuracy"] == pytest.approx(base)
    short = [note for note in found.notes if "budget" in note]
    assert short == ["runs ended before the budget of 1,000 tokens: GRPO (800), RPG-URKL (800)"] * (
        budget > 800
    )


def test_terminal_table_holds_the_numbers(layout):
    found = row(summary(layout), "rpg-urkl", "mean")
    interval = tables.plus_minus(found["last"], found["low"], found["high"])
    lines = [re.split(r"\s{2,}", line.strip()) for line in shown(layout).splitlines()]
    [cells] = [cells for cells in lines if cells[0] == "RPG-URKL" and interval in cells]
    assert cells[:4] == ["RPG-URKL", "3", f"{found['first']:.3f}", interval] and cells[-1] == found["verdict"]


def values(spec):
    """All strings in a chart's data and scales."""
    if isinstance(spec, dict):
        return {text for value in spec.values() for text in values(value)}
    if isinstance(spec, list):
        return {text for value in spec for text in values(value)}
    return {spec} if isinstance(spec, str) else set()


def specs_of(page):
    """The specifications of the charts on a page."""
    scripts = re.findall(r'<script type="application/json" id="spec\d">(.*?)</script>', page, re.S)
    return [json.loads(script) for script in scripts]


HOSTILE = 'x</script><script>alert("1")</script> [bold]\\textbf{a}_b|c'


def test_files_are_whole_and_nothing_is_unescaped(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", HOSTILE), (0, 1), SHAPE)
    build(layout)
    layout.write_data_notes("demo", ["2 training problems are in <i>aime24</i> too"])
    paths = {path.name: path for path in write_report(layout, "demo")}
    written = ("table.md", "table.tex", "table.csv", "curves.csv", "verdict.txt")
    assert set(paths) == {"report.html", "report.png", "report.svg", *written}
    assert paths["report.png"].read_bytes().startswith(b"\x89PNG")
    page = paths["report.html"].read_text()
    assert "<script>alert" not in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    specs = specs_of(page)
    assert [HOSTILE in values(spec) for spec in specs] == [True, True]
    for spec in specs:
        alt.Chart.from_dict(spec)  # raises where it is none
    assert "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; [bold]" in page
    assert r"\textbackslash{}textbf\{a\}\_b" in paths["table.tex"].read_text()
    assert r"\<script\>" in paths["table.md"].read_text()
    assert "[bold]" in shown(layout)
    assert "2 training problems are in &lt;i&gt;aime24&lt;/i&gt; too" in page
    assert "! 2 training problems are in" in shown(layout)


def test_a_family_shares_its_colour_and_no_two_variants_look_the_same():
    labels = [f"{name}, clip {i}" for name in ("GRPO", "RPG-URKL", "DAPO") for i in range(18)]
    looks = theme.line_styles(labels)
    assert len({(colour, tuple(dash)) for colour, dash in looks.values()}) == len(labels)
    full = {label: colour for label, (colour, _) in looks.items() if colour in theme.COLOURS}
    assert {theme.family(label): colour for label, colour in full.items()} == dict(
        zip(("GRPO", "RPG-URKL", "DAPO"), theme.COLOURS, strict=False)
    )
    many = [f"algorithm {i}" for i in range(40)]
    assert len({(colour, tuple(dash)) for colour, dash in theme.line_styles(many).values()}) == 40


def test_families():
    labels = ("RPG-UFKL, beta 0.001", "night · RPG-UFKL, clip low 0.1, steps 3", "GRPO (corrected)")
    assert [theme.family(label) for label in labels] == ["RPG-UFKL", "RPG-UFKL", "GRPO (corrected)"]


def test_two_seeds_get_a_range_and_three_an_interval():
    assert [curves.band_for(seeds, score=False) for seeds in (1, 2, 3)] == [None, "range", "interval"]
    assert curves.band_for(2, score=True) == "interval"


def test_accuracy_curves_carry_the_intervals_of_the_table(layout):
    found = row(summary(layout), "rpg-urkl", "mean")
    with connect(layout) as db:
        curves = score_curves(db, [queries.Series("demo", "rpg-urkl")], ["mean", "easy"])
    last = curves[(curves["name"] == "mean") & (curves["step"] == 8)].iloc[0]
    assert (last["mean"], last["low"], last["high"]) == pytest.approx(
        (found["last"], found["low"], found["high"])
    )


def test_a_point_without_common_problems_keeps_the_interval_over_seeds(layout):
    run = layout.run("demo", "rpg-urkl-seed0")
    write_eval(run, "easy", 8, read_eval(run, "easy", 8).to_pylist()[4:])
    build(layout)
    with connect(layout) as db:
        curves = score_curves(db, [queries.Series("demo", "rpg-urkl")], ["easy"])
    last = curves[curves["step"] == 8].iloc[0]
    seeds = [array(layout, "rpg-urkl", "easy", 8, [n]).mean() for n in range(3)]
    expected = scipy.stats.ttest_1samp(seeds, 0).confidence_interval(0.95)
    assert (last["low"], last["high"]) == pytest.approx((expected.low, expected.high))


def test_several_sweeps_are_one_page_with_what_was_chosen(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", HOSTILE), (0, 1), SHAPE)
    write_sweep(tmp_path, "other", ("grpo", "dapo"), (0, 1), SHAPE)
    add_note(layout.sweep_folder("other"), "after <b>the</b> mend")
    build(layout)
    both = ("demo", "other")
    page = write_shared(layout, Choice(both), tmp_path / "all.html").read_text()
    assert "<script>alert" not in page and "<b>the</b>" not in page and "note: after &lt;b&gt;" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page) and "default-src 'none'" in page
    held = [f"demo · {HOSTILE}" in values(spec) for spec in specs_of(page)]
    assert held == [True, False, False]  # all curves, and what is real in either sweep
    for sweep in both:
        with connect(layout) as db:
            for one in summarise(db, sweep).table.itertuples():
                assert f">{tables.number(one.best)}</td>" in page

    chosen = Choice(both, variants=("dapo", "other · GRPO"), panels=("easy", "entropy"), baseline="dapo")
    page = write_shared(layout, chosen, tmp_path / "some.html").read_text()
    found = values(specs_of(page)[0])
    assert {"other · GRPO", "other · DAPO"} <= found and not any(text.startswith("demo ·") for text in found)
    assert "hard" not in found
    assert "0 of 2 variants are shown; tests are corrected for all of them" in page
    for choice, words in (
        (Choice(both, variants=("nobody",)), "--variant 'nobody': there are grpo"),
        (Choice(both, panels=("hight",)), "--panel 'hight': accepted are mean, easy, hard"),
        (Choice(("demo",), baseline="x"), "--baseline 'x': demo has grpo"),
    ):
        with pytest.raises(StoreError, match=re.escape(words)):
            write_shared(layout, choice, tmp_path / "none.html")


def test_a_diverged_run_has_a_gap_and_no_error(layout):
    run = layout.run("demo", "grpo-seed0")
    append_metrics(run, 2, {"step": 5, "grad_norm": math.inf, "reward": math.nan, "entropy": 0.5})
    build(layout)
    write_report(layout, "demo")
    curves = (layout.reports("demo") / "curves.csv").read_text()
    rewards = [line for line in curves.splitlines() if line.startswith("reward") or ",reward," in line]
    assert len(rewards) == 2 * 8 - 1


def test_numbers_of_a_run_added_later_appear(layout):
    before = summary(layout)
    write_run(layout.run("demo", "late"), "dapo", 0, 0.5, SHAPE, "grpo")
    layout.write_sweep(layout.read_sweep("demo") | {"runs": [*layout.read_sweep("demo")["runs"], "late"]})
    after = summary(layout)
    assert "dapo" not in before.variants and "dapo" in after.variants


@pytest.mark.parametrize(("low", "high", "shown_as"), [
    (0.4, 0.6, "0.500 ± 0.100"), (0.3, 0.6, "0.500 [0.300, 0.600]"), (0.4996, 0.5004, "0.500 ± 0.000"),
])  # fmt: skip
def test_an_interval_is_plus_minus_only_where_it_is_symmetric(low, high, shown_as):
    assert tables.plus_minus(0.5, low, high) == shown_as


def test_shares_near_one_show_both_ends_in_every_form(layout):
    """0.969 ± 0.153 is no statement about a share, which ends at 1."""
    for seed in range(3):
        for name in SHAPE.benchmarks:
            run = layout.run("demo", f"rpg-urkl-seed{seed}")
            rows = enumerate(read_eval(run, name, 8).to_pylist())
            write_eval(run, name, 8, [sample | {"correct": index > seed} for index, sample in rows])
    found = summary(layout)
    last = row(found, "rpg-urkl", "mean")
    assert last["high"] - last["last"] < 0.8 * (last["last"] - last["low"])
    text = f"{last['last']:.3f} [{last['low']:.3f}, {last['high']:.3f}]"
    latex = tables.latex(found).replace("{[}", "[").replace("{]}", "]")
    for form in (tables.markdown(found).replace("\\", ""), latex, shown(layout)):
        assert text in form
    assert {"low", "high"} <= set(found.table.columns)


@pytest.mark.parametrize("shades", [{}, theme.ON_DARK], ids=["light", "dark"])
def test_no_two_colours_of_lines_look_alike(shades):
    """In steps of 255 per channel; the blue that dark pages had was 19 from the light blue."""
    shown = [shades.get(colour, colour) for colour in theme.COLOURS]
    points = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in shown]
    pairs = itertools.combinations(zip(shown, points, strict=True), 2)
    apart = {(a, b): math.dist(p, q) for (a, p), (b, q) in pairs}
    assert min(apart.values()) > 60, min(apart, key=apart.get)


def test_a_figure_says_which_differences_are_real():
    def said(*verdicts):
        rows = [("mean", "GRPO", 0.0, "")] + [("mean", name, by, verdict) for name, by, verdict in verdicts]
        table = pandas.DataFrame(rows, columns=["benchmark", "label", "difference", "verdict"])
        names = {"grpo": "GRPO"}
        return " ".join(
            tables.significant(Summary("demo", "grpo", ["a", "b"], ["grpo"], names, table, [], []))
        )

    assert said() == ""
    assert said(("X", 0.1, "within noise")).endswith("no difference is significant.")
    found = said(("A", 0.1, "better"), ("B", 0.2, "better"), ("C", -0.3, "worse"), ("D", 0.5, "within noise"))
    assert "against GRPO" in found and found.endswith("better: B +0.200, A +0.100; worse: C −0.300.")


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda: made.append(1) or "draw()")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert library() == library() == "draw()" and len(made) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "folder"))
    assert library() == library() == "draw()" and len(made) == 3, "kept"
