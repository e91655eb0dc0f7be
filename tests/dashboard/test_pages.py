"""Every page, run by Streamlit's own test driver: right numbers, plain text, and one line for what is broken."""

import json
import re
import shutil

import pytest

pytest.importorskip("streamlit")
import streamlit as st
from streamlit.testing.v1 import AppTest

from benchmarks import synthetic_study
from benchmarks.synthetic import Shape, write_run, write_sweep
from dashboard.widgets import mathematics
from rpg.metrics import METRICS, groups
from rpg.report import compute_curves
from rpg.report.summary import summarise
from rpg.report.tables import plus_minus
from rpg.store import Layout, atomic_write_json, queries
from rpg.store.database import build, connect, current
from rpg.store.run_writer import append_metrics, claim_run, write_failed, write_waiting
from rpg.store.samples import drift_path, grades_path, read_eval, write_eval, write_grades, write_samples
from rpg.study import study_report
from rpg.study.registration import record_path
from tests.waiting import HANG

PAGES = (
    "overview",
    "compare",
    "table",
    "frontier",
    "tokens",
    "problems",
    "why",
    "paper",
    "run",
    "nightly",
    "evaluations",
    "studies",
)
SHAPE = Shape(steps=6, eval_every=3, problems=5, samples=3, benchmarks=("easy", "hard"))
HOSTILE = "<img src=x onerror=window.pwned=1> **[a](http://evil)** $x$ :red[b] '); DROP TABLE runs;--🙂"


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.setenv("RPG_HOME", str(tmp_path))
    # Streamlit looks through 300 installed packages for components in every new session; the pages use none.
    monkeypatch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
    return Layout.at(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished sweep with its database, to be copied."""
    layout = Layout.at(tmp_path_factory.mktemp("demo"))
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)
    build(layout)
    return layout.home


@pytest.fixture
def demo(layout, finished):
    shutil.copytree(finished, layout.home, dirs_exist_ok=True)
    return layout


def show(page, **selection):
    """The page as a fresh session shows it, with a selection in the URL."""
    app = AppTest.from_string(
        f"from dashboard import {page}_page, view\nview.with_results({page}_page.page)()",
        default_timeout=HANG,
    )
    for key, value in selection.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception, app.exception[0].message
    return app


def texts(app):
    """All plain texts of the page."""
    return [element.value for element in app.text]


def drawn(app):
    """The specification of the one chart of linked panels."""
    [chart] = [*app.get("vega_lite_chart"), *app.get("arrow_vega_lite_chart")]
    [group] = json.loads(chart.proto.spec)["marks"]
    return group


def panels(app):
    return len(drawn(app)["marks"])


def legend(app):
    """What the legend lists."""
    [found] = drawn(app)["legends"]
    return found["values"]


def markup(app):
    """All HTML of the page (tables and legends)."""
    return "".join(element.proto.body for element in app.get("html"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_without_a_database_says_how_to_begin(layout, page):
    assert any("No results in" in text and "rpg sweep" in text for text in texts(show(page)))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_an_empty_database(layout, page):
    build(layout)
    show(page)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_finished_sweep(demo, page):
    show(page)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_sweep_nobody_has_begun(layout, page):
    layout.write_sweep({"name": "s", "source": "", "baseline": "grpo", "created": 1, "runs": ["a", "b"]})
    build(layout)
    show(page, sweep="s", sweeps="s")


@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_are_text(layout, page):
    name = HOSTILE.replace("/", "-")
    shape = Shape(steps=3, eval_every=3, problems=2, samples=2, benchmarks=(name, "easy"), metrics=8)
    write_sweep(layout.home, name, ("grpo", HOSTILE), (0, 1), shape)
    build(layout)
    app = show(page)
    assert "<img" not in markup(app)
    for kind in ("markdown", "caption", "subheader", "title", "header"):
        for element in app.get(kind):
            if page != "problems":  # which shows the problem itself, its formulas set and all else escaped
                assert "evil" not in str(element.value)
            unescaped = re.sub(r"\\.", "", str(element.value))  # a backslash makes the mark after it a letter
            assert not re.search(r"<|\]\(|://|:red|\*\*", unescaped), element.value


@pytest.mark.parametrize("page", PAGES)
def test_a_corrupt_run_is_one_line_and_the_page_works(demo, page):
    demo.run("demo", "grpo-seed0").manifest_path.write_text("{")
    build(demo)
    app = show(page)
    [line] = [text for text in texts(app) if "grpo-seed0/manifest.json" in text]
    assert "\n" not in line


def test_a_page_is_whole_again_whatever_part_of_the_database_is_damaged(demo):
    """Also those that only the page reads, when it is too late for another file to be opened."""
    whole, built = texts(show("problems")), {current(demo)}
    header, block = 3 * 4096, 1 << 18
    for start in range(header, current(demo).stat().st_size, 2 * block):
        path = current(demo)
        with path.open("r+b") as file:
            file.seek(start)
            file.write(b"y" * min(block, path.stat().st_size - start))
        st.cache_resource.clear()  # as after a restart: DuckDB reads a block of an open file once
        st.cache_data.clear()
        show("problems")
        assert texts(show("problems")) == whole
        built.add(current(demo))
    assert len(built) > 3


def test_the_table_shows_the_numbers_of_the_summary(demo):
    app = show("table")
    with connect(demo) as db:
        found = summarise(db, "demo").table
    html = markup(app)
    for row in found[found["benchmark"] == "mean"].itertuples():
        assert plus_minus(row.last, row.low, row.high) in html
        assert f"{row.best:.3f}" in html
    assert any(verdict in html for verdict in ("within noise", "better", "worse"))


def test_the_table_follows_baseline_and_benchmarks_of_the_url(demo):
    app = show("table", baseline="RPG-URKL", benchmarks="hard")
    assert app.selectbox(key="baseline").value == "RPG-URKL"
    assert app.multiselect(key="benchmarks").value == ["hard"]
    rows = re.findall(r"<td[^>]*>(?:<a [^>]*>)?([^<]*)(?:</a>)?</td>", markup(app))
    assert rows[0] == "RPG-URKL" and rows[5] == "baseline" and "Accuracy per benchmark" not in markup(app)


def test_an_unknown_selection_in_the_url_is_said(demo):
    app = show("table", sweep="gone", baseline="gone", benchmarks="gone")
    assert app.selectbox(key="sweep").value == "demo"
    assert "GRPO" in markup(app)
    for label in ("Sweep", "Baseline", "Benchmarks"):
        assert f"{label}: nothing here is called 'gone'; showing something else instead." in texts(app)


@pytest.mark.parametrize("page", ["overview", "compare", "table", "problems", "run"])
def test_what_is_shown_is_always_in_the_address(layout, page):
    """A link that is copied now opens the same sweep when there is a newer one."""
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1), SHAPE)
    build(layout)
    link = dict(show(page).query_params)
    write_sweep(layout.home, "newer", ("dapo", "rpg-ufkl"), (0, 1), SHAPE)
    content = layout.read_sweep("newer")
    layout.write_sweep(content | {"created": content["created"] + 1000})
    build(layout)
    key = "sweeps" if page == "compare" else "sweep"
    assert show(page).session_state[key] in ("newer", ["newer"])
    again = show(page, **link)
    assert link[key] in ("demo", ["demo"]) and again.session_state[key] in ("demo", ["demo"])


def test_all_variants_are_chosen_at_first(layout):
    variants = [
        f"{name} algorithm.beta={beta}" for name in ("grpo", "rpg-urkl") for beta in (0, 0.1, 0.2, 0.3)
    ]
    write_sweep(layout.home, "many", variants, (0, 1), SHAPE)
    build(layout)
    app = show("compare")
    every = [f"{name}, beta {beta}" for name in ("GRPO", "RPG-URKL") for beta in (0, 0.1, 0.2, 0.3)]
    assert app.multiselect(key="variants").value == every == app.multiselect(key="variants").options


def test_problems_are_those_that_differ_most_and_both_answers_are_shown(demo):
    app = show("problems", benchmark="hard")
    table = app.dataframe[0].value
    with connect(demo) as db:
        rows = db.execute(
            """SELECT s.problem_id, avg(correct::INT) FILTER (variant = 'rpg-urkl') AS mine,
                      avg(correct::INT) FILTER (variant = 'grpo') AS other
               FROM samples s JOIN runs r USING (sweep, run)
               WHERE s.benchmark = 'hard' AND s.step = 6 GROUP BY ALL"""
        ).fetchall()
    expected = {problem: (mine, other) for problem, mine, other in rows}
    for row in table.itertuples():
        assert (row.mine, row.other) == pytest.approx(expected[row.problem_id])
    assert len(table) == len(expected) == 5
    assert table["difference"].abs().is_monotonic_decreasing
    won = sum(mine > other for mine, other in expected.values())
    assert f"RPG-URKL does better on {won} of 5 problems" in texts(app)[0]
    shown = [element.value for element in app.markdown]
    assert any("Compute problem" in text for text in shown) and sum("Answer" in text for text in shown) == 2
    other = show("problems", benchmark="hard", problem="hard-3")
    assert any("problem 3 of hard" in element.value for element in other.markdown)


@pytest.mark.parametrize("page", ["run", "problems"])
def test_samples_that_were_drawn_anew_are_shown_anew(demo, page):
    """An evaluation that is extended or made again has the name it had."""
    selection = {"sweep": "demo", "run": "grpo-seed0", "benchmark": "easy"}
    selection |= {"part": "Samples", "problem": "easy-0"}
    shown = lambda app: [one.value for one in (*app.code, *app.markdown)]  # noqa: E731
    assert not any("drawn anew" in text for text in shown(show(page, **selection)))
    for variant in ("grpo", "rpg-urkl"):
        run = demo.run("demo", f"{variant}-seed0")
        rows = [row | {"response": "drawn anew"} for row in read_eval(run, "easy", 6).to_pylist()]
        run.eval_path("easy", 6).unlink()
        write_eval(run, "easy", 6, rows)
    assert any("drawn anew" in text for text in shown(show(page, **selection)))


def write_betas(layout):
    variants = [f"{name} algorithm.beta={beta}" for name in ("grpo", "rpg-urkl") for beta in (0.1, 1, 0.02)]
    write_sweep(layout.home, "beta", variants, (0, 1), SHAPE)
    build(layout)


def test_runs_are_filtered_grouped_and_sorted_by_any_setting(layout):
    write_betas(layout)
    with connect(layout) as db:
        scores = queries.scores(db, "beta")
    last = scores[(scores["benchmark"] == "mean") & (scores["step"] == 6)]
    runs = lambda **asked: show("table", sweep="beta", part="By setting", **asked).dataframe[0].value  # noqa: E731
    table = runs()
    assert len(table) == 12 and table["accuracy"].is_monotonic_decreasing
    assert {"seed", "algorithm.name", "algorithm.algorithm.beta"} <= set(table.columns)
    assert table["run"].str.startswith("./run?sweep=beta&run=").all()
    some = runs(only="algorithm.algorithm.beta = 1", order="seed")
    assert set(some["algorithm.algorithm.beta"]) == {"1"} and some["seed"].tolist() == ["0", "0", "1", "1"]
    means = runs(by="algorithm.name").set_index("algorithm.name")
    expected = last.groupby(last["variant"].str.partition(" ")[0])["accuracy"].mean()
    assert means["accuracy"].to_dict() == pytest.approx(expected.to_dict()) and set(means["runs"]) == {6}


def test_the_frontier_draws_a_path_per_variant_and_pass_at_k(layout):
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1), SHAPE)
    write_sweep(layout.home, "bare", ("grpo",), (0, 1), SHAPE)
    for variant in ("grpo", "rpg-urkl"):
        for benchmark in SHAPE.benchmarks:
            path = drift_path(layout.run("demo", f"{variant}-seed0").eval_path(benchmark, 6))
            one = dict.fromkeys(("per_response", "per_response_se", "per_token", "per_token_se"), 0.5)
            atomic_write_json(path, {"policy_to_initial": one | {"responses": 15, "problems": 5}})
    build(layout)
    assert any("no checkpoint" in text for text in texts(show("frontier", sweep="bare")))
    app = show("frontier", sweep="demo")
    assert len(app.get("vega_lite_chart")) + len(app.get("arrow_vega_lite_chart")) == 1
    assert any("KL(initial ‖ policy) was not measured" in text for text in texts(app))
    assert app.selectbox(key="along").value == "training step" and "GRPO" in markup(app)
    over = show("frontier", sweep="demo", part="pass@k and maj@k", variants="GRPO")
    assert len(over.get("vega_lite_chart")) + len(over.get("arrow_vega_lite_chart")) == 2
    assert "RPG-URKL" not in markup(over)


def test_only_formulas_are_markup():
    for text, markdown in (
        ("a $x^2$ b", "a $x^2$ b"),
        ("so \\(\\frac{1}{2}\\) and \\[y\n= 3\\]", r"so $\frac{1}{2}$ and $y = 3$"),
        ("costs $5 or $6", r"costs \$5 or \$6"),
        ("<img src=x> [a](http://b) :red[c] # d", r"\<img src\=x\> \[a\]\(http\:\/\/b\) \:red\[c\] \# d"),
        ("one\ntwo", "one  \ntwo"),
    ):
        assert mathematics(text) == markdown


def test_what_is_clicked_in_the_legend_is_in_the_address(demo):
    """Labels that the chart has not are left out: with one of them everything would step back."""
    for asked, left in ((["RPG-URKL"], ["RPG-URKL"]), (["RPG-URKL", "gone"], ["RPG-URKL"]), (["gone"], [])):
        app = show("compare", panels="mean", picked=asked)
        [store] = [one for one in drawn(app)["data"] if one["name"] == "pick_store"]
        assert [row["values"] for row in store["values"]] == [[label] for label in left]
        kept = app.query_params.get("picked", [])
        assert ([kept] if isinstance(kept, str) else kept) == left


def test_compare_draws_what_is_chosen(demo):
    app = show("compare")
    assert panels(app) == 3 + 7  # mean, two benchmarks, and the metrics of the paper's figure
    app.multiselect(key="panels").set_value(["mean", "ess"]).run()
    app.multiselect(key="variants").set_value(["RPG-URKL"]).run()
    assert not app.exception
    assert panels(app) == 2
    assert legend(app) == ["RPG-URKL"]
    for axis in ("tokens", "hours", "optimizer_step"):
        app.selectbox(key="x").set_value(axis).run()
        assert not app.exception
    app.slider(key="smooth").set_value(5).run()
    assert not app.exception


def by_run(app):
    """The runs of the overview; each is a link to its page."""
    table = app.dataframe[1].value
    assert table["run"].str.startswith("./run?sweep=demo&run=").all()
    return table.set_index(table["run"].str.rpartition("run=")[2])


def test_overview_reads_states_from_the_files_of_this_moment(demo):
    run = demo.run("demo", "grpo-seed1")
    run.done_path.unlink()
    build(demo)
    claim_run(run)
    append_metrics(run, 2, {"step": 5, "reward": 0.25, "seconds_step": 1.0})
    app = show("overview", sweep="demo")
    table = by_run(app)
    assert table.loc["grpo-seed1", "state"] == "running"
    assert table.loc["grpo-seed1", "reward"] == 0.25 and table.loc["grpo-seed1", "step"] == 5
    write_failed(run, "ValueError: no", step=5)
    app = show("overview", sweep="demo")
    assert any("grpo-seed1: ValueError: no" in text for text in texts(app))
    write_waiting(run, "waits for a slot: 2 of 2 taken")
    row = by_run(show("overview", sweep="demo")).loc["grpo-seed1"]
    assert row["state"] == "queued" and row["waits"] == "waits for a slot: 2 of 2 taken"


def test_overview_links_to_the_flow_run(demo):
    good = "http://127.0.0.1:4200/runs/flow-run/1"
    for url in (good, "javascript:alert(1)", None, 3):
        demo.write_flow_run("demo", url)
        links = [link.proto.url for link in show("overview", sweep="demo").get("link_button")]
        assert links == ([url] if url == good else [])


def test_run_shows_differences_of_settings_and_finds_samples(demo):
    write_run(demo.run("demo", "beta"), "grpo algorithm.beta=0.001", 0, 0.3, SHAPE, "grpo")
    build(demo)
    app = show("run", sweep="demo", run="grpo-seed0", other="beta", part="Settings")
    tables = [frame.value for frame in app.dataframe]
    [settings] = [table for table in tables if "other run" in table]
    assert settings["setting"].tolist() == ["algorithm.algorithm.beta"]
    assert json.loads(settings["other run"].iloc[0]) == "0.001"
    app = show("run", sweep="demo", run="grpo-seed0", part="Samples")
    app.text_input(key="search").set_value("problem 3 of easy").run()
    assert any(text.startswith("3 of 15 samples") for text in texts(app))
    app.selectbox(key="show").set_value("wrong").run()
    wrong = read_eval(demo.run("demo", "grpo-seed0"), "easy", 6).to_pandas()
    wrong = wrong[wrong["problem"].str.contains("problem 3") & ~wrong["correct"]]
    assert any(text.startswith(f"{len(wrong)} of 15 samples") for text in texts(app))


def test_run_shows_per_problem_where_two_gradings_differ(demo):
    run = demo.run("demo", "grpo-seed0")
    path, rows = run.eval_path("easy", 6), read_eval(run, "easy", 6).to_pylist()
    turned = set(list(dict.fromkeys(row["problem_id"] for row in rows))[2:4])
    others = [row | {"correct": row["correct"] != (row["problem_id"] in turned)} for row in rows]
    write_eval(run, "easy", 6, rows, "lines-2")
    write_grades(grades_path(path, "math_dapo-0.9.1"), others, "math_dapo-0.9.1", "")
    app = show("run", sweep="demo", run="grpo-seed0", benchmark="easy")
    assert app.selectbox(key="rules").options == ["lines-2", "math_dapo-0.9.1"]
    app.selectbox(key="rules").set_value("math_dapo-0.9.1").run()
    assert any(text.startswith("2 of 5 problems differ: ") for text in texts(app))
    [table] = [frame.value for frame in app.dataframe if "right by lines-2" in frame.value]
    chosen = [[r["correct"] for r in rows if r["problem_id"] == problem] for problem in table["problem"]]
    assert table["right by lines-2"].tolist() == [sum(some) for some in chosen]
    assert table["right by math_dapo-0.9.1"].tolist() == [3 - sum(some) for some in chosen]
    app.selectbox(key="show").set_value("changed").run()
    assert any(text.startswith("6 of 15 samples") for text in texts(app))


def test_evaluations_by_hand_stand_beside_those_of_sweeps(demo):
    rows = read_eval(demo.run("demo", "grpo-seed0"), "easy", 6).to_pylist()
    about = {"model": HOSTILE, "engine": "vllm", "draws": "key"}
    write_samples(demo.evaluations / "model" / "easy.parquet", rows, "lines-2", about)
    build(demo)
    app = show("evaluations")
    [row] = app.dataframe[0].value.to_dict("records")
    assert (row["model"], row["origin"], row["engine"]) == (HOSTILE, "hand", "vllm")
    assert HOSTILE not in markup(app)
    app.multiselect(key="origin").set_value(["hand", "sweep"]).run()
    both = app.dataframe[0].value
    of_run = both[(both["model"] == "demo/grpo-seed0/step-000006") & (both["benchmark"] == "easy")]
    assert of_run["accuracy"].tolist() == pytest.approx([row["accuracy"]]) and of_run["origin"].tolist() == [
        "sweep"
    ]


def test_ten_megabytes_of_text_are_cut_and_can_be_saved(demo):
    run = demo.run("demo", "grpo-seed0")
    rows = read_eval(run, "easy", 6).to_pylist()
    rows[0]["response"] = "<b>word</b> " * 900_000
    write_eval(run, "easy", 6, rows)
    app = show("run", sweep="demo", run="grpo-seed0", benchmark="easy")
    assert any("more characters" in text for text in texts(app))
    assert max(len(code.value) for code in app.code) <= 20_000


def test_paper_puts_our_numbers_next_to_the_published(layout):
    shape = Shape(steps=3, eval_every=3, problems=6, samples=4, benchmarks=("aime24", "amc23"))
    write_sweep(layout.home, "ours", ("grpo", "rpg-ufkl"), (0, 1), shape)
    build(layout)
    html = markup(show("paper"))
    with connect(layout) as db:
        table = summarise(db, "ours").table
    mine = table[(table["variant"] == "rpg-ufkl") & (table["benchmark"] == "aime24")].iloc[0]
    assert f"{mine['last']:.3f} " in html
    assert f"{mine['last'] - 0.5938:+.3f}".replace("-", "−") in html
    assert "0.5261 †" in html and "0.9517 †" in html


AUDIT = "What the loss optimises"


def test_why_draws_every_group(demo):
    with connect(demo) as db:
        measured = set(queries.metric_names(db))
    for group in ("Ratios and clipping", "Divergence", "Updates"):
        there = [name for name in groups()[group] if name in measured]
        app = show("why", sweep="demo", group=group)
        [line] = [text for text in texts(app) if "Lines: mean" in text]
        headings = (re.escape(METRICS[name].heading) for name in there)
        drawn_there = [text for text in headings if not re.search(f"{text}(, reference: [^:]+)?: 0", line)]
        assert panels(app) == len(drawn_there) > 2
    assert any("No audits yet" in text for text in texts(show("why", sweep="demo", group=AUDIT)))


def test_why_draws_the_audit(demo):
    demo.audits.mkdir()
    rows = [
        {"loss": "grpo", "source": "rpg", "level": "token", "divergence": "rkl", "reference": reference,
         "clipped": False, "drift": drift, "bias": drift, "noise": 1.0}
        for reference in ("old", "third") for drift in (0.0, 0.4)
    ]  # fmt: skip
    report = {"rows": rows, "losses": [{"name": "grpo", "divergence": "rkl"}]}
    (demo.audits / "catalogue.json").write_text(json.dumps(report))
    (demo.audits / "strange.json").write_text(json.dumps({"rows": 3}))
    build(demo)
    app = show("why", sweep="demo", group=AUDIT, audit="catalogue")
    assert any("Both are exact" in text for text in texts(app))
    app = show("why", sweep="demo", group=AUDIT, audit="strange")
    assert any("none of the selected variants" in text for text in texts(app))


def a_night(layout, day, reward, **more):
    digest = {"spec": "s", "steps": [1], "weights": "w", "samples": {}}
    digest["metrics"] = {"reward": f"{reward:08.4f}"}
    record = {
        "night": f"2026-01-{day:02d}-0123abcd", "started": 1.7e9 + 86400 * day,
        "revision": "f" * 40, "code": "c", "environment": {},
        "values": {"chain / grpo / reward": reward}, "spread": {"chain / grpo / reward": 0.01},
        "digests": {"chain / grpo / seed 0": digest}, "failed": {}, "bits": False, "said": "bits are the same",
    }  # fmt: skip
    atomic_write_json(layout.home / "nightly" / f"{day}.json", record | more)


def test_nightly_runs_show_what_changed_who_accepted_it_and_the_bands(demo):
    assert any("rpg nightly" in text for text in texts(show("nightly")))
    for day in (1, 2):
        a_night(demo, day, 0.5)
    app = show("nightly")
    assert "Newest night 2026-01-02-0123abcd: as before" in texts(app)
    a_night(demo, 3, 0.9, bits=True, said=f"bits changed since commit ffff: {HOSTILE}")
    app = show("nightly")
    assert any("bits changed, 1 of 1 numbers outside their bands" in text for text in texts(app))
    assert any(HOSTILE in text for text in texts(app)) and "<img" not in markup(app)
    a_night(demo, 3, 0.9, bits=True, accepted={"why": "meant", "user": "anna", "time": 1.7e9})
    app = show("nightly")
    assert "accepted by anna: meant" in texts(app)
    a_night(
        demo,
        3,
        0.9,
        accepted={"why": "meant", "user": "anna"},
        planted={"loss: a sign": True, "store: a view": False},
    )
    said = "Planted faults of the last 30 days: 1 of 2 seen; not seen: store: a view"
    app = show("nightly")
    assert said in texts(app)
    nights = app.dataframe[0].value
    assert list(nights["state"]) == ["accepted", "as before", "as before"]
    assert nights["accepted because"][0] == "meant" and nights["by"][0] == "anna"


@pytest.mark.parametrize("page", ["overview", "compare", "table"])
def test_runs_of_different_code_are_named(demo, page):
    for name in demo.read_sweep("demo")["runs"]:
        loss = "1" if name.startswith("grpo") else "2"
        record = {"code": f"code{loss}", "sources": {"rpg/losses/policy_loss.py": loss}, "git_revision": None}
        atomic_write_json(demo.run("demo", name).provenance_path(1), record | {"versions": {}, "machine": {}})
    build(demo)
    words = " ".join(texts(show(page)))
    assert "trained by different code: code1 (no git checkout): grpo-seed0" in words, words
    assert "rpg/losses/policy_loss.py differs" in words


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """The data folder of a study whose question is hostile."""
    home = tmp_path_factory.mktemp("studied")
    shape = Shape(steps=20, eval_every=2, problems=5, samples=2)
    build(synthetic_study.write(home, question=HOSTILE, trials=6, seeds=3, shape=shape))
    return home


def test_a_study_is_shown_from_search_to_fits(layout, studied):
    shutil.copytree(studied, layout.home, dirs_exist_ok=True)
    found = study_report.material(layout, "kl-forms")
    app = show("studies")
    assert HOSTILE in texts(app) and "<img" not in markup(app)
    assert ":green-badge[registered]" in [element.value for element in app.markdown]
    [table] = [element.value for element in app.dataframe]
    assert (
        len(table) == 18
        and table["run"][0] == f"./run?sweep=kl-forms.tuning&run={found.trials['run_ids'][0][0]}"
    )
    for row in study_report.search(found).grids[0].rows:
        assert row[4].text in markup(app)
    html = markup(show("studies", part="Comparison"))
    with connect(layout) as db:
        parts = [*study_report.comparison(db, layout, found.registered), study_report.cost(db, found)]
    for part in parts:
        for grid in part.grids:
            for row in grid.rows:
                assert all(f">{cell.text}<" in html for cell in row)
    seconds = show("studies", part="Over compute", axis="hours of training")
    assert "Midpoint, hours of training" in markup(seconds)


def test_a_study_that_was_changed_after_its_registration_says_so(layout, studied):
    shutil.copytree(studied, layout.home, dirs_exist_ok=True)
    path = record_path(layout, "kl-forms")
    path.write_text(path.read_text().replace('"matters": 0.03', '"matters": 0.3'))
    app = show("studies", part="Comparison")
    assert ":orange-badge[registered, then changed]" in [element.value for element in app.markdown]
    assert any("the record was edited" in text for text in texts(app))


def test_accuracy_over_compute_of_any_sweep(layout):
    shape = Shape(steps=20, eval_every=2, problems=8, samples=4, benchmarks=("easy",))
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), shape)
    build(layout)
    app = show("frontier", part="Accuracy over compute", axis="response tokens")
    with connect(layout) as db:
        series = {queries.Series("demo", "grpo"): "GRPO", queries.Series("demo", "rpg-urkl"): "RPG-URKL"}
        made = compute_curves.fits(
            compute_curves.measured(db, series, ["easy"], "tokens"), list(series.values())
        )
    for row in compute_curves.grid(made, "tokens").rows:
        assert all(f">{cell.text}<" in markup(app) for cell in row)
    assert all(line in texts(app) for line in compute_curves.refusals(made))
