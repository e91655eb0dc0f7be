"""verl's passes without flash attention, where padding is computed, too: micro-batches bounded by their padded size, and
log-probabilities of many tokens at a time.

verl counts the real tokens of a micro-batch (verl/utils/seqlen_balancing.py:376) and pads its rows to the longest. Its
log-probabilities are then a Python loop over tokens (verl/utils/torch_functional.py:173), in the precision of the logits.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils import torch_functional
from verl.workers.engine import utils as engine_utils

_NUMBERS = 2**24
"""Numbers of a part of the logits that is in float32 at a time: 64 MiB."""


def install() -> None:
    """In this process, where flash attention is not installed."""
    if importlib.util.find_spec("flash_attn") is None:
        engine_utils.rearrange_micro_batches = bounded(engine_utils.rearrange_micro_batches)
        torch_functional.logprobs_from_logits_v2 = log_probs


def parts(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Rows whose number times their longest length is at most `limit`, as few parts as possible; ascending in each part."""
    result: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if not result or (len(result[-1]) + 1) * lengths[result[-1][0]] > limit:
            result.append([])
        result[-1].append(row)
    return [sorted(rows) for rows in result]


def bounded(verls: Callable[..., tuple[list[TensorDict], list[list[int]]]]) -> Callable[..., Any]:
    """verl's `rearrange_micro_batches`, with padded sizes where padding is computed; every worker makes as many."""

    @wraps(verls)
    def rearranged(
        batch: TensorDict, max_token_len: int, dp_group: Any = None, **options: Any
    ) -> tuple[list[TensorDict], list[list[int]]]:
        packed = tu.get_non_tensor_data(data=batch, key="use_remove_padding", default=True)
        ids = batch["input_ids"]
        if packed or not ids.is_nested or options.get("force_group_size", 1) > 1:
            return verls(batch, max_token_len, dp_group=dp_group, **options)
        lengths = ids.offsets().diff().tolist()
        rows = parts(lengths, int(max_token_len))
        together = options.get("same_micro_num_in_dp", True) and dp_group is not None
        if together and torch.distributed.is_initialized():
            count = torch.tensor(len(rows), device=ids.device)
            torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MAX, group=dp_group)
            while len(rows) < int(count):  # another worker needs more: the largest are halved
                largest = max(rows, key=len)
                if len(largest) == 1:
                    raise ValueError(f"{len(lengths)} rows cannot be {int(count)} micro-batches")
                rows.remove(largest)
                rows += [largest[: len(largest) // 2], largest[len(largest) // 2 :]]
        return [tu.index_select_tensor_dict(batch, index) for index in rows], rows

    return rearranged


class _LogProbs(torch.autograd.Function):
    """log softmax(logits)[label] of rows (M, V), in float32, a part at a time; the gradient has the type of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        step = max(1, _NUMBERS // logits.shape[1])
        normalizer = torch.cat([part.float().logsumexp(-1) for part in logits.split(step)])
        ctx.save_for_backward(logits, labels, normalizer)
        return logits.gather(1, labels[:, None])[:, 0].float() - normalizer

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, labels, normalizer = ctx.saved_tensors
        result, step = torch.empty_like(logits), max(1, _NUMBERS // logits.shape[1])
        columns = (logits, labels, normalizer, grad, result)
        for part, label, norm, g, out in zip(*(x.split(step) for x in columns), strict=True):
            slope = (part.float() - norm[:, None]).exp_().mul_(-g[:, None])
            out.copy_(slope.scatter_add_(1, label[:, None], g[:, None].to(slope.dtype)))
        return result, None


def log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probabilities (...) of `labels` (...) under logits (..., V), in float32."""
    values: Tensor = _LogProbs.apply(logits.flatten(0, -2), labels.flatten())  # type: ignore[no-untyped-call]
    return values.view(labels.shape)
