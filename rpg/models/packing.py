"""Sequence packing with prefix sharing: prompts and responses as one row of tokens, every common
prefix only once.

    tokens   prompt 0 | prompt 1 | ... | new tokens of path 0 | new tokens of path 1 | ...

The prefix that all prompts have in common (of a chat template, of examples) is their *stem*; it is
packed with the first prompt. A *path* is a distinct response without its last token (which predicts
nothing). The paths of a prompt form a prefix tree: when sorted, each shares its first tokens with
the one before it, and only the rest is new. So a prompt is computed once for its group, equal
responses are computed once, and so are common prefixes of different ones. Values and gradients are
those of computing every response by itself.

Only attention needs padded rows; they are grouped into blocks of similar length.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rpg.models.decoding import Batch

_MASKED = -1e9
_SHORTER = 0.7
"""A path with fewer new tokens than this fraction of its block's longest path starts the next
block."""
_STEM = 8
"""Shorter common prefixes of the prompts are not shared."""
_TILE = 192
"""Long rows are cut into tiles of this many queries: keys after a tile are left out, which saves
half of them overall. From 192 queries on, torch's kernel works in steps of 64 queries instead of
32."""
_AHEAD = 16
"""Rows that start at most this many tokens apart are padded to start together: if they have the
same prompt, they then share one mask."""
_CELLS = 2**23
"""Bound of a block's queries times keys, and so of its mask (but a block has at least one row)."""


@dataclass(frozen=True)
class Block:
    """Padded rows for attention. `mask` (rows or 1, 1, queries, keys) is 0 where a query sees a
    key."""

    mask: Tensor
    queries: Tensor
    """(rows, queries) packed token of each query slot (token 0 where the slot is padding)."""
    keys: Tensor
    """(rows, keys) the same for key slots."""
    real: Tensor
    """(rows, queries) bool: False on padding."""


@dataclass(frozen=True)
class Packing:
    """M packed tokens and the indices into them, which are int64."""

    ids: Tensor
    """(M,) token ids."""
    positions: Tensor
    """(M,) position of each token within its sequence, prompt included."""
    blocks: list[Block]
    slots: Tensor
    """(M,) the query slot of each packed token, counted across blocks."""
    queries: Tensor
    """The packed token of each query slot, across blocks; token 0 where the slot is padding."""
    keys: Tensor
    """The same for key slots."""
    predictors: Tensor
    """Packed tokens that predict a response token."""
    predictor_of: Tensor
    """For each response token (row-major order of the batch's mask) an index into `predictors`."""

    @classmethod
    def of(cls, batch: Batch) -> Self:
        device = batch.tokens.device
        prompts = _PackedPrompts.of(batch)
        paths = _Paths.of(batch, len(prompts.ids))
        blocks = list(_prompt_blocks(prompts))
        blocks += _path_blocks(prompts, paths)
        packed_ids = torch.cat([prompts.ids, paths.tokens[paths.new]])
        columns = torch.arange(paths.new.shape[1], device=device)
        behind = prompts.sizes[paths.prompt][:, None] + columns
        positions = torch.cat([prompts.positions, behind[paths.new]])

        queries = torch.cat([block.queries.flatten() for block in blocks])
        keys = torch.cat([block.keys.flatten() for block in blocks])
        real = torch.cat([block.real.flatten() for block in blocks]).nonzero()[:, 0]
        slots = torch.empty_like(packed_ids).index_copy_(0, queries[real], real)

        # The token before each response token: the prompt's last one, or one of its path.
        last = prompts.nodes.gather(1, prompts.sizes[:, None] - 1)[batch.prompt_of]
        before = torch.cat([last, paths.nodes[paths.path_of]], 1)[batch.mask]
        predictors, predictor_of = torch.unique(before, return_inverse=True)
        return cls(
            ids=packed_ids,
            positions=positions,
            blocks=blocks,
            slots=slots,
            queries=queries,
            keys=keys,
            predictors=predictors,
            predictor_of=predictor_of,
        )


@dataclass(frozen=True)
class _PackedPrompts:
    """P prompts of at most L tokens; what all begin with is packed for the first one only."""

    ids: Tensor
    """Packed token ids, and"""
    positions: Tensor
    """the position of each within its prompt."""
    stem: int
    """Tokens that the first prompt has for all."""
    sizes: Tensor
    """(P,) tokens of each prompt."""
    left_out: Tensor
    """(P,) how many of these are not packed for it: 0 of the first prompt, else the stem."""
    nodes: Tensor
    """(P, L) index of every token of the prompt in the packed row; 0 on padding."""

    @classmethod
    def of(cls, batch: Batch) -> Self:
        device = batch.tokens.device
        sizes = torch.tensor([len(p) for p in batch.prompts], device=device)
        stem = _stem(batch.prompts)
        left_out = torch.full_like(sizes, stem)
        left_out[0] = 0
        ids = list(batch.prompts[0])
        for prompt in batch.prompts[1:]:
            ids += prompt[stem:]
        column = torch.arange(int(sizes.max()), device=device)
        within = column < sizes[:, None]
        packed = within & (column >= left_out[:, None])
        new = sizes - left_out
        begins = (new.cumsum(0) - new - left_out)[:, None]
        nodes = torch.where(packed, begins + column, torch.where(within, column, 0))
        positions = column.expand(packed.shape)[packed]
        return cls(
            ids=torch.tensor(ids, device=device),
            positions=positions,
            stem=stem,
            sizes=sizes,
            left_out=left_out,
            nodes=nodes,
        )


def _prompt_blocks(prompts: _PackedPrompts) -> list[Block]:
    """Attention within the prompts; the first one is apart if the others continue it."""
    blocks: list[Block] = []
    width = prompts.nodes.shape[1]
    numbers = torch.arange(len(prompts.sizes), device=prompts.sizes.device)
    parts = numbers.split([1, len(numbers) - 1]) if prompts.stem else [numbers]
    for part in parts:
        for rows in _split(part, _tile(width) * width):
            nodes = prompts.nodes[rows]
            sizes = prompts.sizes[rows]
            nothing = torch.zeros_like(sizes)
            blocks += _tiles(nodes[:, :0], nothing, nodes, prompts.left_out[rows], sizes)
    return blocks


def _path_blocks(prompts: _PackedPrompts, paths: "_Paths") -> list[Block]:
    """Attention of the responses to their prompts and to themselves."""
    blocks: list[Block] = []
    widest = prompts.nodes.shape[1] + paths.nodes.shape[1]
    for rows in _similar(paths.size - paths.shared, widest):
        prompt = paths.prompt[rows]
        sizes = prompts.sizes[prompt]
        nodes = prompts.nodes[prompt, : int(sizes.max())]
        path = paths.nodes[rows, : int(paths.size[rows].max())]
        blocks += _tiles(nodes, sizes, path, paths.shared[rows], paths.size[rows])
    return blocks


def _stem(prompts: list[list[int]]) -> int:
    """The length of the prefix that all prompts share; 0 if it is too short."""
    if len(prompts) < 2:
        return 0
    first = min(prompts)
    last = max(prompts)  # in this order, all others share what these two share
    length = 0
    while length < len(first) and first[length] == last[length]:
        length += 1
    return length if length >= _STEM else 0


@dataclass(frozen=True)
class _Paths:
    """U distinct responses without their last tokens, sorted by prompt and tokens; W = T - 1
    tokens."""

    prompt: Tensor
    """(U,) index of the prompt."""
    tokens: Tensor
    """(U, W) token ids."""
    size: Tensor
    """(U,) tokens of the path."""
    shared: Tensor
    """(U,) how many of these it shares with earlier paths."""
    new: Tensor
    """(U, W) bool: tokens that are packed for this path."""
    nodes: Tensor
    """(U, W) index of every token of the path in the packed row."""
    path_of: Tensor
    """(N,) the path of each response."""

    @classmethod
    def of(cls, batch: Batch, first_node: int) -> Self:
        device = batch.tokens.device
        column = torch.arange(batch.tokens.shape[1] - 1, device=device)

        # A row for each distinct response: its prompt, its tokens, and -1 behind them.
        inside = column < (batch.lengths - 1)[:, None]
        responses = torch.where(inside, batch.tokens[:, :-1], -1)
        table = torch.cat([batch.prompt_of[:, None], responses], 1)
        table, path_of = torch.unique(table, dim=0, return_inverse=True)
        prompt = table[:, 0]
        tokens = table[:, 1:]
        size = (tokens >= 0).sum(-1)

        # A path sorts before those that it is a prefix of, and -1 never equals a token that
        # follows: what it shares with earlier paths, it shares with the one before it.
        same = (table[1:] == table[:-1]) & (table[1:] >= 0)
        columns_alike = same.long().cumprod(-1).sum(-1)
        tokens_alike = (columns_alike - 1).clamp(min=0)  # the first column is the prompt
        shared = torch.cat([tokens_alike.new_zeros(1), tokens_alike])

        # New tokens get the next free nodes, path by path.
        is_own = column >= shared[:, None]
        new = is_own & (column < size[:, None])
        number = (new.flatten().cumsum(0) - 1).view(new.shape) + first_node

        # Token t of path i was packed for the last path up to i that does not share it.
        row = torch.arange(len(size), device=device)[:, None].expand(new.shape)
        owner = torch.where(is_own, row, 0).cummax(0).values
        nodes = number.gather(0, owner) if len(column) else number
        return cls(
            prompt=prompt,
            tokens=tokens,
            size=size,
            shared=shared,
            new=new,
            nodes=nodes,
            path_of=path_of,
        )


def _similar(new: Tensor, keys: int) -> list[Tensor]:
    """Paths with new tokens in groups of similar numbers of them, most first; rows have up to
    `keys` keys."""
    descending, order = new.sort(descending=True, stable=True)
    counts: list[int] = descending.tolist()
    total = len(counts) - counts.count(0)
    cuts = [0]
    for place in range(total):
        if counts[place] < _SHORTER * counts[cuts[-1]]:
            cuts.append(place)
    ends = cuts[1:]
    ends.append(total)
    parts: list[Tensor] = []
    for start, end in zip(cuts, ends, strict=True):
        if start < end:
            parts += _split(order[start:end], _tile(counts[start]) * keys)
    return parts


def _split(rows: Tensor, cells: int) -> tuple[Tensor, ...]:
    """`rows` of `cells` cells each, in parts of at most _CELLS."""
    parts: tuple[Tensor, ...] = rows.split(max(1, _CELLS // max(cells, 1)))
    return parts


def _tile(queries: int) -> int:
    """Queries per tile of rows with this number of queries."""
    return queries if queries <= 2 * _TILE else _TILE


def _tiles(
    before: Tensor, before_size: Tensor, path: Tensor, shared: Tensor, size: Tensor
) -> list[Block]:
    """:func:`_block`, cut into tiles of queries."""
    queries = int((size - shared).max())
    begin = shared
    tile = _tile(queries)
    if tile < queries and int(shared.max() - shared.min()) <= _AHEAD:
        begin = shared.min().expand_as(shared)
        queries = int((size - begin).max())
    furthest = int(begin.max())
    blocks = []
    for start in range(0, queries, max(tile, 1)):
        end = torch.minimum(size, begin + start + tile)
        seen = path[:, : furthest + start + tile]
        blocks.append(_block(before, before_size, seen, begin + start, shared, end))
    return blocks


def _block(
    before: Tensor, before_size: Tensor, path: Tensor, begin: Tensor, shared: Tensor, size: Tensor
) -> Block:
    """Rows that attend to all of `before` and causally to their path. Queries are the path's tokens
    from `begin` on; those that are shared with an earlier row count as padding.
    """
    device = path.device
    offset = torch.arange(int((size - begin).max()), device=device)
    at = begin[:, None] + offset  # (rows, queries) place of each query in its path
    real = (at >= shared[:, None]) & (at < size[:, None])
    queries = torch.where(real, path.gather(1, at.clamp(max=path.shape[1] - 1)), 0)
    if bool((begin == begin[0]).all() & (before_size == before_size[0]).all()):
        # One mask for all.
        at = at[:1]
        before_size = before_size[:1]
    # Every query sees its path up to the place of the first query; only from there on a mask is
    # needed.
    width = before.shape[1]
    common = min(int(begin.min()) + 1, path.shape[1])
    mask = torch.zeros(len(at), len(offset), width + path.shape[1], device=device)
    unseen = torch.arange(width, device=device) >= before_size[:, None]
    mask[..., :width].masked_fill_(unseen[:, None], _MASKED)
    # Padding queries see the beginning of their row, too: a softmax over nothing is NaN.
    behind = torch.arange(common, path.shape[1], device=device) > at[:, :, None]
    mask[..., width + common :].masked_fill_(behind, _MASKED)
    return Block(mask[:, None], queries, torch.cat([before, path], 1), real)
