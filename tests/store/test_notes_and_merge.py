"""Organising results: notes and tags, merging two data folders, model cards."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import write_sweep
from rpg.cli import load
from rpg.interop.importing.merge import merge
from rpg.report.model_card import model_card
from rpg.store import Layout, StoreError, queries
from rpg.store.checkpoints import digests, model_files_digest
from rpg.store.database import build, connect
from rpg.store.draws import Draw, Draws, Key
from rpg.store.gc import collect, garbage
from rpg.store.notes import change, place, read_marks
from rpg.store.samples import write_samples


@pytest.fixture
def layout(tmp_path):
    write_sweep(tmp_path / "data", "quickstart", ("grpo", "rpg-reinforce-urkl"))
    return Layout.at(tmp_path / "data")


def test_what_people_add_is_in_the_database_and_changes_no_run(layout):
    build(layout)
    sweep = place(layout, "quickstart")
    label = "before '); DROP TABLE runs;--"
    change(sweep, note="the first\n")
    run = layout.run_folders("quickstart")[0].name
    change(place(layout, f"quickstart/{run}"), note="odd curve", add=["hidden"])
    assert change(sweep, add=["paper", "final"])["tags"] == ["final", "paper"]
    assert change(sweep, remove=["final"], label=label)["tags"] == ["paper"]
    build(layout)
    with connect(layout) as db:
        [found] = queries.sweeps(db)[["sweep", "label", "tags", "notes"]].to_dict("records")
        assert queries.marks(db) == {
            "quickstart": (label, ["paper"]),
            f"quickstart/{run}": ("", ["hidden"]),
        }
    assert list(found.values()) == ["quickstart", label, "hidden, paper", "the first\nodd curve"]
    said = (
        CliRunner()
        .invoke(load(), ["status", "--home", str(layout.home)], catch_exceptions=False)
        .output
    )
    assert f"{label} (quickstart)" in said
    assert f"hidden: {run}" in said
    assert [note["text"] for note in read_marks(sweep)["notes"]] == ["the first"]
    with pytest.raises(StoreError, match=r"no such sweep .*; did you mean 'quickstart'"):
        place(layout, "quickstar")


def test_rm_moves_nothing_if_one_name_is_unknown_and_gc_names_its_options(layout, command_line):
    code, _, error = command_line("rm", "quickstart", "nosuch", "--home", layout.home)
    assert (code, layout.sweeps()) == (2, ["quickstart"])
    assert "nosuch: no such sweep" in error
    said = command_line("tag", "quickstart", "--remove", "nope", "--home", layout.home)
    assert said[0] == 0
    assert "has no tag 'nope'" in said[2]
    assert command_line("rm", "quickstart", "--home", layout.home)[0] == 0
    gc = CliRunner().invoke(load(), ["gc", "--home", str(layout.home)])
    assert "--yes removes" in str(gc.exception)
    assert garbage(layout)


def test_what_is_added_is_all_written_or_nothing_and_two_at_once_lose_nothing(layout):
    sweep = place(layout, "quickstart")
    before = change(sweep, label="first")
    for wrong, word in (
        ({"add": ["a b"]}, "tag 'a b': expected up to 50 letters"),
        ({"note": " "}, "the note is empty"),
        ({"note": "x" * 5001}, "too long: expected up to 5,000"),
        ({"label": "x" * 81}, "expected one line of up to 80"),
        ({"label": "two\nlines"}, "expected one line"),
    ):
        with pytest.raises(StoreError, match=word):
            change(sweep, **{"note": "not written", "add": ["not-written"]} | wrong)
    assert read_marks(sweep) == before
    assert change(sweep, label="second")["notes"][0]["text"] == "was called first"
    with ThreadPoolExecutor(8) as people:
        list(people.map(lambda n: change(sweep, note=f"note {n}", add=[f"tag{n}"]), range(40)))
    now = read_marks(sweep)
    assert len(now["tags"]) == len({note["text"] for note in now["notes"]}) - 1 == 40
    assert now["label"] == "second"


def half(layout, target, keep, sweep="quickstart"):
    """A data folder with some of the runs, as another machine would have them."""
    shutil.copytree(layout.home / "runs", target / "runs")
    other = Layout.at(target)
    for folder in other.run_folders(sweep):
        if folder.name not in keep:
            shutil.rmtree(folder.path)
    other.write_sweep({**other.read_sweep(sweep), "runs": list(keep)})
    return other


def test_two_machines_results_become_one_and_every_run_counts_once(layout, tmp_path):
    names = [folder.name for folder in layout.run_folders("quickstart")]
    one = half(layout, tmp_path / "one", names[:3])
    two = half(layout, tmp_path / "two", names[2:])
    merged = merge(one, two)
    assert merged.copied == [f"quickstart/{name}" for name in names[3:]]
    assert merged.same == [f"quickstart/{names[2]}"]
    assert merged.left == {}
    assert sorted(one.read_sweep("quickstart")["runs"]) == sorted(names)
    again = merge(one, two)
    assert again.copied == []
    assert len(again.same) == len(names[2:])
    counts = set()
    for each in (one, layout):
        build(each)
        with connect(each) as db:
            counts.add(db.execute("SELECT count(*), sum(accuracy) FROM evals").fetchone())
    assert len(counts) == 1


def test_stored_samples_and_those_by_hand_are_merged_and_only_unusable_ones_are_garbage(
    layout, tmp_path
):
    """Both have drawn from one model; what was drawn from a checkpoint of a run goes when the
    checkpoint is gone."""
    other = half(layout, tmp_path / "other", [])
    keys = [Key("problem", "prompt", number) for number in (0, 1)]
    for number, home in enumerate((layout, other)):
        Draws(home.home, {"model": "hub/model@1"}, "hub/model").add(
            {keys[number]: Draw("?", 1, False)}
        )
    row = {
        "problem_id": "a",
        "problem": "?",
        "answer": "1",
        "response": "",
        "reason": "",
        "extracted": "1",
    }
    row |= {"sample": 0, "correct": True, "tokens": 8, "truncated": False}
    write_samples(
        other.evaluations / "hub--model" / "b.parquet", [row], "lines-2", {"model": "hub/model@1"}
    )
    merge(layout, other)
    assert set(Draws(layout.home, {"model": "hub/model@1"}, "hub/model").read()) == set(keys)
    build(layout)
    with connect(layout) as db:
        sql = (
            "SELECT run, benchmark, origin, model, accuracy, rules FROM evals WHERE origin <> "
            "'sweep'"
        )
        assert db.execute(sql).fetchall() == [
            ("hub--model", "b", "hand", "hub/model@1", 1, "lines-2")
        ]
    checkpoint = layout.run_folders("quickstart")[0].checkpoint(4)
    checkpoint.mkdir(parents=True)
    (checkpoint / "checkpoint.json").write_text(json.dumps({"files": digests(checkpoint)}))
    of_run = Draws(layout.home, {"model": model_files_digest(checkpoint, layout.home)}, checkpoint)
    of_run.add({keys[0]: Draw("?", 1, False)})
    assert not [item for item in garbage(layout) if "samples" in item.why]
    shutil.rmtree(checkpoint)
    collect(garbage(layout))
    assert not of_run.folder.exists()
    assert len(list(layout.samples.iterdir())) == 1


def test_what_contradicts_is_named_and_ours_stays(layout, tmp_path):
    names = [folder.name for folder in layout.run_folders("quickstart")]
    other = half(layout, tmp_path / "other", names)
    path = other.run("quickstart", names[0]).metrics_path(1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[2]["reward"] += 1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = layout.run("quickstart", names[0]).metrics_path(1).read_bytes()
    merged = merge(layout, other)
    (why,) = merged.left.values()
    assert list(merged.left) == [f"quickstart/{names[0]}"]
    assert why.startswith(f"step {rows[2]['step']}: reward is ")
    assert layout.run("quickstart", names[0]).metrics_path(1).read_bytes() == before
    with pytest.raises(StoreError, match="is the data folder itself"):
        merge(layout, layout)
    with pytest.raises(StoreError, match="contains no sweeps"):
        merge(layout, Layout.at(tmp_path / "nowhere"))


def test_what_is_done_there_and_not_here_takes_its_place(layout, tmp_path):
    names = [folder.name for folder in layout.run_folders("quickstart")]
    other = half(layout, tmp_path / "other", names)
    ours = layout.run("quickstart", names[0])
    ours.done_path.unlink()
    lines = ours.metrics_path(1).read_text().splitlines(keepends=True)
    ours.metrics_path(1).write_text("".join(lines[:2]))
    for benchmark in ours.benchmarks():
        for step in ours.eval_steps(benchmark)[1:]:
            ours.eval_path(benchmark, step).unlink()
    assert merge(layout, other).replaced == [f"quickstart/{names[0]}"]
    assert ours.state() == "done"
    assert len(ours.read_metrics()) == len(lines)
    assert any((layout.home / "trash").iterdir())


def test_a_card_has_settings_and_scores(layout):
    folder = layout.run_folders("quickstart")[0]
    step = folder.eval_steps(folder.benchmarks()[0])[-1]
    card = model_card(folder, step, "my <model>")
    assert card.startswith("---\nlibrary_name: ")
    assert "# my &lt;model>" in card
    assert f"| {folder.benchmarks()[0]} | 0." in card
    assert '"algorithm"' in card


def test_the_card_of_adapters_alone_says_what_they_need(layout):
    folder = layout.run_folders("quickstart")[0]
    adapters = folder.checkpoint(1) / "adapters"
    adapters.mkdir(parents=True)
    (adapters / "base.json").write_text("{}")
    card = model_card(folder, 1, "adapters")
    assert card.startswith('---\nlibrary_name: "peft"\n')
    assert "beside a base in 4 bits (NF4) that `adapters/base.json` names" in card
