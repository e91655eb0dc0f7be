"""bfloat16 weights to compute with, and the float32 ones behind them that are trained, their masters.

bfloat16 has 8 significant bits: of a weight it keeps no change below a 512th part, and one update of a usual learning rate
is a thousandth of that. So the optimizer updates masters, and the model holds what they round to (Micikevicius et al., 2018,
arXiv 1710.03740, section 3.1). Gradients come in bfloat16, a micro-batch at a time, and are added up in float32.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def halve_weights(model: nn.Module) -> None:
    """Round a model's float32 weights to bfloat16, in place; its buffers (frequencies of positions) stay as they are."""
    for weight in model.parameters():
        weight.data = weight.data.bfloat16()


def keep_masters(model: nn.Module) -> list[Tensor]:
    """:func:`halve_weights`, with the float32 weights that are trained kept and returned.

    From now on a backward pass adds to the masters' gradients, and leaves none with the model's weights.
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [weight.detach().requires_grad_() for weight in trained]
    halve_weights(model)
    for weight, master in zip(trained, masters, strict=True):
        weight.register_post_accumulate_grad_hook(lambda weight, master=master: _hand_over(weight, master))
    return masters


def put_masters(masters: Iterable[Tensor], weights: Iterable[Tensor]) -> None:
    """Round the masters into the model's weights."""
    with torch.no_grad():
        for master, weight in zip(masters, weights, strict=True):
            weight.copy_(master)


def _hand_over(weight: Tensor, master: Tensor) -> None:
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None
