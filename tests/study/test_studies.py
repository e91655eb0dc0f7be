"""A study ends with the same trials and the same runs, whatever interrupts it; what it compares is
what was registered."""

import itertools
import json
import shutil

import pytest
import yaml

from flows.study.steps import StudyError
from rpg.config.errors import ConfigError
from rpg.config.shipped import SHIPPED
from rpg.store import Layout
from rpg.store.run_writer import write_manifest
from rpg.study.registration import record_path, registration
from rpg.study.spec import load_study
from rpg.study.status import sentences
from rpg.study.study_report import study_sections
from rpg.study.trials import trials, tunings_of
from rpg.tasks.preparation import data_digest
from tests.study.stand_ins import FILE, RATE, contents, killed_after, run, study_file


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    path = study_file(folder)
    run(folder / "data", path)
    return path, folder / "data"


def test_killed_at_any_write_it_ends_with_the_same_trials_and_runs(undisturbed, tmp_path):
    path, home = undisturbed
    expected = contents(home)
    kills = 0
    for write in itertools.chain(["registered.json"], itertools.count(1, 31)):
        other = tmp_path / str(write)
        whole = killed_after(write, lambda other=other: run(other, path))
        run(other, path)
        assert contents(other) == expected, f"after a kill at write {write}"
        if whole:
            break
        kills += 1
    assert kills > 4


def test_the_order_in_which_runs_end_changes_nothing(undisturbed, tmp_path):
    run(tmp_path, undisturbed[0], order=1)
    assert contents(tmp_path) == contents(undisturbed[1])


def test_a_study_that_moves_with_its_files_goes_on(tmp_path):
    """Functions and problems that lie beside it: in another folder it is the same study."""
    home = tmp_path / "data"
    first = tmp_path / "first"
    shutil.copytree(SHIPPED / "environments", first)
    part = {"task": {"tuning_problems": 4}, "training": {"steps": 2}, "evaluation": {"every": 2}}
    raw = FILE | {"base": "calculator.yaml", "run": part}
    (first / "study.yaml").write_text(yaml.safe_dump(raw))
    run(home, first / "study.yaml", only=["tune", "register"])
    before, _ = contents(home)
    moved = first.rename(tmp_path / "second")
    run(home, moved / "study.yaml")
    after, runs = contents(home)
    del before["studies/made-up/study.json"]  # which names the folder
    assert before.items() <= after.items()
    assert len([name for name in runs if ".tuning/" not in name]) == 6
    assert registration(Layout.at(home), "made-up").deviations == []


def test_a_variants_own_problems_are_part_of_how_it_is_made(tmp_path):
    shutil.copytree(SHIPPED / "environments", tmp_path, dirs_exist_ok=True)
    part = {"task": {"tuning_problems": 4}, "evaluation": {"every": 10}}
    own = tmp_path / "own.jsonl"
    rows = (tmp_path / "calculator-train.jsonl").read_text().splitlines(keepends=True)
    variants = {"one": {"algorithm": "grpo"}, "two": {"algorithm": "grpo", "task.train": str(own)}}
    raw = FILE | {"base": "calculator.yaml", "run": part, "variants": variants}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(raw))
    made = []
    for count in (100, 200):
        own.write_text("".join(rows[:count]))
        made += [
            tuning.digest
            for tuning in tunings_of(load_study(tmp_path / "study.yaml"), data_digest, {})
        ]
    assert made[0] == made[2]
    assert len({*made}) == 3


def test_what_was_tuned_in_november_2026_goes_on_under_its_digest(tmp_path):
    study = load_study(study_file(tmp_path))
    before = {"one": "1346b915300b9f88", "two": "another study's"}
    made = (tunings_of(study, lambda run: "data", of) for of in ({}, before))
    fresh, kept = ([tuning.digest for tuning in of] for of in made)
    assert kept == [before["one"], fresh[1]]
    assert fresh[0] != kept[0]


def test_every_variant_gets_the_same_trials_seeds_and_tokens(undisturbed):
    rows = trials(Layout.at(undisturbed[1]), "made-up")
    assert list(rows.groupby("variant").size()) == [4, 4]
    assert list(rows["trial"]) == [0, 1, 2, 3] * 2
    assert list(rows["batch"]) == [0, 0, 1, 1] * 2
    assert rows[RATE].between(1e-4, 1e-2).all()
    assert rows["objective"].between(0, 1).all()
    # As much effort for each: half of each batch goes on to the second seed, and only those can
    # win.
    for _, mine in rows.groupby("variant"):
        assert sorted(mine["seeds"]) == [1, 1, 2, 2]
        assert sorted(mine["state"]) == ["finished"] * 2 + ["pruned"] * 2
        assert (mine["pruned"] == (mine["seeds"] == 1)).all()
    assert (rows["tokens"] == 200.0 * rows["seeds"]).all()
    assert (rows["run_ids"].map(len) == rows["seeds"]).all()


def test_what_is_reported_follows_from_the_record(undisturbed):
    layout = Layout.at(undisturbed[1])
    record = registration(layout, "made-up")
    rows = trials(layout, "made-up")
    for variant, settings in record.variants.items():
        finished = rows[(rows["variant"] == variant) & (rows["state"] == "finished")]
        assert settings[RATE] == finished.loc[finished["objective"].idxmax(), RATE]
    assert record.deviations == []
    assert record.seeds == (0, 1, 2)
    assert record.benchmarks == ("chain-easy", "chain-hard")
    manifests = {folder.name: folder.read_manifest() for folder in layout.run_folders(record.sweep)}
    assert manifests.keys() == record.runs.keys()
    assert len(manifests) == 6
    for name, manifest in manifests.items():
        planned = record.runs[name]
        assert (manifest["variant"], manifest["seed"]) == (planned["variant"], planned["seed"])
        assert manifest["created"] > record.registered_at
        assert manifest["benchmarks"] == ["chain-easy", "chain-hard"]
    tuned = {folder.read_manifest()["run_id"] for folder in layout.run_folders("made-up.tuning")}
    assert not tuned & {manifest["run_id"] for manifest in manifests.values()}


def test_every_reported_seed_has_a_search_of_its_own(tmp_path):
    home = tmp_path / "data"
    layout = Layout.at(tmp_path / "data")
    run(home, study_file(tmp_path, tune={"searches": None, "trials": 2}))
    rows = trials(layout, "made-up")
    record = registration(layout, "made-up")
    assert (
        list(rows.groupby(["search", RATE]).size()) == [2] * 6
    )  # both variants try the same settings
    for one in record.runs.values():
        mine = rows[rows["variant"] == one["variant"]]
        search = mine[mine["search"] == record.seeds.index(one["seed"])]
        won = search[search["state"] == "finished"]
        assert one["settings"][RATE] == won.loc[won["objective"].idxmax(), RATE]
        assert record.variants[one["variant"]][RATE][one["seed"]] == one["settings"][RATE]
    assert not any("another search" in line for line in sentences(layout, "made-up"))


def test_a_record_that_was_edited_is_shown(undisturbed, tmp_path):
    run(tmp_path, undisturbed[0], only=["tune", "register"])
    layout = Layout.at(tmp_path)
    path = record_path(layout, "made-up")
    path.write_text(path.read_text().replace('"matters": 0.05', '"matters": 0.5'))
    [edited, file] = registration(layout, "made-up").deviations
    assert edited.startswith("the record was edited after it was written: it names digest")
    assert (
        file == "the study's file was changed after the registration: matters is 0.05, 0.5 was "
        "registered"
    )


def test_a_changed_file_is_registered_again_and_shown(undisturbed, tmp_path):
    home = tmp_path / "data"
    layout = Layout.at(tmp_path / "data")
    run(home, undisturbed[0])
    first = registration(layout, "made-up")
    with pytest.raises(ConfigError, match="searches is 3, 1 was registered"):
        run(home, study_file(tmp_path, tune={"searches": None}))
    changed = study_file(tmp_path, report={"matters": 0.1})
    with pytest.raises(ConfigError, match=r"matters is 0.1, 0.05 was registered.*--register-again"):
        run(home, changed)
    assert "the study's file was changed" in registration(layout, "made-up").deviations[0]
    run(home, changed, again=True)
    second = registration(layout, "made-up")
    assert second.digest != first.digest
    assert second.sweep != first.sweep
    assert second.number == 2
    [again, *rest] = second.deviations
    assert again == "registered again after record 1: matters was 0.05, is 0.1"
    assert rest == []
    assert json.loads(record_path(layout, "made-up", 1).read_text())["digest"] == first.digest

    tonight = Layout.at(tmp_path / "night")
    for path in (undisturbed[0], study_file(tmp_path, tune={"trials": 2}), undisturbed[0]):
        run(tonight.home, path, night="2026-01-02-0123abcd")
        fresh = registration(tonight, "made-up")
        assert fresh.number == 1
        assert fresh.deviations == []
        assert len(trials(tonight, "made-up")) in (8, 4)
        assert tonight.sweeps() == [fresh.sweep, "made-up.tuning"], "a night begins from scratch"


def test_runs_that_were_there_before_or_are_others_are_shown(undisturbed, tmp_path):
    run(tmp_path, undisturbed[0])
    layout = Layout.at(tmp_path)
    record = registration(layout, "made-up")
    first, second, *_ = layout.run_folders(record.sweep)
    rows = first.metrics_path(1).read_text().splitlines()
    old = [json.dumps(json.loads(line) | {"time": record.registered_at - 1}) for line in rows]
    first.metrics_path(1).write_text("\n".join(old) + "\n")
    write_manifest(second, second.read_manifest() | {"run_id": "0123456789abcdef"})
    before, other = registration(layout, "made-up").deviations
    assert before == f"{first.name} had been trained before the registration"
    assert other.startswith(f"{second.name} has other settings or data than registered")


def test_failed_trials_count_as_tried_and_are_not_tried_again(tmp_path):
    attempts = []

    def fails(manifest):
        attempts.append((manifest["run"], manifest["variant"]))
        return manifest["variant"] == "one trial 1"

    run(tmp_path / "data", study_file(tmp_path), only=["tune"], fails=fails)
    rows = trials(Layout.at(tmp_path / "data"), "made-up").set_index(["variant", "trial"])
    assert rows.loc[("one", 1), "state"] == "failed"
    assert rows.loc[("one", 0), "state"] == "finished"
    assert sum(variant == "one trial 1" for _, variant in attempts) == 1
    said = list(sentences(Layout.at(tmp_path / "data"), "made-up"))
    assert "one: 1 of 4 trials failed; they are not replaced" in said


def test_a_file_that_is_changed_while_it_is_tuned_is_tuned_anew_and_says_so(tmp_path):
    home = tmp_path / "data"
    assert not any("tuned again" in line for line in run(home, study_file(tmp_path), only=["tune"]))
    changed = study_file(tmp_path, tune={"space": {RATE: {"log": [1e-4, 1e-3]}}})
    [said] = [line for line in run(home, changed) if "tuned again" in line]
    assert said == (
        "made-up: the settings or the tuning of one, two have changed, so they are tuned again"
    )
    assert trials(Layout.at(home), "made-up")[RATE].max() <= 1e-3


def test_a_variant_none_of_whose_trials_finishes_stops_the_study(tmp_path):
    path = study_file(tmp_path)
    home = tmp_path / "data"
    with pytest.raises(StudyError, match=r"two: every trial of batch 1 failed.*it diverged"):
        run(home, path, fails=lambda manifest: manifest["variant"].startswith("two"))
    run(home, path)  # what was wrong has been mended
    assert registration(Layout.at(home), "made-up").deviations == []


def test_a_reported_run_that_fails_costs_no_look(tmp_path, command_line):
    home = tmp_path / "data"
    layout = Layout.at(tmp_path / "data")
    path = study_file(tmp_path, report={"seeds": [0, 1, 2, 3, 4]})
    run(home, path, fails=lambda manifest: manifest["variant"] == "two" and manifest["seed"] == 3)
    sweep = registration(layout, "made-up").sweep
    status = ("study", "status", "made-up", "--home", home)
    assert not layout.read_looks(sweep)
    assert f"report {sweep}" not in command_line(*status)[1]
    [verdicts] = [part for part in study_sections(layout, "made-up") if part.title == "Verdicts"]
    said = "9 of 10 reported runs are done. Verdicts are given at the registered looks."
    assert verdicts.lines == [said]
    assert not verdicts.grids
    assert not layout.read_looks(sweep)
    run(home, path)
    [look] = layout.read_looks(sweep)
    assert len(look["runs"]) == look["planned"] == 10
    assert look["level"] == pytest.approx(0.05)
    assert not registration(layout, "made-up").deviations
    assert f"report {sweep}" in command_line(*status)[1]


def test_factors_are_crossed_with_the_seeds(tmp_path):
    warm = {"model": {"warm_start": {"max_steps": 1}}}
    path = study_file(tmp_path, run=warm, factors={"model.warm_start.seed": [7, 8]})
    run(tmp_path / "data", path, only=["tune", "register"])
    record = registration(Layout.at(tmp_path / "data"), "made-up")
    runs = record.runs.values()
    levels = [
        (one["variant"], one["factors"]["model.warm_start.seed"], one["seed"]) for one in runs
    ]
    assert sorted(levels) == sorted(itertools.product(["one", "two"], [7, 8], [0, 1, 2]))


def test_levels_of_factors_decide_with_the_seeds_when_a_study_stops(tmp_path):
    """One variant is far worse at every level and seed: the study ends at the first of two
    looks."""
    home = tmp_path / "data"
    layout = Layout.at(tmp_path / "data")
    path = study_file(
        tmp_path,
        run={"model": {"warm_start": {"max_steps": 1}}},
        variants={"one": {}, "two": {"training.optimizer.weight_decay": 0.5}},
        factors={"model.warm_start.seed": [7, 8, 9]},
        report={"seeds": [0, 1, 2, 3, 4, 5], "looks": 2},
    )
    lines = run(home, path, worse=lambda spec: spec["training"]["optimizer"]["weight_decay"] == 0.5)
    record = registration(layout, "made-up")
    assert "made-up: decided after 3 of 6 seeds, by the registered rule" in lines
    assert record.deviations == []
    done = [name for name in record.runs if layout.run(record.sweep, name).done_path.exists()]
    assert {record.runs[name]["seed"] for name in done} == {0, 1, 2}
    assert len(done) == 2 * 3 * 3
    of_report, look = layout.read_looks(record.sweep)  # that of the report does not count
    assert sorted(look["runs"]) == sorted(done)
    assert look["planned"] == 2 * 3 * 6
    [(_, high, verdict)] = look["results"].values()
    assert verdict == "worse"
    assert high < 0
    run(home, path)  # and so it stays
    assert [of_report, look] == layout.read_looks(record.sweep)
