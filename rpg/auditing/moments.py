"""The exact mean and variance of a loss's gradient under the sampling policy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rpg.auditing.worlds import World
from rpg.losses.policy_loss import LossOutput

LossFunction = Callable[
    ..., Tensor | LossOutput
]  # called with the keyword arguments of `inputs_of` below
Inputs = dict[str, Any]
Size = Callable[[Tensor], int | Tensor]  # of a mask: responses, or tokens


@dataclass(frozen=True)
class Moments:
    """mean (S * V,): E[step], how gradient descent moves the logits; variance: trace of its
    covariance."""

    mean: Tensor
    variance: float


DRAWS = 4  # calls that are averaged for a peer's loss that draws random numbers (Clip-Cov, KL-Cov)


@dataclass(frozen=True)
class Averaged:
    """A loss that draws random numbers; its gradient is averaged over `draws` calls."""

    loss: LossFunction
    draws: int

    def __call__(self, **inputs: Any) -> Any:
        return self.loss(**inputs)


def draws_random_numbers(loss: LossFunction, inputs: Inputs) -> bool:
    """Whether two calls with the same inputs have different gradients."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return not torch.equal(_slopes(loss, inputs), _slopes(loss, inputs))


def rounded_to(loss: LossFunction, inputs: Inputs) -> torch.dtype | None:
    """The half precision that a loss computes in, by its gradient: every entry is a number of that
    type. None for float32 and float64."""
    slopes = _slopes(loss, inputs)
    if not slopes.any():
        return None
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(slopes, slopes.to(dtype).to(slopes.dtype)):
            return dtype
    return None


def spread_of_draws(loss: Averaged, inputs: Inputs) -> float:
    """The standard error of the averaged gradient, relative to it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        each = torch.stack([_slopes(loss.loss, inputs).flatten() for _ in range(loss.draws)])
    error = (each.var(0).sum() / loss.draws).sqrt()
    return float(error / each.mean(0).norm())


def inputs_of(world: World, logits: Tensor, ref: Tensor, advantages: Tensor) -> Inputs:
    """What a loss is called with for all responses of a world; ref_log_prob is None where the
    reference is `old`."""
    inputs = {"log_prob": world.log_probs(logits), "old_log_prob": world.log_probs(world.old)}
    ref_log_prob = None if ref is world.old else world.log_probs(ref)
    return inputs | {
        "advantages": advantages,
        "response_mask": world.mask,
        "ref_log_prob": ref_log_prob,
    }


def batch_slopes(
    loss: LossFunction, inputs: Inputs, rows: Tensor | None = None, size: Size = len
) -> Tensor:
    """d loss / d log_prob (B, T) of the batch of all responses, or of `rows` (B,), times the `size`
    of its mask."""
    if rows is not None:
        inputs = {name: None if value is None else value[rows] for name, value in inputs.items()}
    if isinstance(loss, Averaged):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            draws = [_slopes(loss.loss, inputs) for _ in range(loss.draws)]
        slopes = torch.stack(draws).mean(0)
    else:
        slopes = _slopes(loss, inputs)
    return slopes * size(inputs["response_mask"])


def _slopes(loss: LossFunction, inputs: Inputs) -> Tensor:
    log_prob: Tensor = inputs["log_prob"].detach().requires_grad_()
    result = loss(**{**inputs, "log_prob": log_prob})
    scalar = result if isinstance(result, Tensor) else result.loss
    return torch.autograd.grad(scalar, log_prob)[0]


def is_coupled(loss: LossFunction, inputs: Inputs) -> bool:
    """Whether the responses of a batch affect each other otherwise than through a sum or a mean
    over responses or tokens.

    If not, the slopes of each response are the same in a permuted batch, a doubled one, in parts,
    and where responses are there once, twice, three times.
    """
    everyone = torch.arange(len(inputs["log_prob"]))
    permuted = torch.randperm(len(everyone), generator=torch.Generator().manual_seed(0))
    mixed = everyone.repeat_interleave(everyone % 3 + 1)
    batches = [permuted, everyone.repeat(2), everyone[::2], everyone[1::2], mixed]
    if isinstance(loss, Averaged):
        loss = Averaged(loss.loss, max(1, loss.draws // 8))
    tolerance = _rounding(loss, inputs)
    alone: Size = _once
    whole = batch_slopes(loss, inputs, size=alone)
    slopes = [batch_slopes(loss, inputs, rows, alone) for rows in batches]
    mask = inputs["response_mask"]

    def separable(size: Size) -> bool:
        expected = whole * size(mask)
        pairs = zip(slopes, batches, strict=True)
        return all(
            (slope * size(mask[rows]) - expected[rows]).norm() <= tolerance * expected.norm()
            for slope, rows in pairs
        )

    return not (separable(len) or separable(torch.sum) or separable(_once))


def _once(_mask: Tensor) -> int:
    return 1


def _rounding(loss: LossFunction, inputs: Inputs) -> float:
    """How far gradients of one response may be apart that are the same but for rounding and for
    random numbers, relative to all of them."""
    if isinstance(loss, Averaged):
        return 6 * spread_of_draws(loss, inputs)
    dtype = rounded_to(loss, inputs)
    if dtype:
        return 8 * torch.finfo(dtype).eps
    return 1e-6  # float32


def coupled_moments(
    loss: LossFunction, world: World, logits: Tensor, inputs: Inputs, size: int, scale: float = 1.0
) -> Moments:
    """The moments of the step of a batch of `size` responses, over all batches that `old` can
    draw."""
    weights = world.sampled()
    scores = _scores(world, logits)
    mean = torch.zeros(scores.shape[-1], dtype=scores.dtype)
    square = 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        repeated = torch.equal(batch_slopes(loss, inputs), batch_slopes(loss, inputs))
        draws = 1 if repeated else DRAWS
        for rows in torch.cartesian_prod(*[torch.arange(len(weights))] * size):
            weight = weights[rows].prod() / draws
            for _ in range(draws):
                slope = batch_slopes(loss, inputs, rows) / size
                step = -scale * torch.einsum("bt,btk->k", slope, scores[rows])
                mean += weight * step
                square += (weight * step @ step).item()
    return Moments(mean, square - (mean @ mean).item())


def moments(world: World, logits: Tensor, slope: Tensor, beside: Tensor | float = 0.0) -> Moments:
    """Push slopes (N, T) through the scores of the tabular policy, add the steps `beside` (N, S *
    V), and average over responses of `old`.
    """
    steps = beside - torch.einsum("nt,ntk->nk", slope, _scores(world, logits))
    weights = world.sampled()
    mean = weights @ steps
    return Moments(mean, (weights @ (steps * steps).sum(-1) - mean @ mean).item())


def _scores(world: World, logits: Tensor) -> Tensor:
    """d log_prob / d logits of every token of every response, (N, T, S * V)."""
    states, vocabulary = logits.shape
    probability = torch.softmax(logits, -1)
    scores = torch.zeros(*world.tokens.shape, states, vocabulary, dtype=logits.dtype)
    rows, columns = world.mask.nonzero(as_tuple=True)
    state = world.states[rows, columns]
    scores[rows, columns, state] = -probability[state]
    scores[rows, columns, state, world.tokens[rows, columns]] += 1
    return scores.flatten(2)


def relative(estimate: Tensor, exact: Tensor) -> float:
    """|estimate - exact| / |exact|; against a zero gradient only zero is right."""
    error = float((estimate - exact).norm())
    size = float(exact.norm())
    if size > 1e-14:
        return error / size
    return 0.0 if error < 1e-14 else float("inf")
