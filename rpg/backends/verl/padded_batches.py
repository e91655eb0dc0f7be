"""Micro-batches where sequences are not packed (without flash attention), bounded by what is
computed, padding included.

verl bounds the tokens of a micro-batch (verl/utils/seqlen_balancing.py:376) and then pads its rows
to the longest (verl/workers/engine/fsdp/transformer_impl.py:1290): on responses of usual lengths
that is two to three times the limit. Here rows are sorted by length, so that little is padded. All
losses are sums over tokens, so the order of rows changes nothing.
"""

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id
from verl.workers.engine import utils
from verl.workers.engine.fsdp import transformer_impl

from rpg.models.chunked_log_prob import log_prob_of_logits


def install() -> None:
    """Replace the passes of verl's FSDP engine in this process: the policy's log-probabilities,
    the reference's, and the update."""
    engine: Any = transformer_impl
    engine.prepare_micro_batches = prepare_micro_batches
    engine.logprobs_from_logits = log_prob_of_logits  # verl's is a Python loop over tokens here


def prepare_micro_batches(
    data: TensorDict, dp_group: Any = None, **theirs: Any
) -> tuple[list[TensorDict], list[list[int]] | None]:
    """Micro-batches of at most `max_token_len_per_gpu` tokens with padding, as many on every
    worker, and their rows; verl's where sequences are packed (verl/workers/engine/utils.py:92).
    """
    if tu.get_non_tensor_data(data, "use_remove_padding", default=True):
        batches, rows = utils.prepare_micro_batches(data=data, dp_group=dp_group, **theirs)
        return batches, rows
    lengths = data["input_ids"].offsets().diff().tolist()
    parts = by_padded_size(
        lengths, tu.get_non_tensor_data(data, "max_token_len_per_gpu", default=None)
    )
    most = torch.tensor(len(parts), device=get_device_id())
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX, group=dp_group)
    while len(parts) < most:
        at = max(range(len(parts)), key=lambda index: len(parts[index]))
        half = len(parts[at]) // 2
        parts[at : at + 1] = parts[at][:half], parts[at][half:]
    return [tu.index_select_tensor_dict(data, part) for part in parts], parts


def by_padded_size(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Rows of each micro-batch, the longest first; rows times longest is at most `limit`, in
    tokens."""
    rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    parts = []
    while rows:
        count = max(1, limit // lengths[rows[0]])
        parts.append(rows[:count])
        rows = rows[count:]
    return parts
