"""All optimizer steps on one rollout, on one data-parallel worker.

verl's own loop differs from the embedded trainer's in what matters here: it counts steps of the learning rate by
rollouts, takes an optimizer step on mini-batches of nothing but padding, and averages metrics over micro-batches of
any size. Gradients are verl's engine's; the order, the counting and the averages are ours.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from tensordict import NonTensorData, TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id
from verl.workers.engine_workers import TrainingWorker

from rpg.backends.learning_rate import rate_factor
from rpg.backends.meter import Meter
from rpg.backends.verl.job_settings import JobSettings


@dataclass(frozen=True)
class Plan:
    """What the driver says about an update; the same on every worker."""

    sizes: list[int]
    """Rows of each mini-batch on this worker; they follow one another in the data."""
    orders: list[list[int]]
    """For each epoch the mini-batches in their order."""
    optimizer_step: int
    """Optimizer steps of the run so far."""
    renew_reference: bool
    """The policy as it is becomes the reference, before it changes."""

    def into(self, extra_info: dict) -> None:
        """Write it where verl takes what goes with a batch."""
        extra_info["rpg_plan"] = asdict(self)

    @classmethod
    def out_of(cls, data: TensorDict) -> Plan:
        return cls(**tu.get(data, "rpg_plan"))


@dataclass(frozen=True)
class Updated:
    """The same on every worker."""

    metrics: dict[str, float]
    """Project names; empty where no mini-batch had a token."""
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
    done, counts, parts, norms, rate = plan.optimizer_step, [], [], [], 0.0
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
def _update_mode(optimizer) -> Iterator[None]:
    """Schedule-free AdamW takes gradients at other weights than it samples, evaluates and saves; others have one mode."""
    if not hasattr(optimizer, "eval"):
        yield
        return
    optimizer.train()
    try:
        yield
    finally:
        optimizer.eval()


def _set_rate(optimizer, settings: JobSettings, step: int) -> float:
    """Warm-up and schedule by optimizer steps; verl's scheduler counts rollouts."""
    if hasattr(optimizer, "eval"):
        return settings.learning_rate  # its own warm-up
    factor = rate_factor(settings.schedule, settings.warmup_steps, step, settings.optimizer_steps)
    rate = settings.learning_rate * factor
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def _counts(mini: TensorDict, group) -> tuple[int, int]:
    """(tokens, responses with a token) of the whole mini-batch; padding rows have none."""
    per_row = torch.stack([row.sum() for row in mini["response_mask"].unbind()])
    counts = torch.stack([per_row.sum(), (per_row > 0).sum()]).long().to(get_device_id())
    torch.distributed.all_reduce(counts, group=group)
    return tuple(counts.tolist())


def _prepare(
    worker: TrainingWorker,
    mini: TensorDict,
    tokens: int,
    sequences: int,
    optimizer_step: int,
    settings: JobSettings,
) -> None:
    """What verl's engine and our loss read beside the tensors."""
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


def _gather(counts: list[int], parts: list[list], norms: list[float], rate: float, group) -> Updated:
    """Metrics of all workers together."""
    everywhere: list = [None] * torch.distributed.get_world_size(group)
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
