"""Two workers: an update on them is that of one, and a training goes on with another number of
them: weights, moments and reference are what they were, and so is the next update, up to the order
of sums."""

import pytest
import torch

from tests.tiny import make_trainer
from tests.verl import ranks
from tests.verl.inside import (
    an_experience,
    make_spec,
    make_worker,
    verl_config,
    verl_update,
    weights,
)

pytestmark = pytest.mark.usefixtures("cpu_verl")


def test_shards_are_counted_and_a_missing_one_is_an_error(tmp_path):
    from rpg.backends.verl.fsdp_weights import written_by

    pattern = "model_world_size_{world}_rank_{rank}.pt"
    assert written_by(tmp_path, pattern) == 0
    for rank in range(2):
        (tmp_path / pattern.format(world=2, rank=rank)).touch()
    assert written_by(tmp_path, pattern) == 2
    (tmp_path / pattern.format(world=2, rank=1)).unlink()
    with pytest.raises(FileNotFoundError, match="of 2 workers"):
        written_by(tmp_path, pattern)


@pytest.fixture(scope="module")
def both():
    with ranks.two_ranks() as both:
        yield both


@pytest.mark.system
def test_two_workers_and_small_micro_batches_change_nothing(home, model, tmp_path, both):
    """The same update on two FSDP shards with many micro-batches: gradient norms, metrics and
    weights."""
    spec = make_spec(algorithm="rpg-reinforce-ufkl")
    experience = an_experience(make_trainer(spec, home))
    worker = make_worker(verl_config(spec, model, tmp_path))
    one = verl_update(worker, experience.batch, experience.old_log_prob, experience.advantages)

    ranks.tell(tmp_path, spec, model, experience)
    both("update", tmp_path)
    two, moved = torch.load(tmp_path / "result.pt", weights_only=True)
    assert two["micro_batches"] > 2 * one.optimizer_steps
    assert two["optimizer_steps"] == one.optimizer_steps
    assert two["step_kls_to_ref"] == pytest.approx(one.step_kls_to_ref, rel=1e-3, abs=1e-7)
    for name, value in one.metrics.items():
        assert two["metrics"][name] == pytest.approx(value, rel=2e-4, abs=2e-6), name
    torch.testing.assert_close(moved, weights(worker.actor.engine.module), rtol=1e-3, atol=2e-6)


@pytest.mark.system
def test_one_worker_and_two_go_on_from_each_other(home, model, tmp_path, both):
    spec = make_spec(algorithm={"name": "rpg-urkl", "reference": {"type": "every_k", "k": 4}})
    ranks.tell(tmp_path, spec, model, an_experience(make_trainer(spec, home)))

    def work(workers, source, target):
        if workers == 2:
            both("go_on", tmp_path, source, target)
        else:
            ranks.go_on(tmp_path, source, target)
        return torch.load(tmp_path / target / "found.pt")

    _, first, reference, _ = work(2, ranks.BEGIN, "two")
    for workers, source, target in ((1, "two", "one"), (2, "one", "two-again")):
        loaded, updated, kept, now = work(workers, source, target)
        assert loaded.equal(first), "the weights, bit for bit"
        assert kept.equal(reference), "and the reference"
        _, alike, _, same = work(3 - workers, source, f"{target}-by-as-many")
        torch.testing.assert_close(
            updated, alike, rtol=1e-3, atol=2e-6
        )  # with the moments that were saved
        torch.testing.assert_close(now, same, rtol=1e-2, atol=1e-7)
        first = updated


@pytest.mark.system
def test_every_group_of_a_worker_waits_as_long_as_it_is_told(tmp_path, both):
    """verl's own, and those that FSDP's meshes make."""
    both("waits", tmp_path)
    assert torch.load(tmp_path / "waits.pt") == {ranks.WAIT.total_seconds()}
