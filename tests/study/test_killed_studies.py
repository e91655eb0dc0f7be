"""kill -9 of a study whose trainings are real: it ends with the same trials, the same record and the same bits.

While it tunes and while it reports; test_studies.py kills it at its writes, also between the two.
"""

import os
import signal

import pytest
import yaml

from rpg.store import Layout
from rpg.study.registration import registration
from tests import tiny
from tests.real_sweep import rpg, start
from tests.study.stand_ins import FILE, contents
from tests.waiting import until

pytestmark = pytest.mark.long
WARM = {"warm_start": {"seed": 0, "behaviour_steps": 20}}
RUN = tiny.merged(tiny.BASE, {"training": {"steps": 2}, "task": {"tuning_problems": 4}, "model": WARM})
STUDY = {"run": RUN, "tune": FILE["tune"] | {"trials": 2}, "report": {"seeds": [0, 1]}}


def test_a_study_that_was_killed_while_it_trains_ends_with_the_same_bits(tmp_path, prefect):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(FILE | STUDY))
    home, whole = tmp_path / "killed", tmp_path / "whole"
    layout = Layout.at(home)

    def training(sweep):
        runs = layout.run_folders(sweep)
        return any(run.checkpoints.exists() and not run.done_path.exists() for run in runs)

    moments = {
        "tuning": lambda: training("made-up.tuning"),
        "reporting": lambda: (planned := registration(layout, "made-up")) and training(planned.sweep),
    }
    for moment, reached in moments.items():
        going = start(tmp_path, "study", str(path), home=home, **prefect)
        until(reached, unless=lambda going=going: going.poll() is not None)
        os.killpg(going.pid, signal.SIGKILL)
        assert going.wait() == -signal.SIGKILL, f"over before {moment}"
    for folder in (home, whole):
        done = rpg(tmp_path, "study", str(path), home=folder, **prefect)
        assert done.returncode == 0 and "leaked" not in done.stderr, done.stdout + done.stderr
    assert registration(layout, "made-up").deviations == []
    (files, runs), expected = contents(home), contents(whole)
    assert files == expected[0]
    assert runs.keys() == expected[1].keys() and len(runs) == 6 + 4
    for name, found in runs.items():
        assert found == expected[1][name], name
