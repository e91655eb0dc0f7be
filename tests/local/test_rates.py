"""Learning rates, clipping of the gradient, and the average that schedule-free samples from."""

import pytest
import torch

from rpg.backends.local.optimizers import Optimizer
from rpg.models.micro_batches import score
from tests.local.test_trainer import LIMITS, make, weights
from tests.tiny import make_spec


def test_clipping_bounds_the_gradient_and_reports_it_before():
    parameter = torch.nn.Linear(3, 1, bias=False)
    optimizer = Optimizer(parameter, make_spec().training.optimizer)
    for limit, left in ((None, 5.0), (1.0, 1.0), (10.0, 5.0)):
        parameter.weight.grad = torch.tensor([[3.0, 4.0, 0.0]])
        norm, _ = optimizer.step(1, limit)
        assert norm == pytest.approx(5.0)
        assert float(parameter.weight.grad.norm()) == pytest.approx(left, rel=1e-4)


def test_schedule_free_samples_from_the_average(home):
    schedule = {"type": "schedule_free", "learning_rate": 1e-3, "warmup_steps": 2}
    trainer = make(home, training={"optimizer": schedule})
    for step in (1, 2):
        trainer.step(step)
    averaged = weights(trainer)
    samples = trainer.roller.roll(trainer.policy, 3).first.samples
    assert torch.allclose(
        score(trainer.policy, samples.batch, 1.0, LIMITS), samples.log_prob, atol=1e-5
    )
    trainer.optimizer.update_mode()
    assert not weights(trainer).equal(averaged)  # gradients are taken elsewhere
    trainer.optimizer.rollout_mode()
    assert torch.allclose(weights(trainer), averaged, atol=1e-6)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_schedules_are_transformers_after_a_warm_up_that_reaches_the_rate(schedule):
    from transformers import get_scheduler

    from rpg.backends.learning_rates import rate_factor

    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    name = schedule if schedule != "constant" else "constant_with_warmup"
    scheduler = get_scheduler(name, theirs, num_warmup_steps=3, num_training_steps=10)
    for step in range(1, 11):
        expected = step / 3 if step <= 3 else scheduler.get_last_lr()[0]
        assert rate_factor(schedule, 3, step, 10) == pytest.approx(expected), step
        theirs.step()
        scheduler.step()


def test_a_rate_falls_over_the_whole_run(home):
    """After its warm-up, by optimizer steps: two a rollout."""
    optimizer = {"schedule": "linear", "learning_rate": 1e-3, "warmup_steps": 3}
    trainer = make(home, training={"optimizer": optimizer})
    rates = [trainer.step(step)["learning_rate"] for step in (1, 2, 3)]
    assert rates == pytest.approx([1e-3 * share for share in (2 / 3, 1, 1 / 3)])
