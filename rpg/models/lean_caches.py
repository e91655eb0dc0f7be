"""Key-value caches for lean_decoding.py, and attention over them.

Shapes: P prompts, R rows of the cache, W slots of a prompt, H query heads, K key-value heads, g = H
/ K, D head size.
"""

import torch
from torch import Tensor

_MASKED = -1e9
_ROOM = 64
"""Slots that a cache has at first after its prompts; when they are used up, their number doubles.
"""


class _Cache:
    """Keys and values of all layers, in slots that follow one another.

    Attributes:
        rows: R; at first the number of prompts.
        filled: filled slots, including those of the prompts.
    """

    keys_along = 2
    """The dimension of the slots in a layer's keys; in its values it is 2."""

    def __init__(self, seen: Tensor, max_new_tokens: int, apart: int = 0):
        """`seen` (P, W) is False on the padding, which is to the left of a prompt; the first
        `apart` slots are elsewhere."""
        self.rows, self.filled = seen.shape
        self._apart = apart
        held = self.filled - apart
        self._room = held + min(max_new_tokens, _ROOM)
        self._last = held + max_new_tokens
        self._bias = torch.where(seen, 0.0, _MASKED)[:, None, None]
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def begin(self) -> None:
        """Make room for one more slot, before the layers attend to it."""
        if self.filled - self._apart == self._room:
            self._room = min(2 * self._room, self._last)
            self._move(slice(None))
        self.filled += 1

    def _move(self, rows: Tensor | slice) -> None:
        """Copy the filled slots of these rows to where there is `_room`, one by one: no two caches
        exist at once."""
        for layers, dim in ((self._keys, self.keys_along), (self._values, 2)):
            for index, tensor in enumerate(layers):
                filled = tensor.narrow(dim, 0, self.filled - self._apart)
                layers[index] = _with_room(filled[rows], self._room, dim)


class Whole(_Cache):
    """Every row holds a copy of its prompt. Keys are stored as (R, K, D, slots), the fastest layout
    to multiply."""

    keys_along = 3

    def add(self, k: Tensor, v: Tensor) -> None:
        """Store the prompts' keys and values of the next layer, (P, K, W, D) each."""
        self._keys.append(_with_room(k.transpose(2, 3), self._room, 3))
        self._values.append(_with_room(v, self._room, 2))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v (R, 1, K, D) in the last slot of a layer; attention of q (R, 1, H, D),
        which is scaled already, over its slots, (R, 1, H * D).
        """
        keys = self._keys[layer]
        values = self._values[layer]
        at = self.filled
        keys[..., at - 1] = k[:, 0]
        values[:, :, at - 1] = v[:, 0]
        q = q.view(self.rows, k.shape[2], -1, k.shape[3])  # query heads of a group side by side
        scores = torch.matmul(q, keys[..., :at])
        scores[..., : self._bias.shape[-1]] += self._bias  # only prompts are padded
        o = torch.matmul(scores.softmax(-1).to(values.dtype), values[:, :, :at])
        return o.view(self.rows, 1, -1)

    def select(self, index: Tensor) -> None:
        """Keep these rows; copies only the slots that are filled."""
        self._move(index)
        self._bias = self._bias[index]
        self.rows = len(index)


class Shared(_Cache):
    """The responses to a prompt share its keys and values: these are read once per step for all,
    and never copied.

    For the products with the prompts, rows are arranged as (P, C), where C is the largest number of
    rows of a prompt.
    """

    def __init__(self, seen: Tensor, max_new_tokens: int):
        super().__init__(seen, max_new_tokens, apart=seen.shape[1])
        self._shape = seen.shape
        self._prompts: list[tuple[Tensor, Tensor]] = []
        self._order(torch.arange(self.rows, device=seen.device))

    def _order(self, prompt_of: Tensor) -> None:
        """Row r belongs to prompt prompt_of[r]."""
        counts = prompt_of.bincount(minlength=self._shape[0])
        by_prompt = prompt_of.argsort(stable=True)
        first = (counts.cumsum(0) - counts)[prompt_of[by_prompt]]
        most = int(counts.max())
        self.rows = len(prompt_of)
        self._prompt_of = prompt_of
        self._place = torch.empty_like(prompt_of)
        """(R,) each row's place in (P, C)."""
        rows = torch.arange(self.rows, device=prompt_of.device)
        self._place[by_prompt] = prompt_of[by_prompt] * most + rows - first
        self._row = prompt_of.new_zeros(self._shape[0] * most).index_copy_(0, self._place, rows)
        """(P * C,) the row at each place; 0 if there is none."""

    def add(self, k: Tensor, v: Tensor) -> None:
        self._prompts.append((k.transpose(2, 3).contiguous(), v.contiguous()))
        empty = k.new_empty(self.rows, k.shape[1], self._room, k.shape[3])
        self._keys.append(empty)
        self._values.append(torch.empty_like(empty))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys = self._keys[layer]
        values = self._values[layer]
        at = self.filled - self._shape[1]
        keys[:, :, at - 1] = k[:, 0]
        values[:, :, at - 1] = v[:, 0]
        prompt_keys, prompt_values = self._prompts[layer]
        width = self._shape[1]
        q = q.view(self.rows, k.shape[2], -1, k.shape[3])
        group = q.shape[2]
        # Scores of the prompt's slots, then of the response's: one softmax over both.
        of_prompt = torch.matmul(self._by_prompt(q), prompt_keys).add_(self._bias)
        of_response = torch.matmul(q, keys[:, :, :at].transpose(2, 3))
        scores = torch.cat([self._by_row(of_prompt, group), of_response], -1)
        p = scores.softmax(-1).to(values.dtype)
        o = torch.matmul(p[..., width:], values[:, :, :at])
        from_prompt = torch.matmul(self._by_prompt(p[..., :width]), prompt_values)
        o += self._by_row(from_prompt, group)
        return o.view(self.rows, 1, -1)

    def _by_prompt(self, x: Tensor) -> Tensor:
        """(R, K, g, any) -> (P, K, C * g, any)."""
        placed: Tensor = x[self._row].unflatten(0, (self._shape[0], -1))
        return placed.transpose(1, 2).flatten(2, 3)

    def _by_row(self, x: Tensor, group: int) -> Tensor:
        """(P, K, C * g, any) -> (R, K, g, any)."""
        placed: Tensor = x.unflatten(2, (-1, group))
        return placed.transpose(1, 2).flatten(0, 1)[self._place]

    def select(self, index: Tensor) -> None:
        self._move(index)
        self._order(self._prompt_of[index])


def _with_room(x: Tensor, slots: int, dim: int) -> Tensor:
    """A cache with `slots` slots in dimension `dim`, the first of which hold `x`."""
    shape = list(x.shape)
    shape[dim] = slots
    cache = x.new_empty(shape)
    cache.narrow(dim, 0, x.shape[dim]).copy_(x)
    return cache
