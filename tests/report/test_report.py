"""The report's files and printed tables: numbers of the summary in every form, nothing
unescaped."""

import json
import math
import re
import shutil
import subprocess
import sys

import altair as alt
import pandas
import pytest
import scipy.stats

from benchmarks.synthetic import Shape, write_sweep
from rpg.report import sweep_report, tables
from rpg.report.format import accuracy, with_interval
from rpg.report.labels import series_labels
from rpg.report.shared_page import shared_page
from rpg.report.summary import Summary, summarise
from rpg.report.sweep_report import library, score_curves, write_report
from rpg.store import Layout, queries
from rpg.store.database import build, connect
from rpg.store.notes import change
from rpg.store.run_writer import append_metrics
from rpg.store.samples import read_eval, write_eval
from tests.report.sweeps import SHAPE, array, demo, rebuild, rewritten, row, shown, summary


@pytest.fixture
def layout(tmp_path):
    return demo(tmp_path)


def test_the_main_table_says_how_many_answers_could_not_be_read(layout):
    assert "Unread" not in shown(layout)
    folder = layout.run("demo", "grpo-seed0")
    samples = read_eval(folder, "easy", 8).to_pylist()
    for sample in samples[:6]:
        sample |= {
            "correct": False,
            "extracted": "?",
            "reason": "answer line: not read: unclear; read as ?",
        }
    folder.eval_path("easy", 8).unlink()
    write_eval(folder, "easy", 8, samples)
    # 6 of 96 answers of one of three seeds, to one of two benchmarks
    assert row(summary(layout), "grpo", "mean")["unread"] == pytest.approx(6 / 96 / 3 / 2)
    assert row(summary(layout), "rpg-urkl", "mean")["unread"] == 0
    [said] = [line for line in summary(layout).health if "could not be read" in line]
    assert said.startswith("GRPO (1 of 3 runs): 6.2 % of the answers to easy at step 8 could not")
    assert "second reader" not in said, "nobody has read the answers a second time"
    text = shown(layout)
    assert "Unread" in text and "1 %" in text and tables.UNREAD_NOTE in " ".join(text.split())


def test_a_sweep_is_judged_once_to_be_written_and_printed(layout, monkeypatch):
    looked = []
    monkeypatch.setattr(
        sweep_report,
        "summarise",
        lambda *inputs, **more: looked.append(1) or summarise(*inputs, **more),
    )
    curves = []
    monkeypatch.setattr(
        sweep_report, "score_curves", lambda *inputs: curves.append(1) or score_curves(*inputs)
    )
    build(layout)

    printed = sweep_report.summary_of(layout, "demo")
    written = write_report(layout, "demo", printed)

    assert (len(looked), len(curves)) == (1, 1)
    assert "curves.csv" in {path.name for path in written}


def test_a_report_does_not_load_what_only_few_sweeps_need():
    """scipy.stats takes longer to load than all tables take to compute."""
    code = "import sys, rpg.report.upkeep; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_report_before_the_first_evaluation_says_so_and_has_curves(layout):
    for run in layout.run_folders("demo"):
        shutil.rmtree(run.path / "evals")
    assert "no checkpoint has been evaluated" in shown(layout)
    names = {path.name for path in write_report(layout, "demo")}
    assert "report.png" in names  # training curves are there


def test_a_sweep_without_results_has_a_report_that_says_so(tmp_path):
    layout = Layout.at(tmp_path)
    record = {"name": "demo", "source": "", "baseline": "grpo", "created": 1.0}
    layout.write_sweep(record | {"runs": ["grpo-seed0"]})
    layout.write_sweep(
        record | {"name": "other", "runs": [], "description": "Only this one has a question."}
    )
    assert "not started: grpo-seed0" in shown(layout)
    assert "report.png" not in {path.name for path in write_report(layout, "demo")}
    assert (layout.reports("demo") / "verdict.txt").read_text().startswith("\n\nNo checkpoint")


def test_one_benchmark_and_no_baseline(tmp_path):
    shape = Shape(steps=4, eval_every=4, problems=6, samples=4, benchmarks=("easy",))
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo"), (0,), shape)
    layout.write_sweep(layout.read_sweep("demo") | {"baseline": None})
    text = shown(layout)
    assert "Accuracy on easy" in text and "Verdict" not in text and "per benchmark" not in text
    assert "With one seed, an interval covers the choice of problems" in text


def test_terminal_table_holds_the_numbers(layout):
    found = row(summary(layout), "rpg-urkl", "mean")
    interval = with_interval(found["last"], found["low"], found["high"])
    lines = [re.split(r"\s{2,}", line.strip()) for line in shown(layout).splitlines()]
    [cells] = [cells for cells in lines if cells[0] == "RPG-URKL" and interval in cells]
    assert (
        cells[:4] == ["RPG-URKL", "3", f"{found['first']:.3f}", interval]
        and cells[-1] == found["verdict"]
    )


def test_a_figure_says_which_differences_are_real():
    def said(*verdicts):
        rows = [("mean", "GRPO", 0.0, "")] + [
            ("mean", name, by, verdict) for name, by, verdict in verdicts
        ]
        table = pandas.DataFrame(rows, columns=["benchmark", "label", "difference", "verdict"])
        found = Summary("demo", "grpo", ["a", "b"], ["grpo"], {"grpo": "GRPO"}, table, [], [])
        return " ".join(tables.significant(found))

    assert said() == said(("X", 0.1, "too few seeds")) == ""
    assert said(("X", 0.1, "within noise")).endswith("no difference is significant.")
    found = said(
        ("A", 0.1, "better"), ("B", 0.2, "better"), ("C", -0.3, "worse"), ("D", 0.5, "within noise")
    )
    assert "against GRPO" in found and found.endswith(
        "better: B +20.0 points, A +10.0 points; worse: C −30.0 points."
    )


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


HOSTILE = 'x</script><script>alert("1")</script>[bold]\\textbf{a}_b|c'


def test_files_are_whole_and_nothing_is_unescaped(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", HOSTILE), (0, 1), SHAPE)
    rebuild(layout)
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
    assert any(text.endswith(", too few seeds") for text in values(specs[0]))
    for spec in specs:
        alt.Chart.from_dict(spec)  # raises where it is none
    assert "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;[bold]" in page
    assert r"\textbackslash{}textbf\{a\}\_b" in paths["table.tex"].read_text().replace(
        r"\allowbreak{}", ""
    )
    assert r"\<script\>" in paths["table.md"].read_text()
    assert "2 training problems are in &lt;i&gt;aime24&lt;/i&gt; too" in page
    assert "[bold]" in (said := shown(layout)) and "! 2 training problems are in" in said


def test_several_sweeps_are_one_page_with_what_was_chosen(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo", HOSTILE), (0, 1), SHAPE)
    write_sweep(tmp_path, "other", ("grpo", "dapo"), (0, 1), SHAPE)
    change(layout.sweep_folder("other"), note="after <b>the</b> mend", label="<i>other</i>")
    change(layout.run_folders("other")[0].path, add=["hidden"])
    for run in layout.run_folders("demo")[:2]:
        rewritten(run, lambda one: {"tokens": one["tokens"] / 9})
    rebuild(layout)
    both = ("demo", "other")
    with connect(layout) as db:
        names = series_labels(queries.variants(db, both), dict.fromkeys(both, "grpo"), both)
        page = shared_page(layout, db, names, ("mean", "easy", "hard", "reward"))
        chosen = {
            key: label
            for key, label in names.items()
            if key.sweep == "other" or key.variant == "grpo"
        }
        some = shared_page(layout, db, chosen, ("easy", "entropy"))
    assert (
        "<script>alert" not in page and "<b>the</b>" not in page and "note: after &lt;b&gt;" in page
    )
    assert (
        not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
        and "default-src &#39;none&#39;" in page
    )
    held = [f"demo · {HOSTILE}" in values(spec) for spec in specs_of(page)]
    assert held == [True, False, False]  # all curves, and what is real in either sweep
    for sweep in both:
        with connect(layout) as db:
            for one in summarise(db, sweep).table.itertuples():
                assert f">{accuracy(one.best)}</td>" in page
    found = values(specs_of(some)[0])
    assert {"other · GRPO", "other · DAPO", "demo · GRPO"} <= found
    assert not found & {f"demo · {HOSTILE}", "hard"} and "&lt;script&gt;alert" not in some
    assert "times as many tokens" in page and "&lt;script&gt;alert" in page
    assert "1 of 2 variants are shown; tests are corrected for all of them" in some
    assert "&lt;i&gt;other&lt;/i&gt; (other)" in some and "but counted here: dapo-seed0" in some


def test_accuracy_curves_carry_the_intervals_of_the_table(layout):
    layout.run("demo", "rpg-urkl-seed1").eval_path(
        "hard", 8
    ).unlink()  # the others have both benchmarks
    found = row(summary(layout), "rpg-urkl", "mean")
    with connect(layout) as db:
        curves = score_curves(db, [queries.Series("demo", "rpg-urkl")], ["mean", "easy"])
    last = curves[(curves["name"] == "mean") & (curves["step"] == 8)].iloc[0]
    expected = found["last"], found["low"], found["high"]
    assert (last["mean"], last["low"], last["high"]) == pytest.approx(expected)


def test_a_point_without_common_problems_keeps_the_interval_over_seeds(layout):
    run = layout.run("demo", "rpg-urkl-seed0")
    write_eval(run, "easy", 8, read_eval(run, "easy", 8).to_pylist()[4:])
    rebuild(layout)
    with connect(layout) as db:
        curves = score_curves(db, [queries.Series("demo", "rpg-urkl")], ["easy"])
    last = curves[curves["step"] == 8].iloc[0]
    seeds = [array(layout, "rpg-urkl", "easy", 8, [n]).mean() for n in range(3)]
    expected = scipy.stats.ttest_1samp(seeds, 0).confidence_interval(0.95)
    assert (last["low"], last["high"]) == pytest.approx((expected.low, expected.high))


def test_a_diverged_run_has_a_gap_and_no_error(layout):
    run = layout.run("demo", "grpo-seed0")
    append_metrics(run, 2, {"step": 5, "grad_norm": math.inf, "reward": math.nan, "entropy": 0.5})
    rebuild(layout)
    write_report(layout, "demo")
    curves = (layout.reports("demo") / "curves.csv").read_text()
    rewards = [
        line for line in curves.splitlines() if line.startswith("reward") or ",reward," in line
    ]
    assert len(rewards) == 2 * 8 - 1


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda: made.append(1) or "draw()")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert library() == library() == "draw()" and len(made) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "folder"))
    assert library() == library() == "draw()" and len(made) == 3, "kept"


@pytest.mark.parametrize("is_served", [True, False])
def test_a_report_links_to_the_pages_that_were_served_while_it_ran(tmp_path, is_served):
    layout = write_sweep(tmp_path, "linked", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)
    build(layout)
    flow_run = "http://127.0.0.1:4201/runs/flow-run/1b"
    dashboard = "http://127.0.0.1:8511/?sweep=linked"
    layout.write_flow_run("linked", flow_run, dashboard if is_served else None)

    write_report(layout, "linked")

    page = (layout.reports("linked") / "report.html").read_text("utf-8")
    assert (f'<a href="{flow_run}">Flow run in Prefect</a>' in page) == is_served
    assert (f'<a href="{dashboard}">In the dashboard</a>' in page) == is_served
