"""All optimizer steps on one rollout, on one data-parallel worker.

verl's own loop counts the steps of the learning rate by rollouts, takes an optimizer step on mini-batches that are nothing
but padding, and averages metrics over micro-batches of any size; the embedded trainer does none of this. Here the gradients
are those of verl's engine; order, counts and averages are ours.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id
from verl.workers.engine_workers import TrainingWorker

from rpg.backends.learning_rate import rate_factor
from rpg.backends.meter import Meter
from rpg.backends.verl.job_settings import JobSettings

Part = tuple[dict[str, float], float]
"""(metrics, weight) of a micro-batch."""


@dataclass(frozen=True)
class Plan:
    """The driver's instructions for an update; the same on every worker."""

    sizes: list[int]
    """Rows of each mini-batch on this worker; the mini-batches follow one another in the data."""
    orders: list[list[int]]
    """The order of the mini-batches in each epoch."""
    optimizer_step: int
    """Optimizer steps of the run so far."""
    renew_reference: bool
    """Whether the policy becomes the reference before it changes."""

    def into(self, extra_info: dict[str, Any]) -> None:
        """Write it into the part of a batch that verl sends along."""
        extra_info["rpg_plan"] = asdict(self)

    @classmethod
    def out_of(cls, data: TensorDict) -> Plan:
        return cls(**tu.get(data, "rpg_plan"))


@dataclass(frozen=True)
class Updated:
    """The result of an update; the same on every worker."""

    metrics: dict[str, float]
    """By the project's names; empty if no mini-batch had a token."""
    optimizer_steps: int
    token_kls: list[float]
    """Of each optimizer step, the mean KL(policy || reference), nats per token."""


def update(worker: TrainingWorker, data: TensorDict, plan: Plan, settings: JobSettings) -> Updated:
    """Epochs and mini-batches of `plan` on this worker's rows of the rollout.

    Raises:
        FloatingPointError: a loss or a gradient is not finite; the optimizer step it belongs to was not taken.
    """
    engine = worker.engine
    group = engine.get_data_parallel_group()
    bounds = torch.tensor([0, *plan.sizes]).cumsum(0).tolist()
    done, rate = plan.optimizer_step, 0.0
    counts: list[int] = []
    parts: list[list[Part]] = []
    norms: list[float] = []
    with engine.train_mode(), _update_mode(engine.optimizer):
        for number in (number for order in plan.orders for number in order):
            mini = tu.index_select_tensor_dict(data, torch.arange(bounds[number], bounds[number + 1]))
            tokens, sequences = _counts(mini, group)
            if not tokens:
                continue
            _prepare(worker, mini, tokens, sequences, done, settings)
            rate = _set_rate(engine.optimizer, settings, done + 1)
            output = engine.train_batch(mini, loss_function=worker.loss_fn)
            norm = float(output["metrics"]["grad_norm"])
            if not math.isfinite(norm):
                raise FloatingPointError(
                    f"optimizer step {done + 1}: grad_norm is {norm}; a smaller learning rate or clipping may help"
                )
            done += 1
            counts.append(tokens)
            parts.append(output["metrics"]["rpg"])
            norms.append(norm)
            rate = engine.optimizer.param_groups[0].get("scheduled_lr", rate)
    return _gather(counts, parts, norms, float(rate), group)


@contextlib.contextmanager
def _update_mode(optimizer: Any) -> Iterator[None]:
    """Schedule-free AdamW takes gradients at other weights than those that are sampled from, evaluated and saved."""
    if not hasattr(optimizer, "eval"):
        yield
        return
    optimizer.train()
    try:
        yield
    finally:
        optimizer.eval()


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
    """(tokens, responses with a token) of the whole mini-batch, on all workers; rows of padding have none."""
    per_row = torch.stack([row.sum() for row in mini["response_mask"].unbind()])
    counts = torch.stack([per_row.sum(), (per_row > 0).sum()]).long().to(get_device_id())
    torch.distributed.all_reduce(counts, group=group)
    tokens, sequences = counts.tolist()
    return tokens, sequences


def _prepare(
    worker: TrainingWorker,
    mini: TensorDict,
    tokens: int,
    sequences: int,
    optimizer_step: int,
    settings: JobSettings,
) -> None:
    """Set what verl's engine and our loss read besides the tensors."""
    engine, model = worker.engine_config, worker.model_config
    tu.assign_non_tensor(
        mini,
        mini_batch_tokens=tokens,
        mini_batch_sequences=sequences,
        optimizer_step=optimizer_step,
        use_remove_padding=model.get("use_remove_padding", False),
        use_dynamic_bsz=engine.use_dynamic_bsz,
        max_token_len_per_gpu=engine.max_token_len_per_gpu,
        micro_batch_size_per_gpu=engine.micro_batch_size_per_gpu,
        use_fused_kernels=engine.use_fused_kernels,
        calculate_entropy=settings.entropy_coeff > 0,
        global_token_num=NonTensorData(None),
    )


def _gather(
    counts: list[int], parts: list[list[Part]], norms: list[float], rate: float, group: Any
) -> Updated:
    """Metrics of all workers together."""
    everywhere: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(everywhere, parts, group=group)
    meter, token_kls = Meter(), [0.0] * len(counts)
    for worker in everywhere:
        for step, (tokens, micro_batches) in enumerate(zip(counts, worker, strict=True)):
            for metrics, weight in micro_batches:
                meter.add(metrics, weight)
                token_kls[step] += metrics["kl_policy_to_ref"] * weight / tokens
    if not counts:
        return Updated({}, 0, [])
    metrics = meter.means(len(counts)) | {
        "grad_norm": sum(norms) / len(norms),
        "grad_norm_max": max(norms),
        "learning_rate": rate,
    }
    return Updated(metrics, len(counts), token_kls)
