"""Entries that verl ships, too: the same slopes as its own functions, response by response."""

import pytest
import torch

import rpg
from rpg.auditing import peers
from rpg.auditing.measure import Settings
from rpg.auditing.moments import batch_slopes
from rpg.auditing.subjects import Scene, from_algorithm

CLIP = {"low": 0.2, "high": 0.2, "c": None}


@pytest.fixture(scope="module")
def shipped():
    pytest.importorskip("verl", reason="compared with verl's own functions")
    return {subject.name: subject for subject in peers.shipped(0.3)[0] if subject.source.startswith("verl")}


@pytest.mark.parametrize(("name", "changes", "theirs"), [
    ("gmpo", {"clip": CLIP}, "geo_mean"), ("sapo", {}, "sapo"), ("gspo", {"clip": CLIP}, "gspo"),
])  # fmt: skip
def test_the_loss_is_verls(shipped, name, changes, theirs):
    other, mine = shipped[theirs], from_algorithm(rpg.algorithm(name, **changes))
    for drift in (0.0, 0.8):
        inputs = Scene.of(mine, Settings().world(0), drift).inputs
        slopes = [batch_slopes(subject.clipped or subject.loss, inputs) for subject in (mine, other)]
        assert slopes[0].any()
        torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-7)


def test_opos_baseline_is_verls():
    core = pytest.importorskip("verl.trainer.ppo.core_algos", reason="compared with verl's own functions")
    mask = (torch.arange(5) < torch.tensor([[5], [2], [3], [1]])).float()
    rewards, group = torch.tensor([1.0, 0.0, -1.0, 1.0]), torch.tensor([0, 0, 1, 1])
    at_end = torch.zeros(4, 5).scatter(1, mask.sum(-1, keepdim=True).long() - 1, rewards[:, None])
    theirs = core.compute_opo_outcome_advantage(at_end, mask, group.numpy())[0]
    mine = rpg.advantages(rpg.algorithm("opo"), rewards=rewards, group=group, response_mask=mask)
    torch.testing.assert_close(mine, theirs)
