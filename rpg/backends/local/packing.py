"""Prompts and responses packed into one row of tokens, each prompt once for all responses of its group.

    tokens   prompt 0 | prompt 1 | ... | response 0 | response 1 | ...      (a response without its last token,
                                                                              which predicts nothing)

Only attention needs padded rows; they come in blocks of similar length. Prompts attend to themselves, a response to
its prompt and to itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.backends.local.batch import Batch

_MASKED = -1e9
_SHORTER = 0.7
"""A response shorter than this fraction of its block's longest begins the next block."""


@dataclass(frozen=True)
class Block:
    """Padded rows for attention. `mask` (rows, 1, queries, keys) is 0 where a query sees a key."""

    mask: Tensor
    query_slice: slice
    key_slice: slice


@dataclass(frozen=True)
class Packing:
    """M packed tokens, and where everything is in them. All index tensors are int64."""

    ids: Tensor
    """(M,) token ids."""
    positions: Tensor
    """(M,) position of each within its own sequence, prompt included."""
    blocks: list[Block]
    queries: Tensor
    """(Q,) packed token of each padded query slot of all blocks (token 0 where the slot is padding)."""
    keys: Tensor
    """The same for key slots."""
    slots: Tensor
    """(M,) the query slot of each packed token."""
    mask: Tensor
    """(N, T) bool: response tokens."""
    predictors: Tensor
    """Packed tokens that predict a response token."""
    predictor_of: Tensor
    """For each response token (row-major order of `mask`) an index into `predictors`."""

    @classmethod
    def of(cls, batch: Batch) -> Packing:
        """Pack a batch."""
        device = batch.tokens.device
        prompt_sizes = torch.tensor([len(p) for p in batch.prompts], device=device)
        own = batch.lengths - 1
        prompt_starts = prompt_sizes.cumsum(0) - prompt_sizes
        starts = own.cumsum(0) - own + prompt_sizes.sum()
        ids = [token for prompt in batch.prompts for token in prompt]
        column = torch.arange(batch.tokens.shape[1], device=device)
        within = column < own[:, None]
        ids = torch.cat([torch.tensor(ids, device=device), batch.tokens[within]])
        before = prompt_sizes[batch.prompt_of]
        positions = torch.cat([_counting(prompt_sizes), (column + before[:, None])[within]])

        none = torch.zeros_like(prompt_sizes)
        parts = [_block(none, none, prompt_starts, prompt_sizes)]
        for rows in _similar(own):
            prompts = batch.prompt_of[rows]
            parts.append(_block(prompt_starts[prompts], prompt_sizes[prompts], starts[rows], own[rows]))
        blocks, query_at, key_at = [], 0, 0
        for mask, queries, _, keys in parts:
            blocks.append(
                Block(mask, slice(query_at, query_at + queries.numel()), slice(key_at, key_at + keys.numel()))
            )
            query_at, key_at = query_at + queries.numel(), key_at + keys.numel()
        queries = torch.cat([queries.flatten() for _, queries, _, _ in parts])
        real = torch.cat([real.flatten() for _, _, real, _ in parts]).nonzero()[:, 0]
        slots = torch.empty_like(ids).index_copy_(0, queries[real], real)

        mask = batch.mask
        first = (prompt_starts + prompt_sizes - 1)[batch.prompt_of]
        source = torch.where(column == 0, first[:, None], (starts - 1)[:, None] + column)[mask]
        predictors, predictor_of = torch.unique(source, return_inverse=True)
        keys = torch.cat([keys.flatten() for _, _, _, keys in parts])
        return cls(ids, positions, blocks, queries, keys, slots, mask, predictors, predictor_of)


def _counting(sizes: Tensor) -> Tensor:
    """0 .. sizes[0] - 1, 0 .. sizes[1] - 1, ..."""
    ends = sizes.cumsum(0)
    return torch.arange(int(ends[-1]), device=sizes.device) - (ends - sizes).repeat_interleave(sizes)


def _similar(own: Tensor) -> list[Tensor]:
    """Rows with at least one token, longest first, cut where lengths fall off."""
    order = own.argsort(descending=True, stable=True)
    lengths = own[order].tolist()
    groups, longest = [], None
    for row, length in zip(order.tolist(), lengths, strict=True):
        if not length:
            break
        if longest is None or length < _SHORTER * longest:
            groups.append([])
            longest = length
        groups[-1].append(row)
    return [torch.tensor(group, device=own.device) for group in groups]


def _block(before: Tensor, before_size: Tensor, start: Tensor, size: Tensor):
    """(mask, queries, real, keys) of padded rows that see `before` whole and themselves causally."""
    device = start.device
    prefix = torch.arange(int(before_size.max()), device=device)
    column = torch.arange(int(size.max()), device=device)
    real = column < size[:, None]
    queries = torch.where(real, start[:, None] + column, 0)
    prefix_real = prefix < before_size[:, None]
    keys = torch.cat([torch.where(prefix_real, before[:, None] + prefix, 0), queries], 1)
    causal = column[:, None] >= column  # its diagonal keeps every query, padding too, from seeing nothing
    seen = torch.cat(
        [
            prefix_real[:, None, :].expand(-1, len(column), -1),
            causal.expand(len(size), -1, -1),
        ],
        2,
    )
    return torch.where(seen, 0.0, _MASKED)[:, None], queries, real, keys
