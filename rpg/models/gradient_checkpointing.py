"""Gradient checkpointing: a layer's activations are recomputed in the backward pass. The gradients are the same bits.

Only a layer's input is saved. Its forward pass is deterministic and runs again with the same kernels on the same shapes,
so the backward pass sees the same numbers. Smaller micro-batches save memory too, but their sums round differently.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from rpg.models.model_loading import ModelError

_REPLACED = (DynamicLayer, DynamicSlidingWindowLayer)
"""Cache layers that replace their tensors by new ones, so that the old ones are still available."""


def recomputed(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """run(*args, **kwargs), of which autograd saves only the tensors in `args`."""
    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


@contextmanager
def layers_recomputed(model: nn.Module) -> Iterator[None]:
    """In this context the layers of a transformers model run by :func:`recomputed`; the backward pass may come later.

    The switch of transformers itself works only in training mode and without a cache. Raises ModelError: the model does
    not mark its layers.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"backend.gradient_checkpointing: {type(model).__name__} does not mark its layers; leave it false, and set "
            "backend.offload: true if memory is short"
        )
    originals = [layer.__dict__.get("forward") for layer in layers]
    for layer in layers:
        layer.forward = partial(_run, layer.forward)
    try:
        yield
    finally:
        for layer, original in zip(layers, originals, strict=True):
            if original is None:
                del layer.forward
            else:
                layer.forward = original


_PLACE = object()
"""Stands for the cache among a layer's arguments."""


def _run(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a layer; if it appends to a cache, it appends to a copy of the earlier cache when it runs again."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    cache = next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)
    if cache is None:
        return recomputed(forward, *args, **kwargs)
    past = _Past(cache)

    def again(*args: Any, **kwargs: Any) -> Any:
        current = past.cache()
        put = {name: current if value is _PLACE else value for name, value in kwargs.items()}
        return forward(*(current if value is _PLACE else value for value in args), **put)

    result = recomputed(
        again,
        *(_PLACE if value is cache else value for value in args),
        **{name: _PLACE if value is cache else value for name, value in kwargs.items()},
    )
    past.settle()
    return result


class _Past:
    """A cache as it was before a layer ran; holds no references to what the layer did not change. Raises ModelError: the
    cache is changed in place.
    """

    def __init__(self, cache: Cache):
        if other := next((part for part in cache.layers if type(part) not in _REPLACED), None):
            raise ModelError(
                f"backend.gradient_checkpointing: a model with a {type(other).__name__} in its cache cannot compute "
                "its layers again; leave it false, and set backend.offload: true if memory is short"
            )
        self._now: Cache | None = cache
        self._parts: list[Any] = [copy.copy(part) for part in cache.layers]
        self._shell = copy.copy(cache)
        self._shell.layers = []

    def cache(self) -> Cache:
        """The cache itself while the layer runs for the first time; afterwards a copy of the earlier cache."""
        if self._now is not None:
            return self._now
        earlier = copy.copy(self._shell)
        earlier.layers = [copy.copy(part) for part in self._parts]
        return earlier

    def settle(self) -> None:
        """To be called when the layer has run for the first time."""
        assert self._now is not None
        after = self._now.layers
        self._parts = [
            part if part.keys is not now.keys else None for part, now in zip(self._parts, after, strict=False)
        ]
        self._now = None
