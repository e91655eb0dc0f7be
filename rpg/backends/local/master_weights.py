"""bfloat16 weights to compute with, and the float32 master weights behind them, which are trained.

bfloat16 has 8 significant bits: it loses any change of a weight below 1/512 of it, and one update at a usual learning rate
is a thousandth of that. So the optimizer updates master weights, and the model holds their rounded values (Micikevicius et
al., 2018, arXiv 1710.03740, section 3.1). Gradients come in bfloat16, one micro-batch at a time, and are summed in float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn


def halve_weights(model: nn.Module) -> None:
    """Round a model's float32 weights to bfloat16, in place; its buffers (frequencies of positions) stay as they are."""
    for weight in model.parameters():
        weight.data = weight.data.bfloat16()


def make_master_weights(model: nn.Module) -> list[Tensor]:
    """:func:`halve_weights`, but the float32 weights that are trained are kept and returned.

    From now on a backward pass adds to the gradients of the master weights and leaves none with the model's weights.
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [weight.detach().requires_grad_() for weight in trained]
    halve_weights(model)
    for weight, master in zip(trained, masters, strict=True):
        weight.register_post_accumulate_grad_hook(partial(_move_gradient, master))
    return masters


def round_into(weights: Iterable[Tensor], masters: Iterable[Tensor]) -> None:
    """Round the master weights into the model's."""
    with torch.no_grad():
        for master, weight in zip(masters, weights, strict=True):
            weight.copy_(master)


def _move_gradient(master: Tensor, weight: Tensor) -> None:
    assert weight.grad is not None
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None
