"""Attention of packed sequences: torch's varlen and flex kernels beside the tile loop of
rpg.models.lean."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_check.lines import Line, Size, seconds
from rpg.models.decoding import Batch
from rpg.models.lean import _attend
from rpg.models.packing import Packing

PROMPT = 96
CLOSE = 0.02
"""Largest difference of outputs in bfloat16, whose values are about 1."""


def check(size: Size) -> list[Line]:
    rows = 16 if size.cuda else 3
    length = 4 * size.tokens
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 500, (rows, length + 1), generator=random)
    prompts = torch.randint(3, 500, (rows, PROMPT), generator=random).tolist()
    batch = Batch(
        prompts,
        torch.arange(rows, device=size.device),
        tokens.to(size.device),
        torch.full((rows,), length + 1, device=size.device),
    )
    pack = Packing.of(batch)
    dtype = torch.bfloat16 if size.cuda else torch.float32
    whole = PROMPT + length
    heads = (size.shape.heads, size.shape.kv_heads, size.shape.kv_heads)
    q, k, v = (
        torch.randn(rows, whole, count, size.shape.head_dim, generator=random)
        .to(size.device, dtype)
        .requires_grad_()
        for count in heads
    )

    def tiles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        packed = _attend(_packed(q), _packed(k), _packed(v), pack)
        return _unpacked(packed, rows).unflatten(-1, (heads[0], -1))

    expected = tiles(q, k, v).detach()
    usual = _forward_and_backward(tiles, size, q, k, v)
    lines = [Line("attention, tile loop", f"{1e3 * usual:.2f} ms, both passes", True)]
    for name, make in (("varlen", _varlen), ("flex", _flex)):
        try:
            attend = make(size)
            off = float((attend(q, k, v) - expected).abs().max())
            taken = _forward_and_backward(attend, size, q, k, v)
        except Exception as error:  # noqa: BLE001 (a kernel that this torch or card has not)
            why = (str(error).splitlines() or [type(error).__name__])[0][:100]
            lines.append(Line(f"attention, {name}", f"not here: {why}", None))
            continue
        figure = f"{1e3 * taken:.2f} ms, {usual / taken:.1f} times the tile loop, off by {off:.1g}"
        lines.append(Line(f"attention, {name}", figure, off < CLOSE))
    return lines


def _packed(x: Tensor) -> Tensor:
    """(rows, tokens, heads, D) as the packed row: all prompts, then all responses."""
    return torch.cat([x[:, :PROMPT].flatten(0, 1), x[:, PROMPT:].flatten(0, 1)])


def _unpacked(x: Tensor, rows: int) -> Tensor:
    prompts = x[: rows * PROMPT].unflatten(0, (rows, PROMPT))
    return torch.cat([prompts, x[rows * PROMPT :].unflatten(0, (rows, -1))], 1)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def _forward_and_backward(attend: Attend, size: Size, *inputs: Tensor) -> float:
    def both() -> None:
        torch.autograd.grad(attend(*inputs).sum(), inputs)

    both()
    return seconds(both, size, 5 if size.cuda else 1)


def _varlen(size: Size) -> Attend:
    """torch.nn.attention.varlen, whose keywords differ between torch 2.10 and 2.13."""
    from torch.nn.attention.varlen import varlen_attn

    kernel: Any = varlen_attn
    known = inspect.signature(kernel).parameters
    causal = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    grouped = {"enable_gqa": True} if "enable_gqa" in known else {}

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, whole = q.shape[:2]
        ends = torch.arange(0, (rows + 1) * whole, whole, device=q.device, dtype=torch.int32)
        if not grouped:
            k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
        parts = [x.flatten(0, 1) for x in (q, k, v)]
        out: Tensor = kernel(*parts, ends, ends, whole, whole, **causal, **grouped)
        return out.unflatten(0, (rows, whole))

    return attend


def _flex(size: Size) -> Attend:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if not size.cuda:
        raise RuntimeError("a CPU has no kernel with a backward pass")
    compiled: Any = torch.compile(flex_attention)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        whole = q.shape[1]
        mask = create_block_mask(_causal, None, None, whole, whole, device=q.device)
        parts = [x.transpose(1, 2) for x in (q, k, v)]
        out: Tensor = compiled(*parts, block_mask=mask, enable_gqa=True)
        return out.transpose(1, 2)

    return attend


def _causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key
