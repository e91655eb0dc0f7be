"""Data folders of older versions open: what is finished counts, what was killed continues."""

import tarfile
from pathlib import Path

import pytest

from flows.sweep.conductor import register, unfinished
from rpg.config.sweep_spec import load_sweep
from rpg.store import Layout
from rpg.store.current import superseded
from rpg.tasks.preparation import data_digest
from tests.real_sweep import rpg

HOMES = Path(__file__).parents[1] / "homes"
SWEEP = HOMES / "old.yaml"
VERSIONS = ["8cf41bd2", "0f49a536"]


def unpacked(version, folder):
    with tarfile.open(HOMES / f"{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return Layout.at(folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_runs_of_an_older_version_are_current(tmp_path, version):
    layout = unpacked(version, tmp_path)

    finished, killed = register(load_sweep(SWEEP, {}, data_digest), layout)

    assert superseded(layout, "old-home") == {}
    assert finished.state() == "done"
    assert killed.state() == "interrupted"
    assert unfinished([finished, killed]) == [killed]
    assert killed.checkpoint_steps()[-1] == 15


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_that_an_older_version_began_continues(tmp_path, version):
    layout = unpacked(version, tmp_path)
    [killed_metrics] = layout.sweep_folder("old-home").glob("grpo-s1-*/metrics-1.jsonl")
    before = killed_metrics.read_text()

    done = rpg(tmp_path, "sweep", str(SWEEP), "--workers", "1", home=tmp_path)

    assert done.returncode == 0, done.stderr
    [second] = layout.sweep_folder("old-home").glob("grpo-s1-*/metrics-2.jsonl")
    assert second.with_name("metrics-1.jsonl").read_text() == before
    steps = [line for line in second.read_text().splitlines() if '"step"' in line]
    assert len(steps) == 40 - 15
    assert second.with_name("DONE.json").exists()
