"""`rpg study` as it is typed: two real studies at once, one of them killed while it tunes and
within a reported run."""

import os
import shlex
import signal

import pytest
import yaml

from flows.study.steps import STEPS, Running, run_steps
from flows.sweep.conductor import register
from flows.sweep.evaluation import mark_done
from rpg.store import Layout
from rpg.study.registration import registration
from rpg.study.spec import load_study
from rpg.study.trials import trials
from tests import tiny
from tests.forked_commands import to_its_end
from tests.real_sweep import rpg, start
from tests.study.stand_ins import FILE, RATE, contents
from tests.waiting import HANG, until

WARM = {"warm_start": {"seed": 0, "behaviour_steps": 20}}
RUN = tiny.merged(
    tiny.BASE, {"training": {"steps": 4}, "task": {"tuning_problems": 4}, "model": WARM}
)
TUNE = {"trials": 2, "seeds": [100], "prune": "none"}


def undisturbed(home, path):
    """A study, run to its end in this process and in those forked from it."""

    def conduct(sweep, wanted):
        folders = [folder for folder in register(sweep, Layout.at(home)) if folder.name in wanted]
        for folder in folders:
            to_its_end("train", folder)
        to_its_end("evaluate", folders[0].path.parent)
        mark_done(folders)

    run_steps(STEPS, Running(load_study(path), Layout.at(home), conduct, print))


@pytest.mark.system
def test_two_studies_at_once_one_of_them_killed(tmp_path, prefect, command_line):
    """Both have the same variants and spaces, so all their trials are the same runs: each is
    trained once. They report other seeds: a reported run that the other had trained before the
    registration would be shown."""
    home = tmp_path / "data"
    layout = Layout.at(tmp_path / "data")
    files = {}
    how = {"home": home, **prefect}
    for name, seeds in {"first": [0, 1], "second": [2, 3]}.items():
        (tmp_path / name).mkdir()
        study = tiny.merged(FILE, {"name": name, "tune": TUNE, "report": {"seeds": seeds}}) | {
            "run": RUN
        }
        files[name] = tmp_path / name / "study.yaml"
        files[name].write_text(yaml.safe_dump(study))

    def in_a_reported_run():
        planned = registration(layout, "first")
        runs = layout.run_folders(planned.sweep) if planned else []
        return any(run.checkpoint_steps()[-1:] == [1] for run in runs)

    other = start(tmp_path / "second", "study", files["second"], **how)
    for far in (lambda: layout.run_folders("first.tuning"), in_a_reported_run):
        going = start(tmp_path / "first", "study", files["first"], **how)
        until(far, unless=lambda going=going: going.poll() is not None)
        os.killpg(going.pid, signal.SIGKILL)
        assert going.wait() == -signal.SIGKILL, "it was over"
    done = rpg(tmp_path, "study", files["first"], **how)
    assert done.returncode == 0 and "leaked" not in done.stderr, done.stdout + done.stderr
    assert other.wait(HANG) == 0, (tmp_path / "second" / "data.log").read_text()

    for path in files.values():
        undisturbed(tmp_path / "whole", path)
    records, runs = contents(home)
    expected_records, expected = contents(tmp_path / "whole")
    assert records == expected_records
    assert runs.keys() == expected.keys()
    assert len(runs) == 2 * (4 + 4)
    for name, found in runs.items():
        assert found == expected[name], name
    assert [registration(layout, name).deviations for name in files] == [[], []]
    one, two = (trials(layout, name).drop(columns=["seconds", "run_ids"]) for name in files)
    assert one.equals(two)
    assert one[RATE].nunique() == 2
    folders = [folder for name in files for folder in layout.run_folders(f"{name}.tuning")]
    own = [
        folder.read_manifest()["run_id"]
        for folder in folders
        if not (folder.path / "shared.json").exists()
    ]
    assert len(folders) == 8
    assert len(own) == len({*own}) == 4

    lines = done.stdout.splitlines()
    [step] = [line.partition(": ")[2] for line in lines if line.startswith("compare the variants")]
    code, printed, _ = command_line(
        *shlex.split(step)[3:], "--home", home
    )  # behind `python -m rpg`
    assert not code
    assert "Mean accuracy" in printed
    assert (layout.study_folder("first") / "report" / "report.html").stat().st_size > 10_000
