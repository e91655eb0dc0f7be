"""Pages that compare variants: numbers are those of the summary and the database, selections do
what they say."""

import json
import math
import re

import pytest

from benchmarks.synthetic import Shape, write_sweep
from dashboard import paper_page
from rpg.metrics import METRICS, groups
from rpg.report import compute_curves
from rpg.report.format import points, with_interval
from rpg.report.paper import frame as published
from rpg.report.summary import summarise
from rpg.store import atomic_write_json, queries
from rpg.store.database import build, connect
from rpg.store.samples import drift_path
from tests.dashboard.driver import SHAPE, markup, panels, show, texts


def test_the_table_follows_baseline_and_benchmarks_of_the_url(demo):
    app = show("table", baseline="RPG-URKL", benchmarks="hard")
    with connect(demo) as db:
        found = summarise(db, "demo", "rpg-urkl", ["hard"]).table
    for row in found.itertuples():
        assert with_interval(row.last, row.low, row.high) in markup(
            app
        ) and f">{row.best:.3f}<" in markup(app)
    assert app.selectbox(key="baseline").value == "RPG-URKL"
    assert app.multiselect(key="benchmarks").value == ["hard"]
    cells = re.findall(r"<td[^>]*>(?:<a [^>]*>)?([^<]*)(?:</a>)?</td>", markup(app))
    rows = {cells[start]: cells[start : start + 8] for start in (0, 8)}
    assert rows["RPG-URKL"][5] == "baseline"
    assert rows["GRPO"][5] != "baseline"
    assert "Accuracy per benchmark" not in markup(app)


def test_what_nobody_chose_is_that_of_the_sweep_with_what_it_has_by_now(demo):
    shape = Shape(
        steps=12, eval_every=6, problems=5, samples=3, benchmarks=("easy", "hard", "third")
    )
    variants = ["dapo", "grpo", "cispo"]
    write_sweep(demo.home, "other", variants, (0, 1), shape)
    build(demo)
    apps = [show(page, sweep="demo") for page in ("table", "problems", "why")]
    chosen = show("problems", sweep="demo", variant="GRPO")
    for app in (*apps, chosen):
        app.selectbox(key="sweep").set_value("other").run()
    chosen.selectbox(key="sweep").set_value("demo").run()
    assert chosen.session_state["variant"] == "GRPO", "also where it is the default in between"
    write_sweep(demo.home, "other", [*variants, "rloo"], (0, 1), shape)
    build(demo)
    table, problems, why = (app.run().session_state for app in apps)
    assert (table["baseline"], table["benchmarks"]) == ("DAPO", ["easy", "hard", "third"])
    assert (problems["against"], problems["step"]) == ("DAPO", "12")
    assert why["variants"] == ["DAPO", "CISPO", "GRPO", "RLOO"]


def test_a_curve_over_what_is_not_known_is_named_and_not_drawn(demo):
    for part, names in (("urkl", "RPG-URKL"), ("", "GRPO, RPG-URKL")):
        for metrics in (
            run.metrics_path(1) for run in demo.run_folders("demo") if part in run.name
        ):
            metrics.write_text(metrics.read_text().replace('"tokens"', '"others"'))
        build(demo)
        overview, compare = (show(page, x="tokens") for page in ("overview", "compare"))
        assert all(
            f"over response tokens: {names}." in " ".join(texts(app)) for app in (overview, compare)
        )
        assert not any("NaN" in chart.proto.spec for chart in compare.get("vega_lite_chart"))


def test_compare_draws_what_is_chosen(demo):
    app = show("compare")
    assert panels(app) == 3 + 7  # mean, two benchmarks, and the metrics of the paper's figure
    app.multiselect(key="panels").set_value(["mean", "ess"]).run()
    app.multiselect(key="variants").set_value(["RPG-URKL"]).run()
    assert not app.exception
    assert panels(app) == 2
    assert "RPG-URKL" in markup(app) and "GRPO" not in markup(app)
    for axis in ("tokens", "hours", "optimizer_step"):
        app.selectbox(key="x").set_value(axis).run()
        assert not app.exception


@pytest.mark.parametrize(("against", "step"), [("GRPO", 6), ("RPG-URKL", 3)])
def test_problems_are_those_that_differ_most_and_both_answers_are_shown(demo, against, step):
    app = show("problems", benchmark="hard", against=against, against_step=str(step))
    table = app.dataframe[0].value
    with connect(demo) as db:
        rows = db.execute(
            """SELECT s.problem_id,
                      avg(correct::INT) FILTER (variant = 'rpg-urkl' AND s.step = 6) AS mine,
                      avg(correct::INT) FILTER (variant = ? AND s.step = ?) AS other
               FROM samples s JOIN runs r USING (sweep, run)
               WHERE s.benchmark = 'hard'
               GROUP BY ALL""",
            [against.lower(), step],
        ).fetchall()
    expected = {problem: (mine, other) for problem, mine, other in rows}
    for row in table.itertuples():
        assert (row.mine, row.other) == pytest.approx(expected[row.problem_id])
    assert len(table) == len(expected) == 5 and table["difference"].abs().is_monotonic_decreasing
    won = sum(mine > other for mine, other in expected.values())
    assert f"RPG-URKL{', step 6' * (step != 6)} does better on {won} of 5 problems" in texts(app)[0]
    shown = [element.value for element in app.code]
    assert (
        any("Compute problem" in text for text in shown)
        and sum("Answer" in text for text in shown) == 2
    )
    other = show("problems", benchmark="hard", problem="hard-3")
    assert any("problem 3 of hard" in element.value for element in other.code)


def test_the_frontier_draws_a_path_per_variant_and_pass_at_k(layout):
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1), SHAPE)
    write_sweep(layout.home, "bare", ("grpo",), (0, 1), SHAPE)
    for variant in ("grpo", "rpg-urkl"):
        for benchmark in SHAPE.benchmarks:
            path = drift_path(layout.run("demo", f"{variant}-seed0").eval_path(benchmark, 6))
            one = dict.fromkeys(
                ("per_response", "per_response_se", "per_token", "per_token_se"), 0.5
            )
            about = {"estimator": "whole distributions", "responses": 15, "problems": 5}
            atomic_write_json(path, {"policy_to_initial": one | about})
    build(layout)
    assert any("no checkpoint" in text for text in texts(show("frontier", sweep="bare")))
    app = show("frontier", sweep="demo")
    assert panels(app) == 1
    assert any("KL(initial ‖ policy) was not measured" in text for text in texts(app))
    assert app.selectbox(key="along").value == "training step"
    [chart] = [*app.get("vega_lite_chart"), *app.get("arrow_vega_lite_chart")]
    assert "RPG-URKL" in chart.proto.spec  # named where its path ends
    over = show("frontier", sweep="demo", part="pass@k and maj@k", variants="GRPO")
    assert panels(over) == 2
    assert "RPG-URKL" not in markup(over)


def test_accuracy_over_compute_of_any_sweep(layout):
    shape = Shape(steps=20, eval_every=2, problems=8, samples=4, benchmarks=("easy",))
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), shape)
    build(layout)
    app = show("frontier", part="Accuracy over compute", axis="response tokens")
    with connect(layout) as db:
        series = {
            queries.Series("demo", "grpo"): "GRPO",
            queries.Series("demo", "rpg-urkl"): "RPG-URKL",
        }
        data = compute_curves.measured(db, series, ["easy"], "tokens")
    part = compute_curves.section(data, list(series.values()), list(series.values()), "tokens")
    beside = compute_curves.section(data, ["GRPO", "TRL"], ["GRPO", "TRL"], "tokens")
    assert beside.notes[-1] == "TRL: no checkpoint of known response tokens."
    for row in part.grids[0].rows:
        assert all(f">{cell.text}<" in markup(app) for cell in row)
    assert all(line in texts(app) for line in part.notes)


def test_paper_puts_our_numbers_next_to_the_published(layout):
    shape = Shape(steps=3, eval_every=3, problems=6, samples=4, benchmarks=("aime24", "amc23"))
    write_sweep(layout.home, "ours", ("grpo", "rpg-ufkl"), (0, 1), shape)
    build(layout)
    html = markup(show("paper"))
    with connect(layout) as db:
        table = summarise(db, "ours").table
    mine = table[(table["variant"] == "rpg-ufkl") & (table["benchmark"] == "aime24")].iloc[0]
    assert f"{mine['last']:.3f} " in html
    assert points(mine["last"] - 0.5938) in html
    without_interval = {"last": 0.5, "low": math.nan, "high": math.nan}  # one imported seed
    assert "±" not in paper_page._ours(next(published().itertuples()), without_interval)[1].text


AUDIT = "What the loss optimises"


def test_the_section_why_draws_every_group_of_metrics(demo):
    with connect(demo) as db:
        measured = set(queries.metric_names(db))
    for group in ("Ratios and clipping", "Divergence", "Updates"):
        there = [name for name in groups()[group] if name in measured]
        app = show("why", sweep="demo", group=group)
        [line] = [text for text in texts(app) if "Lines: mean" in text]
        headings = (re.escape(METRICS[name].heading) for name in there)
        drawn_there = [
            text for text in headings if not re.search(f"{text}(, reference: [^:]+)?: 0", line)
        ]
        assert panels(app) == len(drawn_there) > 2
    assert any("No audits yet" in text for text in texts(show("why", sweep="demo", group=AUDIT)))


def test_the_section_why_draws_the_exact_bias_of_the_audit(demo):
    demo.audits.mkdir()
    rows = [
        {
            "loss": "grpo",
            "source": "rpg",
            "level": "token",
            "divergence": "rkl",
            "reference": reference,
            "clipped": False,
            "drift": drift,
            "bias": drift,
            "noise": 1.0,
        }
        for reference in ("old", "third")
        for drift in (0.0, 0.4)
    ]
    report = {"rows": rows, "losses": [{"name": "grpo", "divergence": "rkl"}]}
    (demo.audits / "catalogue.json").write_text(json.dumps(report))
    (demo.audits / "strange.json").write_text(json.dumps({"rows": 3}))
    build(demo)
    app = show("why", sweep="demo", group=AUDIT, audit="catalogue")
    assert any("Both are exact" in text for text in texts(app))
    app = show("why", sweep="demo", group=AUDIT, audit="strange")
    assert any("none of the selected variants" in text for text in texts(app))
