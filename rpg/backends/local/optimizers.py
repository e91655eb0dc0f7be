"""The two optimizers of a run behind one interface, and the float32 master weights behind bfloat16
weights.

bfloat16 has 8 significant bits: it loses any change of a weight below 1/512 of it, and one update
at a usual learning rate is a thousandth of that. So the optimizer updates master weights, and the
model holds their rounded values (Micikevicius et al., 2018, arXiv 1710.03740, section 3.1).
Gradients come in bfloat16, one micro-batch at a time, and are summed in float32.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from schedulefree import AdamWScheduleFree
from torch import Tensor, nn

from rpg.backends.learning_rates import rate_factor
from rpg.config.training import AdamW, ScheduleFreeAdamW, has_8bit_moments
from rpg.errors import UserError, install_command
from rpg.models.four_bit import halve_weights


def make_master_weights(model: nn.Module) -> list[Tensor]:
    """:func:`halve_weights`, but the float32 weights that are trained are kept and returned (of
    bfloat16 ones, copies).

    From now on a backward pass adds to the gradients of the master weights and leaves none with the
    model's weights.
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [weight.detach().float().requires_grad_() for weight in trained]
    halve_weights(model)
    for weight, master in zip(trained, masters, strict=True):
        weight.register_post_accumulate_grad_hook(partial(_move_gradient, master))
    return masters


def round_into(weights: Iterable[Tensor], masters: Iterable[Tensor]) -> None:
    """Copy the master weights into the model's, rounded to their type."""
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


Settings = AdamW | ScheduleFreeAdamW
_STEP = "step"
"""In an optimizer's state of a weight: how many updates it got. torch keeps a tensor, bitsandbytes
a number."""


def _groups(masters: Sequence[Tensor], settings: Settings) -> list[dict[str, Any]]:
    """Parameter groups of an optimizer: all weights decay, or (`decay_vectors: false`) matrices
    only."""
    if settings.decay_vectors:
        return [{"params": list(masters), "weight_decay": settings.weight_decay}]
    matrices = [master for master in masters if master.ndim > 1]
    vectors = [master for master in masters if master.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _adamw(groups: list[dict[str, Any]], settings: Settings) -> Any:
    if not has_8bit_moments(settings):
        return torch.optim.AdamW(
            groups, lr=settings.learning_rate, betas=settings.betas, fused=True
        )
    try:
        from bitsandbytes.optim import AdamW8bit  # noqa: PLC0415 (optional)
    except ImportError:
        raise UserError(
            "training.optimizer.moments: 8bit needs the package bitsandbytes, which is not "
            f"installed; install it with: {install_command('quantized')}"
        ) from None
    # Tensors of fewer numbers than a block are kept in float32, as bitsandbytes advises.
    return AdamW8bit(groups, lr=settings.learning_rate, betas=settings.betas)


class Optimizer:
    """Wraps torch's AdamW or schedule-free AdamW for a model's parameters.

    Schedule-free AdamW keeps two sets of weights: gradients are taken at one; the other, an
    average, is sampled from, evaluated and saved. `rollout_mode()` puts the averaged weights into
    the model and `update_mode()` the others; with plain AdamW both do nothing. A new wrapper is in
    rollout mode.

    Attributes:
        parameters: the model's weights that are trained.
        masters: the tensors that are updated and hold the gradients: the same, or float32 ones
            behind bfloat16 weights.
    """

    def __init__(
        self, model: nn.Module, settings: Settings, total: int = 0, half_weights: bool = False
    ):
        """`total` is the number of optimizer steps of the whole run, over which a learning-rate
        schedule falls.

        With `half_weights` the model's weights are bfloat16 from now on.
        """
        self.settings = settings
        self.total = total
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        self.masters = make_master_weights(model) if half_weights else self.parameters
        groups = _groups(self.masters, settings)
        self.averaged = isinstance(settings, ScheduleFreeAdamW)
        self._counts_by_hand = has_8bit_moments(settings)
        if self.averaged:
            self._inner: Any = AdamWScheduleFree(
                groups,
                lr=settings.learning_rate,
                betas=settings.betas,
                warmup_steps=settings.warmup_steps,
            )
        else:
            self._inner = _adamw(groups, settings)

    def rollout_mode(self) -> None:
        if self.averaged:
            self._inner.eval()
            self._round()

    def update_mode(self) -> None:
        if self.averaged:
            self._inner.train()
            self._round()

    def _round(self) -> None:
        if self.masters is not self.parameters:
            round_into(self.parameters, self.masters)

    def zero_grad(self) -> None:
        self._inner.zero_grad(set_to_none=True)

    def step(self, optimizer_step: int, max_grad_norm: float | None) -> tuple[float, float]:
        """Update number `optimizer_step` (from 1) with the gradients in place; (gradient norm
        before clipping, learning rate). Raises FloatingPointError: the gradient is not finite;
        nothing is updated.
        """
        if all(p.grad is None for p in self.masters):  # moments and weight decay go on
            for master in self.masters:
                master.grad = torch.zeros_like(master)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.masters if p.grad is not None])
        value = float(norm)
        if not math.isfinite(value):
            raise FloatingPointError(f"grad_norm is {value}")
        if max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.masters, max_grad_norm, norm)
        settings = self.settings
        rate = settings.learning_rate
        if isinstance(settings, AdamW):
            rate *= rate_factor(
                settings.schedule, settings.warmup_steps, optimizer_step, self.total
            )
            for group in self._inner.param_groups:
                group["lr"] = rate
        self._inner.step()
        self._round()
        if self.averaged:
            rate = float(self._inner.param_groups[0]["scheduled_lr"])
        return value, rate

    def weights(self) -> dict[str, Tensor]:
        """The weights that are trained, in full, by the model's names for them."""
        return {
            name: master.detach() for name, master in zip(self.names, self.masters, strict=True)
        }

    def tensors(self) -> dict[str, Tensor]:
        """State tensors by `<parameter>/<name of the state>`, for a safetensors file."""
        return {
            f"{name}/{key}": value if isinstance(value, Tensor) else torch.tensor(value)
            for name, master in zip(self.names, self.masters, strict=True)
            for key, value in self._inner.state.get(master, {}).items()
            if isinstance(value, Tensor) or (key == _STEP and self._counts_by_hand)
        }

    def numbers(self) -> dict[str, Any]:
        """Numbers of the state (counters of the schedule-free average), for a JSON file; groups
        have the same but for their decay."""
        group = self._inner.param_groups[0]
        return {key: value for key, value in group.items() if isinstance(value, int | float | bool)}

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Restore what :meth:`tensors` and :meth:`numbers` gave. Raises KeyError: the state belongs
        to another model or optimizer.
        """
        masters = dict(zip(self.names, self.masters, strict=True))
        for name, value in tensors.items():
            parameter, _, key = name.rpartition("/")
            master = masters[parameter]
            by_hand = key == _STEP and self._counts_by_hand
            self._inner.state[master][key] = int(value) if by_hand else value.to(master.device)
        for group in self._inner.param_groups:
            decay = group["weight_decay"]
            group.update({key: numbers[key] for key in self.numbers()})
            group["weight_decay"] = decay
