"""Layers whose activations are computed again in the backward pass instead of being kept: the same gradients to the bit.

What is kept of a layer is its input. Its forward pass is deterministic, and what runs again are the same kernels on the
same shapes, so the backward pass is given what it would have been given. This is what tells it from smaller
micro-batches, whose sums round differently.
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
"""Parts of a cache that put new tensors in the place of old ones, so that the old ones can be had again."""


def recomputed(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """run(*args, **kwargs), of which autograd keeps the tensors in `args`, and nothing within."""
    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


@contextmanager
def layers_recomputed(model: nn.Module) -> Iterator[None]:
    """Within it, the layers of a transformers model are run by :func:`recomputed`; the backward pass may be run later.

    transformers has a switch of its own, which works in training mode only and without a cache.

    Raises:
        ModelError: the model does not say what its layers are.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"backend.gradient_checkpointing: {type(model).__name__} does not mark its layers; leave it false, and set "
            "backend.offload: true where memory is short"
        )
    own = [layer.__dict__.get("forward") for layer in layers]
    for layer in layers:
        layer.forward = partial(_run, layer.forward)
    try:
        yield
    finally:
        for layer, before in zip(layers, own, strict=True):
            if before is None:
                del layer.forward
            else:
                layer.forward = before


_PLACE = object()
"""Stands for the cache among a layer's arguments."""


def _run(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A layer; where it appends to a cache, it appends to one like it when it is run again."""
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
    """A cache as a layer found it; of what the layer did not change, nothing is held.

    Raises:
        ModelError: it is of a kind that is changed in place.
    """

    def __init__(self, cache: Cache):
        if other := next((part for part in cache.layers if type(part) not in _REPLACED), None):
            raise ModelError(
                f"backend.gradient_checkpointing: a model with a {type(other).__name__} in its cache cannot compute "
                "its layers again; leave it false, and set backend.offload: true where memory is short"
            )
        self._now: Cache | None = cache
        self._parts: list[Any] = [copy.copy(part) for part in cache.layers]
        self._shell = copy.copy(cache)
        self._shell.layers = []

    def cache(self) -> Cache:
        """The cache itself while the layer runs for the first time; then one as it was before."""
        if self._now is not None:
            return self._now
        found = copy.copy(self._shell)
        found.layers = [copy.copy(part) for part in self._parts]
        return found

    def settle(self) -> None:
        """The layer has been run."""
        assert self._now is not None
        after = self._now.layers
        self._parts = [
            part if part.keys is not now.keys else None for part, now in zip(self._parts, after, strict=False)
        ]
        self._now = None
