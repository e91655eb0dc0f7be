"""`rpg study` as it is typed: real processes, whose trainings are made up (benchmarks.trivial)."""

import json
import os
import shlex
import signal

import pytest

from rpg.store import Layout
from rpg.study.registration import registration
from rpg.study.trials import trials
from tests.real_sweep import TRIVIAL, rpg, start
from tests.study.stand_ins import RATE, study_file
from tests.waiting import HANG, until

pytestmark = pytest.mark.long


def records(home, name):
    paths = (home / "studies" / name / "batches").iterdir()
    found = {path.name: json.loads(path.read_text())["trials"] for path in paths}
    return {file: [(one["settings"], one["runs"]) for one in trials] for file, trials in found.items()}


def test_two_studies_at_once_one_of_them_killed(tmp_path, prefect, command_line):
    """While it tunes, and while it reports. Both have the same variants and spaces, so all their trials are the same runs:
    each is trained once. They report other seeds: a reported run that the other had trained before the registration would
    be shown."""
    home, layout = tmp_path / "data", Layout.at(tmp_path / "data")
    files, how = {}, {"home": home, "module": TRIVIAL, **prefect}
    for name, seeds in {"first": [0, 1], "second": [2, 3]}.items():
        (tmp_path / name).mkdir()
        tune = {"trials": 2, "prune": "none"}
        path = study_file(tmp_path / name, name=name, tune=tune, report={"seeds": seeds})
        files[name] = str(path)
    other = start(tmp_path / "second", "study", files["second"], **how)

    def reporting():
        planned = registration(layout, "first")
        return planned and any(layout.run(planned.sweep, run).attempts() for run in planned.runs)

    for far in (lambda: len(layout.run_folders("first.tuning")) > 4, reporting):
        going = start(tmp_path / "first", "study", files["first"], **how)
        until(far, unless=lambda going=going: going.poll() is not None)
        os.killpg(going.pid, signal.SIGKILL)
        assert going.wait() == -signal.SIGKILL, "it was over"
    done = rpg(tmp_path, "study", files["first"], **how)
    assert done.returncode == 0, done.stdout + done.stderr
    assert other.wait(HANG) == 0, (tmp_path / "second" / "data.log").read_text()

    assert records(home, "first") == records(home, "second") and len(records(home, "first")) == 2
    for name in files:
        assert registration(layout, name).deviations == []
    one, two = (trials(layout, name).drop(columns=["seconds", "run_ids"]) for name in files)
    assert one.equals(two) and one[RATE].nunique() == 2
    trained: dict[str, int] = {}
    for folder in [folder for name in files for folder in layout.run_folders(f"{name}.tuning")]:
        run_id = folder.read_manifest()["run_id"]
        trained[run_id] = trained.get(run_id, 0) + (not (folder.path / "shared.json").exists())
    assert len(trained) == 8 and set(trained.values()) == {1}

    lines = done.stdout.splitlines()
    [step] = [line.partition(": ")[2] for line in lines if line.startswith("compare the variants")]
    code, printed, _ = command_line(*shlex.split(step)[3:], "--home", home)  # behind `python -m rpg`
    assert not code and "Mean accuracy" in printed
    assert (layout.study_folder("first") / "report" / "report.html").stat().st_size > 10_000
