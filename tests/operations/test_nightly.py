"""Bands around earlier nights, what is kept of nights, and what `rpg nightly` says of a second
one."""

import importlib.util
import json
import math
import sys
import time

import pytest

from benchmarks.trivial import SWEEP
from benchmarks.trivial.evaluate import _sample as sample
from benchmarks.trivial.train import _checkpoint as checkpoint
from flows import nightly
from flows.nightly import forget, run_night
from flows.sweep.conductor import register
from flows.sweep.evaluation import mark_done
from rpg.cli import execution, main
from rpg.config.errors import ConfigError
from rpg.errors import UserError
from rpg.report.nightly_bands import ENOUGH, NIGHTS, band, compare, markdown, measure
from rpg.store import Layout, atomic_write_json, locks
from rpg.store.draws import Draw, Draws, Key
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_writer import append_metrics, write_done
from rpg.store.samples import write_eval
from tests.real_sweep import TRIVIAL, rpg
from tests.study.stand_ins import study_file
from tests.tiny import make_run, make_spec


def nights(*values, name="s / v / accuracy"):
    return [{name: value} for value in values]


def test_inside_outside_missing_and_not_a_number():
    before = nights(0.60, 0.61, 0.59, 0.60)
    name = "s / v / accuracy"
    assert not compare({name: 0.63}, before)[0].red
    low = compare({name: 0.30}, before)[0]
    assert low.red and low.off == pytest.approx(0.30 - 0.54, abs=0.01) and "below" in str(low)
    high = compare({name: 0.90}, before)[0]
    assert high.red and high.off == pytest.approx(0.24, abs=0.01) and "above" in str(high)
    assert compare({}, before)[0].red and compare({name: math.nan}, before)[0].red


def test_time_is_said_when_it_is_slower_and_never_red_and_a_wild_night_does_not_move_the_band():
    name = "s / v / seconds_step"
    before = nights(*[1.0] * 8, 50.0, name=name)
    assert not compare({name: 0.01}, before)[0].outside
    slow = compare({name: 9.0}, before)[0]
    assert slow.mark == "slower" and not slow.red, "a busy machine is no fault of the code"
    table = markdown("2026-01-01-abc", [slow], {}, 9)
    assert (
        "as before" in table
        and "slower than usual: 1 of 1 numbers" in table
        and f"| slower | {name} | 9 |" in table
    )
    assert compare({}, before)[0].red, "a number that is not there is"
    assert band("accuracy", [0.5] * 20 + [0.0] * 5) == (0.44, 0.56)


def test_no_band_before_there_are_enough_nights_and_only_the_newest_count():
    few = nights(*[0.0] * (ENOUGH - 1), name="s / v / reward")
    assert compare({"s / v / reward": 1.0}, few)[0].off is None
    old, new = (
        nights(*[5.0] * 10, name="s / v / reward"),
        nights(*[0.0] * NIGHTS, name="s / v / reward"),
    )
    assert not compare({"s / v / reward": 0.0}, old + new)[0].red
    table = markdown(
        "2026-01-01-abc", compare({"s / v / reward": 9.0}, new), {"s / x": "no space"}, len(new)
    )
    assert (
        "1 run failed, 1 of 1 numbers outside their bands" in table
        and "| RED | s / v / reward | 9 |" in table
        and "space" in table
    )


def test_a_number_that_is_none_in_one_seed_is_red_and_ends_no_night(tmp_path):
    folders = [make_run(tmp_path / home, "one", make_spec()) for home in "ab"]
    for folder, reward in zip(folders, (0.5, math.nan), strict=True):
        append_metrics(folder, 1, {"step": 3, "reward": reward, "entropy": 1.0})
        write_done(folder, seconds=1.0, attempts=1)
    values, errors = measure({"s": folders})
    assert math.isnan(values["s / one / reward"]) and errors == {"s / one / entropy": 0.0}


def test_every_file_has_its_own_sweep_and_ctrl_c_alone_ends_the_night(
    tmp_path, monkeypatch, command_line, no_server
):
    sets, begun = tmp_path / "nightly-regression-sweeps", []
    sets.mkdir()
    for name in ("weighting-dapo", "weighting-grpo"):
        (sets / f"{name}.yaml").write_text(SWEEP.format(name=name, steps=2, every=2, seeds=[0]))
    one, other = (sweep.spec.name for sweep in nightly.plan(sets, {})[1].values())
    assert one != other and len(one) == len("nightly-") + 27 + len("-2026-01-01-0123abcd")
    with monkeypatch.context() as east:
        east.setenv("TZ", "EAST-14" if time.gmtime().tm_hour > 9 else "WEST+14")
        time.tzset()
        there = nightly.plan(sets, {})[0]
    time.tzset()
    assert there == nightly.plan(sets, {})[0], (
        "by the schedule's date: two nights may have one local date"
    )
    monkeypatch.setattr(execution, "conduct_and_conclude", lambda *_: begun.append(1) or 130)
    assert command_line("nightly", sets, "--home", tmp_path / "data")[0] == 130 and len(begun) == 1
    assert not [*(tmp_path / "data" / "nightly").rglob("*.json")]

    def unreachable(*_):
        begun.append(1)
        raise ConfigError("the hub cannot be reached")

    monkeypatch.setattr(execution, "conduct_and_conclude", unreachable)
    monkeypatch.setattr(nightly, "_audit", dict)
    code, _, err = command_line("nightly", sets, "--home", tmp_path / "data")
    assert (code, len(begun)) == (1, 3) and "hub cannot" in err and "grpo: nothing was run" in err
    for night, started in (
        ("of-today", time.time()),
        ("of-a-clock-that-was-ahead", time.time() + 1e6),
    ):
        record = {"night": night, "started": started, "values": {}}
        atomic_write_json(nightly.place(Layout.at(tmp_path), sets) / f"{night}.json", record)
    assert nightly.accept(Layout.at(tmp_path), sets, "it is meant") == "of-today"


def test_of_old_nights_only_the_numbers_stay(tmp_path):
    layout = Layout.at(tmp_path)
    parts = (("a", ""), ("b", ".tuning"))
    names = [
        f"nightly-{n}-2026-01-{day:02d}-0123abcd{part}" for day in range(1, 33) for n, part in parts
    ]
    for name in [*names, "nightly-mine", "other"]:
        (layout.sweep_folder(name) / "run").mkdir(parents=True)
        layout.study_folder(name.partition(".")[0]).mkdir(parents=True)
        layout.reports(name).mkdir(parents=True)
    (layout.runs / ".forgotten-of-a-killed-night").mkdir()
    assert forget(layout, 30, "2026-01-32-0123abcd") == sorted(names[:4])
    left = {*names[4:], "nightly-mine", "other"}
    assert set(layout.sweeps()) == left == {p.name for p in layout.runs.iterdir()}
    assert not layout.reports(names[0]).exists() and layout.reports(names[4]).exists()
    assert not {names[1][:-7], names[3][:-7]} & {p.name for p in (tmp_path / "studies").iterdir()}
    assert forget(layout, 30, "2026-01-32-0123abcd") == []
    assert len(forget(layout, 1, "2026-01-30-0123abcd")) == 56, "tonight stays, whatever its name"


def test_a_night_draws_its_samples_anew_though_its_models_are_those_of_the_night_before(tmp_path):
    layout, tonight = Layout.at(tmp_path), "2026-01-02-0123abcd"
    for name in ("nightly-a-2026-01-01-0123abcd", f"nightly-a-{tonight}", "mine"):
        checkpoint = layout.sweep_folder(name) / "run" / "checkpoints" / "step-000003"
        checkpoint.mkdir(parents=True)
        draws = Draws(layout.home, {"model": name}, checkpoint)
        draws.add({Key("p", "q", 0): Draw("2", 1, False)})
    nightly._draw_anew(layout, tonight)
    left = [
        json.loads(path.read_text())["model"]
        for path in (tmp_path / "samples").glob("*/settings.json")
    ]
    assert sorted(left) == ["mine", f"nightly-a-{tonight}"]


@pytest.mark.system
def test_a_night_of_a_sweep_and_a_study_needs_no_others_server(tmp_path, monkeypatch, capsys):
    (tmp_path / "nights").mkdir()
    (tmp_path / "nights" / "first.yaml").write_text(
        SWEEP.format(name="first", steps=2, every=2, seeds=[0])
    )
    study_file(tmp_path / "nights", tune={"trials": 2}, report={"seeds": [0]})
    home = tmp_path / "data"
    done = rpg(tmp_path, "nightly", "nights", module=TRIVIAL, home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leaked" not in done.stderr, (
        "what nanobind says of DuckDB's objects that nobody could collect"
    )
    [record] = [
        json.loads(path.read_text()) for path in (home / "nightly" / "nights").glob("*.json")
    ]
    of_study = {name.split(" / ")[1] for name in record["digests"] if name.startswith("study / ")}
    assert of_study == {
        f"{name}{trial}" for name in ("one", "two") for trial in ("", " trial 0", " trial 1")
    }
    assert not any("trial" in name for name in record["values"]), "of the reported runs"

    monkeypatch.setattr(
        sys, "argv", ["rpg", "nightly", str(tmp_path / "nights"), "--home", str(home)]
    )
    with locks.take(home / "nightly" / "nights" / ".lock"), pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code and "the previous night is still running" in capsys.readouterr().out
    with pytest.raises(UserError, match="--why: say in a sentence"):
        nightly.accept(Layout.at(home), tmp_path / "nights", "")


@pytest.mark.system
def test_a_sweep_whose_back_end_is_missing_is_left_out_and_red_if_it_was_there_before(
    tmp_path, monkeypatch, no_server
):
    pytest.importorskip("verl_cpu")
    monkeypatch.setattr(nightly, "_audit", dict)
    layout, sets, installed = (
        Layout.at(tmp_path / "data"),
        tmp_path / "nights",
        importlib.util.find_spec,
    )
    sets.mkdir()
    for name, setting in (("here", ""), ("verl", "set: {backend.type: verl}\n")):
        text = SWEEP.format(name=name, steps=2, every=2, seeds=[0])
        (sets / f"{name}.yaml").write_text(text + setting)

    def trivially(sweep):
        folders = register(sweep, layout)
        for folder in folders:
            append_metrics(folder, 1, {"step": 2, "reward": 0.5})
            for benchmark, step in pending_evaluations(folder):
                checkpoint(folder, step)
                write_eval(folder, benchmark, step, [sample(0, step)])
        mark_done(folders)

    def night(number, without=""):
        monkeypatch.setattr(nightly, "code_version", lambda: f"0000000{number}")
        find = lambda name, package=None: None if name == without else installed(name, package)  # noqa: E731
        monkeypatch.setattr(importlib.util, "find_spec", find)
        return run_night(layout, sets, {}, trivially)

    first = night(1, without="verl")
    assert not first.red and first.said.endswith(
        "; verl left out: backend.type: verl needs the package verl, which is not installed"
    )
    never_had = night(2, without="verl")
    assert not never_had.red and "verl left out" in never_had.said
    whole = night(3)
    assert not whole.red and "new runs: verl / grpo / seed 0; new back ends: verl" in whole.said, (
        whole.said
    )
    lost = night(4, without="verl_cpu")
    assert (
        lost.red and "missing runs: verl / grpo / seed 0; missing back ends: verl" in lost.said
    ), lost.said
    assert "verl left out: backend.device: cpu needs the package verl_cpu" in lost.said
