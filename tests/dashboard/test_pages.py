"""Every page, whatever there is to show: plain text, and one line for what is missing or broken."""

import ast
import re
from pathlib import Path

import pytest
import streamlit as st

from benchmarks.synthetic import Shape, write_sweep
from rpg.store import Layout, atomic_write_json
from rpg.store.database import build, current
from rpg.store.live_status import write_problems
from rpg.store.run_writer import append_metrics
from rpg.store.samples import read_eval, write_eval
from tests.dashboard.driver import HOSTILE, PAGES, SHAPE, markup, show, texts
from tests.report.sweeps import finished_again


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Data folders with little or odd things to show: an empty database, a sweep that nobody has
    begun, names that are markup, a run whose manifest is torn."""
    kinds = ("empty", "begun", "hostile", "corrupt")
    layouts = {kind: Layout.at(tmp_path_factory.mktemp(kind)) for kind in kinds}
    layouts["begun"].write_sweep(
        {"name": "s", "source": "", "baseline": "grpo", "created": 1, "runs": ["a"]}
    )
    name = HOSTILE.replace("/", "-")
    shape = Shape(
        steps=3, eval_every=3, problems=2, samples=2, benchmarks=(name, "easy"), metrics=8
    )
    markup = write_sweep(layouts["hostile"].home, name, ("grpo", HOSTILE), (0, 1), shape)
    for place, run in enumerate(markup.run_folders(name)):  # so that a line says who has spent more
        append_metrics(run, 2, {"step": 3, "tokens": 10**place})
    torn = write_sweep(layouts["corrupt"].home, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)
    torn.run("demo", "grpo-seed0").manifest_path.write_text("{")
    for layout in layouts.values():
        build(layout)
    return {kind: str(layout.home) for kind, layout in layouts.items()}


def test_the_script_that_streamlit_runs_has_nothing_that_it_would_show():
    """It writes every expression that stands alone to the page, a string below a constant as
    well."""
    script = ast.parse((Path(__file__).parents[2] / "dashboard" / "app.py").read_text())
    alone = [line.value for line in script.body[1:] if isinstance(line, ast.Expr)]
    assert [type(value) for value in alone] == [ast.Call, ast.Call], "sys.path.insert and main()"


def test_a_page_with_verdicts_is_a_look_that_later_ones_count(layout):
    shape = Shape(steps=4, eval_every=4, problems=40, samples=2, benchmarks=("easy",))
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), shape)
    build(layout)
    assert layout.read_looks("demo") == []
    show("overview", sweep="demo")
    [look] = layout.read_looks("demo")
    assert look["number"] == 1
    show("table", sweep="demo")
    assert layout.read_looks("demo") == [look], "the same runs again are the same look"


def test_without_a_database_a_page_says_how_to_begin(layout):
    write_problems(layout.home, ["no schedule"])
    said = texts(show("overview"))
    assert (
        "No results in" in said[1]
        and "rpg sweep" in said[1]
        and said[0] == "rpg serve: no schedule"
    )


@pytest.mark.parametrize("kind", ["empty", "begun"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_has_nothing_to_show(layout, homes, monkeypatch, kind, page):
    monkeypatch.setenv("RPG_HOME", homes[kind])
    assert ("RPG-UFKL" in markup(show(page))) == (page == "paper")


@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_are_text(layout, homes, monkeypatch, page):
    monkeypatch.setenv("RPG_HOME", homes["hostile"])
    app = show(page)
    assert "<img" not in markup(app)
    kinds = ("markdown", "caption", "subheader", "title", "header")
    words = [str(element.value) for kind in kinds for element in app.get(kind)]
    for text in [*words, *(part.label for part in app.expander)]:
        assert "evil" not in text
        unescaped = re.sub(r"\\.", "", text)  # a backslash makes the mark after it a letter
        assert not re.search(r"<|\]\(|://|:red|\*\*", unescaped), text


@pytest.mark.parametrize("page", PAGES)
def test_a_corrupt_run_is_one_line_and_the_page_works(layout, homes, monkeypatch, page):
    monkeypatch.setenv("RPG_HOME", homes["corrupt"])
    [line] = [text for text in texts(show(page)) if "grpo-seed0/manifest.json" in text]
    assert "\n" not in line


@pytest.mark.system
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


def test_an_unknown_selection_in_the_url_is_said(demo):
    app = show("table", sweep="gone", baseline="gone", benchmarks="gone")
    assert app.selectbox(key="sweep").value == "demo"
    assert "GRPO" in markup(app)
    for label in ("Sweep", "Baseline", "Benchmarks"):
        assert f"{label}: nothing here is called 'gone'; showing something else instead." in texts(
            app
        )
    demo.sweep_folder("demo").rename(demo.sweep_folder("other"))
    build(demo)
    assert "Sweep: demo is no longer here; showing something else instead." in texts(app.run())


def test_what_is_shown_is_always_in_the_address(demo):
    """A link that is copied now opens the same sweep when there is a newer one."""
    keys = {"overview": "sweep", "compare": "sweeps"}
    links = {page: dict(show(page).query_params) for page in keys}
    write_sweep(demo.home, "newer", ("dapo", "rpg-ufkl"), (0, 1), SHAPE)
    content = demo.read_sweep("newer")
    demo.write_sweep(content | {"created": content["created"] + 1000})
    build(demo)
    for page, key in keys.items():
        assert show(page).session_state[key] in ("newer", ["newer"])
        again = show(page, **links[page])
        assert links[page][key] in ("demo", ["demo"]) and again.session_state[key] in (
            "demo",
            ["demo"],
        )


def test_ten_megabytes_of_text_are_cut_and_can_be_saved(demo):
    run = demo.run("demo", "grpo-seed0")
    rows = read_eval(run, "easy", 6).to_pylist()
    rows[0]["response"] = "<b>word</b> " * 900_000
    write_eval(run, "easy", 6, rows)
    finished_again(run)
    app = show("run", sweep="demo", run="grpo-seed0", benchmark="easy")
    assert any("more characters" in text for text in texts(app))
    assert max(len(code.value) for code in app.code) <= 20_000


def test_samples_that_were_drawn_anew_are_shown_anew(demo):
    """An evaluation that is extended or made again has the name it had."""
    run = demo.run("demo", "grpo-seed0")

    def shown():
        page = show("run", run=run.name, benchmark="easy", part="Samples")
        return [one.value for one in page.code]

    assert not any("drawn anew" in text for text in shown())
    rows = read_eval(run, "easy", 6).to_pylist()
    write_eval(run, "easy", 6, [row | {"response": "drawn anew"} for row in rows])
    finished_again(run)
    assert any("drawn anew" in text for text in shown())


def test_runs_of_different_code_are_named(demo):
    for name in demo.read_sweep("demo")["runs"]:
        loss = "1" if name.startswith("grpo") else "2"
        record = {
            "code": f"code{loss}",
            "sources": {"rpg/losses/policy_loss.py": loss},
            "git_revision": None,
        }
        atomic_write_json(
            demo.run("demo", name).provenance_path(1), record | {"versions": {}, "machine": {}}
        )
    build(demo)
    for page in ("overview", "compare", "table"):
        words = " ".join(texts(show(page)))
        assert "trained by different code: code1 (no git checkout): grpo-seed0" in words, words
        assert "rpg/losses/policy_loss.py differs" in words
