"""A training goes on with another number of workers: weights, moments and reference are what they were, and so is the next
update, up to the order of sums."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from tests.verl.inside import ROOT, make_spec


def test_which_files_are_there(tmp_path):
    from rpg.backends.verl.resharding import written_by

    pattern = "model_world_size_{world}_rank_{rank}.pt"
    assert written_by(tmp_path, pattern) == 0
    for rank in range(2):
        (tmp_path / pattern.format(world=2, rank=rank)).touch()
    assert written_by(tmp_path, pattern) == 2
    (tmp_path / pattern.format(world=2, rank=1)).unlink()
    with pytest.raises(FileNotFoundError, match="of 2 workers"):
        written_by(tmp_path, pattern)


def work(folder, workers, *words):
    """What so many workers found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    base = {
        **os.environ,
        "WORLD_SIZE": str(workers),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    script = [sys.executable, "-m", "tests.verl.reshard", str(folder), *words]
    started = [
        subprocess.Popen(script, cwd=ROOT, env={**base, "RANK": str(rank), "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)
        for rank in range(workers)
    ]  # fmt: skip
    for process in started:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors.decode()[-3000:]
    return torch.load(folder / words[1] / "found.pt")


@pytest.mark.long
def test_one_worker_and_two_go_on_from_each_other(home, model, tmp_path):
    from tests.verl.test_inside_update import local_trainer

    spec = make_spec(algorithm={"name": "rpg-urkl", "reference": {"type": "every_k", "k": 4}})
    trainer = local_trainer(spec, home)
    experience = trainer._score(trainer.roller.roll(trainer.policy, 1).kept, trainer.policy)[0]
    torch.save((spec.model_dump_json(), str(model), experience), tmp_path / "experience.pt")
    _, first, reference, _ = work(tmp_path, 2, "-", "two")
    for workers, source, target in ((1, "two", "one"), (2, "one", "two-again")):
        loaded, updated, kept, now = work(tmp_path, workers, source, target)
        assert loaded.equal(first), "the weights, bit for bit"
        assert kept.equal(reference), "and the reference"
        _, alike, _, same = work(tmp_path, 3 - workers, source, f"{target}-by-as-many")
        torch.testing.assert_close(updated, alike, rtol=1e-3, atol=2e-6)  # with the moments that were saved
        torch.testing.assert_close(now, same, rtol=1e-2, atol=1e-7)
        first = updated
