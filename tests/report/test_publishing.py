"""`rpg publish`: pages that are whole, self-contained and say nothing of the machine, whatever
stands in names and responses."""

import base64
import hashlib
import json
import re

import pytest

from benchmarks import synthetic_study
from benchmarks.synthetic import Shape, write_sweep
from rpg.errors import UserError
from rpg.report import publishing
from rpg.report.publishing import INDEX, of_nights, of_sweep, write
from rpg.store import atomic_write_text
from rpg.store.database import build, connect
from rpg.store.samples import read_eval, write_eval
from rpg.study.study_report import publication as of_study
from tests.report.sweeps import finished_again

HOSTILE = '</script><script>window.pwned=1</script><a href="javascript:pwn()">\u2028${x}'
SHAPE = Shape(steps=4, eval_every=2, problems=6, samples=3, benchmarks=("easy", "hard"))
BUDGET = 1_000_000


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    layout = write_sweep(
        tmp_path_factory.mktemp("home"), "demo", ("grpo", HOSTILE), (0, 1, 2), SHAPE
    )
    for run in layout.run_folders("demo"):
        if run.name.endswith("seed0"):
            rows = read_eval(run, "easy", 4).to_pylist()
            changed = [{**row, "response": HOSTILE, "problem": HOSTILE} for row in rows]
            run.eval_path("easy", 4).unlink()
            write_eval(run, "easy", 4, changed)
            finished_again(run)
    layout.write_data_notes("demo", [f"2 texts of {layout.home}/data.jsonl are long"])
    build(layout)
    return layout


def publication(layout, budget=BUDGET):
    with connect(layout) as db:
        return of_sweep(layout, db, "demo", budget)


def texts_of(files):
    return {path.name: path.read_text("utf-8") for path in files}


def data_of(page):
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def test_no_text_becomes_markup_and_only_our_script_may_run(layout, tmp_path):
    pages = texts_of(write(publication(layout), tmp_path, layout))

    for name, page in pages.items():
        if name.endswith(".html"):
            assert "<script>window.pwned" not in page and '<a href="javascript' not in page
            [script] = re.findall(r'<script type="module">(.*?)</script>', page, re.S)
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"default-src &#39;none&#39;; script-src &#39;sha256-{digest}&#39;" in page
            assert "unsafe-eval" not in page.partition("<body>")[0]
            assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_samples_hold_the_texts_to_the_letter(layout, tmp_path):
    files = write(publication(layout), tmp_path, layout)
    [page] = [text for name, text in texts_of(files).items() if name.startswith("samples")]
    data = data_of(page)

    assert {sample["variant"] for sample in data["samples"]} >= {"GRPO"}
    hostile = [sample for sample in data["samples"] if sample["response"] == HOSTILE]
    assert len(hostile) == 2 * SHAPE.problems * SHAPE.samples
    assert {data["problems"][sample["problem"]]["text"] for sample in hostile} == {HOSTILE}
    assert {sample["seed"] for sample in data["samples"]} == {0}
    assert {sample["step"] for sample in data["samples"]} == {4}


def test_a_budget_keeps_the_same_problems_of_every_variant(layout):
    whole = publication(layout).samples
    part = publication(layout, budget=whole.size // 3).samples

    assert len(whole.rows) == whole.total == 2 * 2 * SHAPE.problems * SHAPE.samples
    assert part.total == whole.total and 0 < part.size <= whole.size // 3
    ids = [
        {
            part.problems[row["problem"]]["id"]
            for row in part.rows
            if row["variant"] == name and part.problems[row["problem"]]["benchmark"] == "hard"
        }
        for name in {row["variant"] for row in part.rows}
    ]
    assert len(ids) == 2 and len(ids[0] & ids[1]) >= min(len(ids[0]), len(ids[1])) > 0
    assert publication(layout, budget=0).samples.rows == []


def test_a_page_names_no_place_of_this_machine(layout, tmp_path):
    pages = texts_of(write(publication(layout), tmp_path, layout))

    assert "2 texts of $RPG_HOME/data.jsonl are long" in pages[INDEX]
    assert not [name for name, page in pages.items() if str(layout.home) in page]


def test_every_run_and_the_tables_are_there(layout, tmp_path):
    pages = texts_of(write(publication(layout), tmp_path, layout))

    assert pages[INDEX].count("-seed") >= 6 and "6 runs" in pages[INDEX]
    linked = set(re.findall(r'<a href="([^"]+)">', pages[INDEX]))
    assert linked == set(pages) - {INDEX}
    assert {name.partition("-")[0] for name in linked} == {"samples", "table", "curves"}


def test_a_write_that_is_cut_off_leaves_the_page_of_before(layout, tmp_path, monkeypatch):
    before = texts_of(write(publication(layout), tmp_path, layout))

    def cut_off(path, text):
        if path.name == INDEX:
            raise KeyboardInterrupt
        atomic_write_text(path, text)

    monkeypatch.setattr(publishing, "atomic_write_text", cut_off)
    smaller = publication(layout, budget=4000)
    with pytest.raises(KeyboardInterrupt):
        write(smaller, tmp_path, layout)
    assert {name: (tmp_path / name).read_text("utf-8") for name in before} == before
    monkeypatch.undo()
    after = texts_of(write(smaller, tmp_path, layout))
    assert {path.name for path in tmp_path.iterdir()} == set(after) != set(before)


def test_another_page_is_not_replaced_nor_are_other_files(layout, tmp_path):
    (tmp_path / "mine.html").write_text("kept")
    (tmp_path / INDEX).write_text("<h1>My site</h1>")

    with pytest.raises(UserError, match=r"index\.html: is not a page of rpg publish"):
        write(publication(layout), tmp_path, layout)

    assert (tmp_path / INDEX).read_text() == "<h1>My site</h1>"
    (tmp_path / INDEX).unlink()
    write(publication(layout), tmp_path, layout)
    assert (tmp_path / "mine.html").read_text() == "kept"


def test_a_study_with_its_trials_and_the_samples_of_its_reported_runs(tmp_path):
    shape = Shape(steps=4, eval_every=2, problems=4, samples=2)
    layout = synthetic_study.write(tmp_path, question=HOSTILE, trials=4, seeds=3, shape=shape)
    build(layout)

    files = texts_of(write(of_study(layout, "kl-forms", BUDGET), tmp_path / "out", layout))

    assert "<script>window.pwned" not in files[INDEX] and "Registered" in files[INDEX]
    [trials] = [text for name, text in files.items() if name.startswith("trials")]
    assert trials.startswith("variant,")
    assert any(name.startswith("samples") for name in files)


def test_nights_say_what_moved_most(layout, tmp_path):
    nights = [night(day, 0.5) for day in range(1, 6)]
    nights.append(night(6, 0.9) | {"bits": True, "said": "bits changed since 0123abcd"})

    page = texts_of(write(of_nights("nightly", nights), tmp_path, layout))[INDEX]

    assert "Moved most: chain · grpo · " in page and "0.5 before, 0.9 tonight" in page
    assert page.count('class="chart"') == 2  # the calendar, and the only number


def night(day, reward):
    digest = {"spec": "s", "steps": [1], "weights": "w", "samples": {}}
    digest["metrics"] = {"reward": f"{reward:08.4f}"}
    return {
        "night": f"2026-02-{day:02d}-0123abcd",
        "started": 1.7e9 + 86400 * day,
        "revision": "f" * 40,
        "code": "c",
        "environment": {},
        "values": {"chain / grpo / reward": reward},
        "spread": {"chain / grpo / reward": 0.01},
        "digests": {"chain / grpo / seed 0": digest},
        "failed": {},
        "bits": False,
        "said": "bits are the same",
    }
