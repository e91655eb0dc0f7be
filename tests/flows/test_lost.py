"""A training on this machine that ended by no fault of its own is started again, as often as
`backend.attempts` says."""

import json
from types import SimpleNamespace

import pytest

from flows.machine import programs
from flows.machine.children import Children
from flows.machine.slots import Machine
from flows.sweep import training
from flows.sweep.context import Context, RunFailed
from flows.sweep.sharing import Claims
from rpg.store import Layout
from tests.tiny import make_run, make_spec

TRAINER = """
import sys
from pathlib import Path
from rpg.store import RunFolder
from rpg.store.run_writer import write_failed

folder = RunFolder(Path(sys.argv[1]))
losses = folder.path / "losses"
left = int(losses.read_text())
losses.write_text(str(left - 1))
if left > 0:
    write_failed(folder, "Ray did not start", log="driver.txt")
sys.exit(71 if left > 0 else 0)
"""


@pytest.mark.parametrize(("losses", "ends"), [(2, True), (3, False)])
def test_a_lost_training_is_started_again_until_its_attempts_are_used_up(
    tmp_path, monkeypatch, losses, ends
):
    (tmp_path / "stand_in_local.py").write_text(TRAINER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(programs, "TRAINER", "stand_in_{}")
    monkeypatch.setattr(training, "LEASE_SECONDS", 0.0)
    folder = make_run(tmp_path / "data", "one", make_spec(backend={"attempts": 3}))
    (folder.path / "losses").write_text(str(losses))
    said = []
    layout = Layout.at(tmp_path / "data")
    claims = Claims(layout)
    machine = Machine(tmp_path / "slots", 1, ())
    assert claims.take(folder)
    owner = SimpleNamespace(log=said.append)
    context = Context(layout, folder.sweep, machine, Children(), claims, None, owner)
    if ends:
        training.train_in_process(folder, context)
        assert folder.read_failed() is None, "what happened on the way is no failure"
    else:
        with pytest.raises(
            RunFailed, match=r"one: lost 3 times .*backend.attempts.* Ray did not start"
        ):
            training.train_in_process(folder, context)
        assert folder.read_failed()["log"] == "driver.txt"
    claims.close()
    assert (
        said
        == ["one: Ray did not start; it is restarted and continues from its last checkpoint"] * 2
    )
    assert json.loads((folder.path / "FAILED-0.json").read_text())["error"] == "Ray did not start"
