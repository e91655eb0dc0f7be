"""All optimizer steps on one rollout, on one data-parallel worker, and their loss
(rpg.policy_loss).

verl's own loop counts the steps of the learning rate by rollouts, takes an optimizer step on
mini-batches that are nothing but padding, and averages metrics over micro-batches of any size; the
embedded trainer does none of this. Here the gradients are those of verl's engine; order, counts and
averages are ours. Shapes: B responses of a micro-batch (rows), T response tokens of its longest.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from rpg.backends.learning_rates import rate_factor
from rpg.backends.step_metrics import Meter
from rpg.backends.token_recorder import Values, token_values
from rpg.backends.verl.job_settings import JobSettings
from rpg.catalogue import Algorithm
from rpg.losses.aggregation import Counts, aggregate
from rpg.losses.policy_loss import LossInputs, weighted_likelihood

_OPTIONAL = ("ref_log_prob", "rollout_is_weights", "rollout_log_probs", "marks", "lm_weights")


@dataclass(frozen=True)
class ActorLoss:
    """verl's contract: called with (model_output, data, dp_group), returns (scalar, metrics).

    A loss function registered with verl never sees reference log-probabilities, and verl adds its
    own KL to it; this one replaces the whole loss (`TrainingWorker.set_loss_fn`). The metrics are
    `{"rpg": (metrics, weight, values of tokens)}` of each micro-batch: verl cannot average over
    tokens, `update` does.
    """

    algorithm: Algorithm
    horizon: int
    """Response budget in tokens."""
    entropy_coeff: float = 0.0
    """Of the entropy bonus, for which the engine has to return the entropies (`calculate_entropy`).
    """

    def __call__(
        self,
        model_output: Mapping[str, Any],
        data: TensorDict,
        dp_group: Any = None,  # noqa: ARG002 (verl passes it)
    ) -> tuple[Tensor, dict[str, tuple[dict[str, float], float, Values]]]:
        log_prob = no_padding_2_padding(model_output["log_probs"], data)  # (B, T)
        optional = [name for name in _OPTIONAL if name in data.keys()]  # noqa: SIM118 (a TensorDict refuses `in`)
        fields = data.select(
            "response_mask", "old_log_probs", "advantages", *optional
        ).to_padded_tensor()
        tokens = tu.get(data, "mini_batch_tokens")
        sequences = tu.get(data, "mini_batch_sequences")
        reference = fields.get("ref_log_prob", None)
        if reference is None and self.algorithm.needs_reference:
            # Just renewed: the reference is the old policy.
            reference = fields["old_log_probs"]
        counts = Counts(tokens, sequences, self.horizon)
        inputs = LossInputs(
            old_log_prob=fields["old_log_probs"],
            ref_log_prob=reference,
            advantages=fields["advantages"],
            response_mask=fields["response_mask"],
            rollout_weights=fields.get("rollout_is_weights", None),
            counts=counts,
        )
        out = inputs.loss(self.algorithm, log_prob)
        loss = out.loss
        metrics = out.metrics
        values = Values()
        if "lm_weights" in optional:
            loss = loss - weighted_likelihood(
                log_prob, fields["lm_weights"], fields["response_mask"], counts
            )
        if "marks" in optional:
            marks = fields["marks"]
            step = tu.get(data, "optimizer_step")
            values = token_values(
                self.algorithm,
                marks=marks,
                optimizer_step=step,
                loss=out.loss,
                sampler_log_prob=fields["rollout_log_probs"],
                log_prob=log_prob,
                inputs=inputs,
            )
        if self.entropy_coeff:
            entropy = no_padding_2_padding(model_output["entropy"], data)
            mask = fields["response_mask"]
            mode = self.algorithm.loss_agg_mode
            loss = loss - self.entropy_coeff * aggregate(entropy, mask, mode, counts)
            held = torch.where(mask != 0, entropy.detach(), 0)
            metrics = metrics | {
                "policy_entropy": float(held.sum() / (mask != 0).sum().clamp(min=1))
            }
        # FSDP takes the mean of the gradient over data-parallel workers; the counts make a sum of
        # it right.
        return loss * tu.get(data, "dp_size"), {"rpg": (metrics, out.weight, values)}


Parts = list[list[tuple[dict[str, float], float, Values]]]
"""(metrics, weight, values of the tokens that are recorded) of each micro-batch of each optimizer
step."""


@dataclass(frozen=True)
class UpdatePlan:
    """The driver's instructions for an update; the same on every worker."""

    sizes: list[int]
    """Rows of each mini-batch on this worker; the mini-batches follow one another in the data."""
    orders: list[list[int]]
    """The order of the mini-batches in each epoch."""
    optimizer_step: int
    """Optimizer steps of the run so far."""
    renew_reference: bool
    """Whether the policy becomes the reference before it changes."""
    marks: list[int]
    """Of every row on all workers, in their order (rpg.backends.token_recorder.Recorder); empty:
    nothing is recorded."""


@dataclass(frozen=True)
class Updated:
    """The result of an update; the same on every worker."""

    metrics: dict[str, float]
    """By the project's names; empty if no mini-batch had a token."""
    optimizer_steps: int
    step_kls_to_ref: list[float]
    """Of each optimizer step, the mean KL(policy || reference), nats per token."""
    values: Values
    """Of the tokens that are recorded."""


def update(
    worker: TrainingWorker, data: TensorDict, plan: UpdatePlan, settings: JobSettings
) -> Updated:
    """Epochs and mini-batches of `plan` on this worker's rows of the rollout. Raises
    FloatingPointError: a loss or a gradient is not finite; the optimizer step it belongs to was not
    taken.
    """
    engine = worker.engine
    group = worker.engine.get_data_parallel_group()
    bounds = torch.tensor([0, *plan.sizes]).cumsum(0).tolist()
    done = plan.optimizer_step
    rate = 0.0
    counts = list[int]()
    parts = Parts()
    norms = list[float]()
    if plan.marks:
        share = torch.tensor(plan.marks).chunk(engine.get_data_parallel_size())
        data["marks"] = share[engine.get_data_parallel_rank()]
    with engine.train_mode(), _update_mode(engine.optimizer):
        for number in (number for order in plan.orders for number in order):
            mini = tu.index_select_tensor_dict(
                data, torch.arange(bounds[number], bounds[number + 1])
            )
            tokens, sequences = _counts(mini, group)
            if not tokens:
                continue
            sizes = {"mini_batch_tokens": tokens, "mini_batch_sequences": sequences}
            tu.assign_non_tensor(
                mini, optimizer_step=done + 1, **sizes, **_engine_settings(worker, settings)
            )
            rate = _set_rate(engine.optimizer, settings, done + 1)
            output = engine.train_batch(mini, loss_function=worker.loss_fn)
            norm = float(output["metrics"]["grad_norm"])
            if not math.isfinite(norm):
                raise FloatingPointError(
                    f"optimizer step {done + 1}: grad_norm is {norm}; a smaller learning "
                    "rate or clipping may help"
                )
            done += 1
            counts.append(tokens)
            parts.append(output["metrics"]["rpg"])
            norms.append(norm)
            rate = engine.optimizer.param_groups[0].get("scheduled_lr", rate)
    return _gather(counts, parts, norms, float(rate), group)


@contextlib.contextmanager
def _update_mode(optimizer: Any) -> Iterator[None]:
    """Schedule-free AdamW takes gradients at other weights than those that are sampled from,
    evaluated and saved."""
    getattr(optimizer, "train", lambda: None)()
    try:
        yield
    finally:
        getattr(optimizer, "eval", lambda: None)()


def _set_rate(optimizer: Any, settings: JobSettings, step: int) -> float:
    """Warm-up and schedule by optimizer steps; verl's scheduler counts rollouts."""
    if hasattr(optimizer, "eval"):
        return settings.learning_rate  # schedule-free: it does its own warm-up
    factor = rate_factor(settings.schedule, settings.warmup_steps, step, settings.optimizer_steps)
    rate = settings.learning_rate * factor
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def _counts(mini: TensorDict, group: Any) -> tuple[int, int]:
    """(tokens, responses with a token) of the whole mini-batch, on all workers; rows of padding
    have none."""
    per_row = torch.stack([row.sum() for row in mini["response_mask"].unbind()])
    counts = torch.stack([per_row.sum(), (per_row > 0).sum()]).long().to(get_device_id())
    torch.distributed.all_reduce(counts, group=group)
    return int(counts[0]), int(counts[1])


def _engine_settings(worker: TrainingWorker, settings: JobSettings) -> dict[str, Any]:
    """What verl's engine reads besides the tensors."""
    names = (
        "use_dynamic_bsz",
        "max_token_len_per_gpu",
        "micro_batch_size_per_gpu",
        "use_fused_kernels",
    )
    return {name: getattr(worker.engine_config, name) for name in names} | {
        "use_remove_padding": worker.model_config.get("use_remove_padding", False),
        "calculate_entropy": settings.entropy_coeff > 0,
        "global_token_num": NonTensorData(None),
    }


def _gather(
    counts: list[int], parts: Parts, norms: list[float], rate: float, group: Any
) -> Updated:
    """Metrics and values of all workers together."""
    everywhere: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(everywhere, parts, group=group)
    meter = Meter()
    step_kls_to_ref = [0.0] * len(counts)
    values = Values()
    for worker in everywhere:
        for step, (tokens, micro_batches) in enumerate(zip(counts, worker, strict=True)):
            for metrics, weight, of_tokens in micro_batches:
                meter.add(metrics, weight, step)
                values |= of_tokens
                step_kls_to_ref[step] += metrics.get("kl_policy_to_ref", 0.0) * weight / tokens
    return Updated(
        metrics=meter.metrics(norms, rate) if counts else {},
        optimizer_steps=len(counts),
        step_kls_to_ref=step_kls_to_ref,
        values=values,
    )
