"""Passes through the model: no larger than is allowed, nothing twice, and nothing that is known to
be zero."""

from functools import partial

import pytest
import torch

from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import LossInputs
from rpg.models.decoding import Batch
from rpg.models.micro_batches import Limits, micro_batches
from tests.local.test_trainer import make, plain, weights


def batch(lengths, prompts=(3, 5), size=4):
    lengths = torch.tensor(lengths)
    prompt_of = torch.arange(len(lengths)) // size
    tokens = torch.ones(len(lengths), int(lengths.max()), dtype=torch.long)
    return Batch([[1] * n for n in prompts], prompt_of, tokens, lengths)


def lists(passes):
    return [rows.tolist() for rows in passes]


def test_a_pass_stays_within_its_limits_and_counts_a_prompt_once():
    rows = batch([4, 4, 4, 4, 2, 9, 2, 2])
    assert lists(Limits(100, 100, 100).split(rows, range(8))) == [list(range(8))]
    assert lists(Limits(3, 100, 100).split(rows, range(8))) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    # 3 + 4 + 4, then 3 + 4 + 4, then 5 + 2; the response of nine is too long for any pass.
    assert lists(Limits(100, 11, 11).split(rows, range(8))) == [[0, 1], [2, 3], [4], [5], [6, 7]]
    assert lists(Limits(100, 1, 1).split(rows, [7, 0])) == [[7], [0]]


def test_passes_with_a_long_response_are_smaller():
    rows = batch([513, 2, 400, 400, 400, 400, 2, 2])
    assert lists(Limits(100, 2000, 950).split(rows, range(8))) == [[0, 1, 2], [3, 4, 5, 6, 7]]
    assert lists(Limits(100, 2000, 950).split(rows, [2, 3, 4, 0])) == [[2, 3, 4], [0]]


def test_groups_without_a_signal_are_passes_of_their_own():
    rows = batch([4, 4, 4, 4, 2, 2, 2, 2, 6, 6, 6, 6], prompts=(3, 5, 4))
    advantages = torch.ones(12, 6)
    advantages[4:8] = 0
    advantages[0] = 0  # one silent response of a group that is not
    silent_apart = micro_batches(rows, advantages, Limits(8, 1000, 1000))
    assert lists(silent_apart) == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7]]
    assert lists(micro_batches(rows, advantages, Limits(12, 1000, 1000))) == [list(range(12))]


@pytest.mark.parametrize("all_silent", [False, True])
def test_what_is_left_out_is_zero(home, monkeypatch, all_silent):
    """Weights and metrics of a step are, to the bit, those of sending every micro-batch back."""
    changes = {"algorithm": "dr-grpo", "training": {"micro_batch_tokens": 60}}
    if all_silent:
        changes["rollout"] = {"max_response_tokens": 1}  # nothing is right
    lazy = make(home, **changes)
    sent = []
    backward = torch.autograd.backward

    def counted(outputs, *gradients):
        first = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        sent.append(first.ndim)  # 0: a loss; 2: log-probabilities
        backward(outputs, *gradients)

    monkeypatch.setattr(torch.autograd, "backward", counted)
    metrics = [plain(lazy.step(step)) for step in (1, 2)]
    losses = sent.count(0)
    gradients = sent.count(2)
    assert 0 < gradients < losses if not all_silent else gradients == 0 < losses
    monkeypatch.undo()

    full = make(home, **changes)
    monkeypatch.setattr(full, "_accumulate", partial(_everything, full))
    assert [plain(full.step(step)) for step in (1, 2)] == metrics
    assert weights(full).equal(weights(lazy))


@pytest.mark.parametrize("name", ["gspo", "dr-grpo"])
def test_metrics_of_ratios_are_those_of_the_whole_update(home, name):
    settings = [
        {"micro_batch_rows": size, "optimizer": {"learning_rate": 3e-3}} for size in (1, 1000)
    ]
    parts, whole = (make(home, algorithm=name, training=training).step(1) for training in settings)
    means = [[row["ess"], row["ratio_mean"]] for row in (parts, whole)]
    assert means[0] == pytest.approx(means[1], abs=1e-5)
    assert whole["ess"] < 1 - 1e-4


def _everything(trainer, mini, meter, diagnostics):
    trainer.optimizer.zero_grad()
    spec = trainer.spec
    lengths = mini.batch.lengths
    counts = Counts(int(lengths.sum()), len(lengths), spec.rollout.max_response_tokens)
    for rows in micro_batches(
        mini.batch, mini.advantages, Limits.of(spec.training, trainer.policy)
    ):
        micro = mini.rows(rows)
        inputs = LossInputs(
            old_log_prob=micro.old_log_prob,
            ref_log_prob=None,
            advantages=micro.advantages,
            response_mask=micro.batch.mask,
            counts=counts,
        )
        log_prob = trainer.policy.log_probs(micro.batch, spec.rollout.temperature)
        log_prob.retain_grad()
        out = inputs.loss(spec.algorithm, log_prob)
        out.loss.backward()
        meter.add(out.metrics, out.weight, trainer.optimizer_step)
        if diagnostics is not None:
            diagnostics.add(log_prob, inputs)
    return 0.0
