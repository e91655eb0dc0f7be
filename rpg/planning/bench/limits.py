"""What this machine can do, in processor seconds: the bare matrix products of a step, in the
fastest layout there is."""

import hashlib
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

_LEAST = 0.2
"""Processor seconds over which a product is repeated."""


def seconds(call: Callable[[], object], least: float = _LEAST) -> float:
    """Processor seconds of a call: the fastest of three or more."""
    best = math.inf
    total = 0.0
    calls = 0
    while calls < 3 or total < least:
        began = time.process_time()
        call()
        used = time.process_time() - began
        best = min(best, used)
        total = total + used
        calls = calls + 1
    return best


def bandwidth() -> float:
    """Bytes per second that are read from memory."""
    values = torch.ones(2**26)
    return values.nbytes / seconds(values.sum)


def seconds_of_a_kept_byte(path: Path) -> float:
    """Processor seconds of a byte that is written to a new file and digested, as every byte of a
    checkpoint is. Writing over the same pages is faster, and no limit."""
    block = bytes(2**24)

    def keep() -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(block)
        hashlib.sha256(block).digest()

    return seconds(keep) / len(block)


def rates(rows: int, inner: int, outer: int) -> dict[str, float | None]:
    """Operations per second of the product (rows, inner) x (inner, outer), by precision; None: not
    available here."""
    a, b = torch.randn(rows, inner), torch.randn(outer, inner)
    x, y = a.bfloat16(), b.bfloat16()

    def eight_bits() -> Callable[[], object]:
        """Weights in int8, packed once; activations are quantized as they come."""
        with warnings.catch_warnings():
            # torch has deprecated its quantized tensors, and no other kernel is as fast.
            warnings.simplefilter("ignore")
            weight = torch.quantize_per_tensor(b, 0.05, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(weight, None)
        return lambda: torch.ops.quantized.linear_dynamic(a, packed, reduce_range=True)

    prepared: dict[str, Callable[[], Callable[[], object]]] = {
        "float32": lambda: lambda: F.linear(a, b),
        "bfloat16": lambda: lambda: F.linear(x, y),
        "int8": eight_bits,
    }
    measured: dict[str, float | None] = {}
    with torch.inference_mode():
        for name, prepare in prepared.items():
            try:
                measured[name] = 2 * rows * inner * outer / seconds(prepare())
            except RuntimeError:
                measured[name] = None
    return measured


def weights(model: PreTrainedModel) -> tuple[list[Tensor], Tensor]:
    """The matrices of a model that every token is multiplied with, and that of its output layer."""
    head = model.get_output_embeddings()
    layers = [
        m.weight.detach() for m in model.modules() if isinstance(m, nn.Linear) and m is not head
    ]
    return layers, head.weight.detach()


def decode_seconds(model: PreTrainedModel, rows: int, dtype: torch.dtype) -> float:
    """One token for each of `rows` responses: every weight read once, in the fastest of three
    layouts."""
    layers, head = weights(model)
    layers = [weight.to(dtype) for weight in layers]
    head = head.to(dtype)
    sizes = {weight.shape[1] for weight in [*layers, head]}
    x = {size: torch.randn(rows, size, dtype=dtype) for size in sizes}
    best = math.inf
    with torch.inference_mode():
        for layout in (_plain, _transposed, _packed):
            calls = [layout(weight, x[weight.shape[1]]) for weight in [*layers, head]]
            best = min(best, seconds(lambda calls=calls: [call() for call in calls]))  # type: ignore[misc]
    return best


def _plain(weight: Tensor, x: Tensor) -> Callable[[], Tensor]:
    return lambda: F.linear(x, weight)


def _transposed(weight: Tensor, x: Tensor) -> Callable[[], Tensor]:
    other = weight.t().contiguous()
    return lambda: torch.mm(x, other)


def _packed(weight: Tensor, x: Tensor) -> Callable[[], Tensor]:
    if not torch.backends.mkldnn.is_available():
        return _plain(weight, x)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


@dataclass(frozen=True)
class Pass:
    """A forward pass, and with `backward` also the two products of each weight in the backward one:
    at most `per_pass` tokens at a time, in arithmetic of type `dtype`."""

    per_pass: int
    dtype: torch.dtype
    backward: bool = False

    def seconds(self, model: PreTrainedModel, tokens: int, outputs: int) -> float:
        """`tokens` through all layers and `outputs` of them through the output layer. Attention is
        left out."""
        layers, head = weights(model)
        total = 0.0
        for shape, count in Counter(tuple(weight.shape) for weight in layers).items():
            total += count * self._products(shape, tokens, self.per_pass)
        return total + self._products(tuple(head.shape), outputs, min(self.per_pass, 1024))

    def _products(self, shape: Sequence[int], tokens: int, per_pass: int) -> float:
        rows = min(tokens, per_pass)
        x = torch.randn(rows, shape[1], dtype=self.dtype)
        weight = torch.randn(*shape, dtype=self.dtype)
        slope = torch.randn(rows, shape[0], dtype=self.dtype)
        with torch.inference_mode():
            used = seconds(lambda: F.linear(x, weight), _LEAST / 4)
            if self.backward:
                used += seconds(lambda: slope @ weight, _LEAST / 4) + seconds(
                    lambda: slope.t() @ x, _LEAST / 4
                )
        return used * tokens / rows
