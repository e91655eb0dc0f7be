"""The papers' files: every variant trains a step, and what couples the responses of a group is the
same in any micro-batches."""

from pathlib import Path

import pytest
import torch

from rpg.catalogue import override
from rpg.config.sweep_spec import load_file
from tests.local.test_trainer import gradients_of, make, weights
from tests.tiny import make_spec, make_trainer

PAPERS = Path(__file__).parents[2] / "configs" / "papers"


def variants(path):
    """The run of each variant's first seed."""
    runs = load_file(path.resolve(), {}, lambda _spec: "d").runs
    return {run.variant: run.spec for run in reversed(runs)}


def in_small(paper):
    """A paper's algorithm and sampler on a task of a second, with the initial model as teacher."""
    algorithm = paper.algorithm
    if algorithm.reference.type == "model":
        algorithm = override(algorithm, reference="fixed")
    spec = make_spec(training={"prompts_per_step": 4, "mini_batch_prompts": 2})
    sampling = {"staleness": paper.rollout.staleness, "sampler": paper.rollout.sampler}
    rollout = spec.rollout.model_copy(update=sampling)
    return spec.model_copy(update={"algorithm": algorithm, "rollout": rollout})


@pytest.mark.parametrize("path", sorted(PAPERS.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_variant_of_a_paper_trains_a_step(home, path):
    for name, paper in variants(path).items():
        spec = in_small(paper)
        trainer = make_trainer(spec, home)
        before = weights(trainer)

        metrics = trainer.step(1)

        assert metrics["optimizer_step"] == metrics["groups_kept"] // 2, name
        assert (metrics["grad_norm"] > 0) == (not weights(trainer).equal(before)), name


@pytest.mark.parametrize(
    "algorithm",
    [
        "tpo",
        {"name": "cispo", "loss_agg_mode": "prompt-mean"},
        {"name": "frpo", "beta": 0.3, "reference": {"type": "every_k", "k": 1}},
    ],
    ids=["tpo", "prompt-mean", "frpo"],
)
def test_micro_batches_that_split_groups_give_the_same_gradients(home, algorithm):
    """Of three updates on one rollout: the policy has moved before the second."""
    steps = []
    for rows in (1000, 3):
        training = {"micro_batch_rows": rows, "epochs": 2, "optimizer": {"learning_rate": 3e-3}}
        trainer = make(home, algorithm=algorithm, training=training)
        gradients = gradients_of(trainer)
        trainer.step(1)
        steps.append(torch.stack(gradients[:3]))
    whole, parts = steps
    assert (whole.norm(dim=-1) > 1e-4).all()
    torch.testing.assert_close(parts, whole, rtol=2e-3, atol=2e-6)
