"""The two optimizers of a run behind one interface: update, and switch between the policies they have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rpg.backends.rates import rate_factor
from rpg.config.training import AdamW, ScheduleFreeAdamW


class Optimizer:
    """Wraps torch's AdamW or schedule-free AdamW for a model's parameters.

    Schedule-free AdamW has two policies: gradients are taken at one, the other (an average) is the one to sample
    from, to evaluate and to save. `rollout_mode()` puts the averaged weights into the model and `update_mode()` the
    others; with plain AdamW both do nothing. A new wrapper is in rollout mode.
    """

    def __init__(self, model: nn.Module, settings: AdamW | ScheduleFreeAdamW, total: int = 0):
        """`total` optimizer steps are to come in all, where the rate is to fall until then."""
        self.settings, self.total = settings, total
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        common: dict[str, Any] = {
            "lr": settings.learning_rate,
            "betas": settings.betas,
            "weight_decay": settings.weight_decay,
        }
        self.averaged = isinstance(settings, ScheduleFreeAdamW)
        if self.averaged:
            import schedulefree

            self._inner = schedulefree.AdamWScheduleFree(
                self.parameters, warmup_steps=settings.warmup_steps, **common
            )
        else:
            self._inner = torch.optim.AdamW(self.parameters, fused=True, **common)

    def rollout_mode(self) -> None:
        if self.averaged:
            self._inner.eval()

    def update_mode(self) -> None:
        if self.averaged:
            self._inner.train()

    def zero_grad(self) -> None:
        self._inner.zero_grad(set_to_none=True)

    def step(self, optimizer_step: int, max_grad_norm: float | None) -> tuple[float, float]:
        """Update number `optimizer_step` (from 1) with the gradients in place.

        Returns:
            (gradient norm before clipping, learning rate)

        Raises:
            FloatingPointError: the gradient is not finite; nothing is updated.
        """
        grads = [p.grad for p in self.parameters if p.grad is not None]
        if not grads:  # no micro-batch had a gradient; moments and weight decay go on
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            grads = [p.grad for p in self.parameters]
        norm = torch.nn.utils.get_total_norm(grads)
        value = float(norm)
        if not value - value == 0.0:
            raise FloatingPointError(f"grad_norm is {value}")
        if max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, max_grad_norm, norm)
        rate = self.settings.learning_rate
        if not self.averaged:
            settings = self.settings
            rate *= rate_factor(settings.schedule, settings.warmup_steps, optimizer_step, self.total)
            for group in self._inner.param_groups:
                group["lr"] = rate
        self._inner.step()
        if self.averaged:
            rate = float(self._inner.param_groups[0]["scheduled_lr"])
        return value, rate

    def tensors(self) -> dict[str, Tensor]:
        """State tensors by `<parameter>/<what>`, for a safetensors file."""
        state = self._inner.state
        return {
            f"{name}/{key}": value
            for name, parameter in zip(self.names, self.parameters, strict=True)
            for key, value in state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }

    def numbers(self) -> dict[str, Any]:
        """State that is not tensors (counters of the schedule-free average), for a JSON file."""
        group = self._inner.param_groups[0]
        return {key: value for key, value in group.items() if isinstance(value, int | float | bool)}

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Put back what :meth:`tensors` and :meth:`numbers` gave.

        Raises:
            KeyError: the state belongs to another model or optimizer.
        """
        known = dict(zip(self.names, self.parameters, strict=True))
        for name, value in tensors.items():
            parameter, _, key = name.rpartition("/")
            owner = known[parameter]
            self._inner.state[owner][key] = value.to(owner.device)
        for key in self.numbers():
            self._inner.param_groups[0][key] = numbers[key]
