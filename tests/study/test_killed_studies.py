"""kill -9 of a study whose trainings are real, while it reports: it ends with the same trials, the same record and the same
bits. test_studies.py and test_study_command.py kill studies while they tune, whose trainings are made up."""

import os
import signal

import pytest
import yaml

from flows.study.steps import STEPS, Running, run_steps
from flows.sweep.conductor import register
from flows.sweep.evaluation import mark_done
from rpg.store import Layout
from rpg.study.registration import registration
from rpg.study.spec import load_study
from tests import tiny
from tests.forked_commands import to_its_end
from tests.real_sweep import rpg, start
from tests.study import stand_ins
from tests.waiting import until

pytestmark = pytest.mark.long
WARM = {"warm_start": {"seed": 0, "behaviour_steps": 20}}
RUN = tiny.merged(tiny.BASE, {"training": {"steps": 4}, "task": {"tuning_problems": 4}, "model": WARM})
TUNE = {"trials": 2, "seeds": [100], "prune": "none"}
STUDY = tiny.merged(stand_ins.FILE, {"tune": TUNE, "report": {"seeds": [0, 1]}}) | {"run": RUN}


def undisturbed(home, path):
    """The study, run to its end in this process and in those forked from it."""

    def conduct(sweep, wanted):
        folders = [folder for folder in register(sweep, Layout.at(home)) if folder.name in wanted]
        for folder in folders:
            to_its_end("train", folder)
        to_its_end("evaluate", folders[0].path.parent)
        mark_done(folders)

    run_steps(STEPS, Running(load_study(path), Layout.at(home), conduct, print))
    return stand_ins.contents(home)


def test_a_study_that_was_killed_while_it_trains_ends_with_the_same_bits(tmp_path, prefect):
    path, home = tmp_path / "study.yaml", tmp_path / "killed"
    path.write_text(yaml.safe_dump(STUDY))
    layout = Layout.at(home)

    def training():
        planned = registration(layout, "made-up")
        runs = layout.run_folders(planned.sweep) if planned else []
        return any(run.checkpoint_steps()[-1:] == [1] for run in runs)

    going = start(tmp_path, "study", str(path), home=home, **prefect)
    until(training, unless=lambda: going.poll() is not None)
    os.killpg(going.pid, signal.SIGKILL)
    assert going.wait() == -signal.SIGKILL, "it was over"
    done = rpg(tmp_path, "study", str(path), home=home, **prefect)
    assert done.returncode == 0 and "leaked" not in done.stderr, done.stdout + done.stderr
    assert registration(layout, "made-up").deviations == []
    (files, runs), expected = stand_ins.contents(home), undisturbed(tmp_path / "whole", path)
    assert files == expected[0]
    assert runs.keys() == expected[1].keys() and len(runs) == 4 + 4
    for name, found in runs.items():
        assert found == expected[1][name], name
