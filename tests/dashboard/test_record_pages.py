"""Pages of single things: runs and their samples, evaluations, nights, studies."""

import json
import time

import pytest

from benchmarks import synthetic_study
from benchmarks.synthetic import Shape, write_run
from rpg.metrics import METRICS
from rpg.store.database import build, connect
from rpg.store.run_writer import append_metrics, claim_run, write_done, write_failed, write_waiting
from rpg.store.samples import read_eval, write_samples
from rpg.study import study_report
from tests.dashboard.driver import HOSTILE, SHAPE, a_night, markup, show, texts


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


def test_a_page_does_without_the_notes_of_a_run_that_has_not_begun_or_that_cannot_be_read(demo):
    sweep = demo.read_sweep("demo")
    demo.write_sweep({**sweep, "runs": [*sweep["runs"], "later"]})
    (demo.run("demo", "grpo-seed0").path / "notes.json").write_text("{")
    build(demo)
    assert "pending · no step yet" in texts(show("run", sweep="demo", run="later"))
    app = show("run", sweep="demo", run="grpo-seed0", part="Samples")
    assert any("notes.json: not JSON" in text for text in texts(app)) and app.dataframe


def test_sweeps_began_at_the_time_of_this_machine_as_nights_and_notes_did(demo, monkeypatch):
    for zone, hour in (("Asia/Tokyo", 7), ("UTC", 22)):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert show("overview").dataframe[0].value["created"][0].hour == hour


def test_overview_links_to_the_flow_run_also_where_every_sweep_is_hidden(demo):
    (demo.sweep_folder("demo") / "notes.json").write_text('{"tags": ["hidden"]}')
    build(demo)
    good = "http://127.0.0.1:4200/runs/flow-run/1"
    for url in (good, "javascript:alert(1)", None, 3):
        demo.write_flow_run("demo", url)
        links = [link.proto.url for link in show("overview", sweep="demo").get("link_button")]
        assert links == ([url] if url == good else [])


def test_run_shows_its_settings_and_finds_samples(demo):
    write_run(demo.run("demo", "beta"), "grpo algorithm.beta=0.001", 0, 0.3, SHAPE, "grpo")
    write_done(
        demo.run("demo", "beta"), seconds=0.0, attempts=1
    )  # as an import does, which knows no time
    build(demo)
    app = show("run", sweep="demo", run="beta", part="Settings")
    settings = app.dataframe[0].value.set_index("setting")["value"]
    assert json.loads(settings["algorithm.algorithm.beta"]) == "0.001"
    assert any(text.endswith("attempts: 1") for text in texts(app))
    app = show("run", sweep="demo", run="grpo-seed0", part="Samples")
    app.text_input(key="search").set_value("problem 3 of easy").run()
    assert any(text.startswith("3 of 15 samples") for text in texts(app))
    app.selectbox(key="show").set_value("wrong").run()
    wrong = read_eval(demo.run("demo", "grpo-seed0"), "easy", 6).to_pandas()
    wrong = wrong[wrong["problem"].str.contains("problem 3") & ~wrong["correct"]]
    assert any(text.startswith(f"{len(wrong)} of 15 samples") for text in texts(app))


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
    assert of_run["accuracy"].tolist() == pytest.approx([row["accuracy"]])
    assert of_run["origin"].tolist() == ["sweep"]


def test_nightly_runs_show_what_changed_who_accepted_it_and_the_bands(demo):
    assert any("rpg nightly" in text for text in texts(show("nightly")))
    for day in (1, 2):
        a_night(demo, day, 0.5)
    app = show("nightly")
    assert "Newest night 2026-01-02-0123abcd: as before" in markup(app)
    assert not app.code, "nothing to accept"
    a_night(
        demo,
        3,
        0.9,
        bits=True,
        said=f"bits changed since commit ffff: {HOSTILE}",
        failed={"a": "no"},
    )
    html = markup(show("nightly"))
    assert ": 1 run failed, bits changed, 1 of 1 numbers outside their bands" in html
    assert "bits changed since commit ffff" in html and "a: no" in html and "<img" not in html
    a_night(demo, 3, 0.9, bits=True, accepted={"why": "meant", "user": "anna"})
    app = show("nightly")
    assert "accepted by anna: meant" in markup(app)
    nights = app.dataframe[0].value
    assert list(nights["state"]) == ["accepted", "as before", "as before"]
    assert nights["accepted because"][0] == "meant" and nights["by"][0] == "anna"
    [row] = app.dataframe[1].value.to_dict("records")
    assert row["note"] == "out of band" and row["tonight"] == 0.9


def test_a_red_night_begins_with_what_moved_most_and_how_to_accept_it(demo, monkeypatch):
    still = {"chain / grpo / kl": 0.1, "chain / grpo / entropy": 1.0}
    for day in (1, 2, 3):
        a_night(demo, day, 0.5, values={"chain / grpo / reward": 0.5, **still})
    a_night(
        demo,
        4,
        0.9,
        bits=True,
        said="bits changed since commit ffff",
        values={"chain / grpo / reward": 0.9, **still},
    )
    app = show("nightly")
    moved = f"chain · grpo · {METRICS['reward'].heading}: 0.5 before, 0.9 tonight (+0.4); band "
    assert f"Moved most: {moved}" in markup(app)
    assert app.selectbox(key="number").value == "chain / grpo / reward"
    first = app.dataframe[1].value.iloc[0]
    assert first["change"] == pytest.approx(0.4)
    assert first["band"].startswith("[") and f"band {first['band']}" in markup(app)
    [line] = [element.value for element in app.code]
    assert " nightly accept" in line and line.endswith("--why ...")
    assert not app.text_input, "who only reads may not accept"

    monkeypatch.setenv("RPG_LOGOUT", "/logout")
    app = show("nightly")
    app.text_input(key="why").set_value(" ")
    app.button[0].click().run()
    assert any("say in a sentence why" in text for text in texts(app))
    app.text_input(key="why").set_value("a larger step")
    app.button[0].click().run()
    assert "a larger step" in markup(show("nightly"))


@pytest.mark.system
def test_a_study_is_shown_from_search_to_fits(layout):
    shape = Shape(steps=20, eval_every=2, problems=5, samples=2)
    build(synthetic_study.write(layout.home, question=HOSTILE, trials=6, seeds=3, shape=shape))
    found = study_report.material(layout, "kl-forms")
    app = show("studies")
    assert HOSTILE in texts(app) and "<img" not in markup(app)
    assert ":green-badge[registered]" in [element.value for element in app.markdown]
    [table] = [element.value for element in app.dataframe]
    first = found.trials["run_ids"][0][0]
    assert len(table) == 18 and table["run"][0] == f"./run?sweep=kl-forms.tuning&run={first}"
    for row in study_report.search(found).grids[0].rows:
        assert row[4].text in markup(app)
    html = markup(show("studies", part="Comparison"))
    with connect(layout) as db:
        parts = [
            *study_report.comparison(db, layout, found.registered),
            study_report.cost(db, found),
        ]
    for part in parts:
        for grid in part.grids:
            for row in grid.rows:
                assert all(f">{cell.text}<" in html for cell in row)
    seconds = show("studies", part="Over compute", axis="hours of training")
    assert "Midpoint, hours of training" in markup(seconds)
