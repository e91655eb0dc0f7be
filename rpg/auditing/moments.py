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


DRAWS = 4  # calls that are averaged for a loss that draws random numbers (Clip-Cov, KL-Cov)


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
    log_prob: Tensor = inputs["log_prob"].detach().requires_grad_()
    result = loss(**{**inputs, "log_prob": log_prob})
    scalar = result if isinstance(result, Tensor) else result.loss
    return torch.autograd.grad(scalar, log_prob)[0] * size(inputs["response_mask"])


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

    def separable(size: Size) -> bool:
        whole = batch_slopes(loss, inputs, size=size)
        slopes = (batch_slopes(loss, inputs, rows, size) for rows in batches)
        pairs = zip(slopes, batches, strict=True)
        return all(
            (slope - whole[rows]).norm() <= 1e-6 * whole.norm() for slope, rows in pairs
        )  # (float32)

    return not (separable(len) or separable(torch.sum) or separable(lambda _mask: 1))


def coupled_moments(
    loss: LossFunction, world: World, logits: Tensor, inputs: Inputs, size: int, scale: float = 1.0
) -> Moments:
    """The moments of the step of a batch of `size` responses, over all batches that `old` can draw."""
    weights, scores = world.sampled(), _scores(world, logits)
    mean, square = torch.zeros(scores.shape[-1], dtype=scores.dtype), 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draws = 1 if torch.equal(batch_slopes(loss, inputs), batch_slopes(loss, inputs)) else DRAWS
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
    error, size = (estimate - exact).norm().item(), exact.norm().item()
    return error / size if size > 1e-14 else (0.0 if error < 1e-14 else float("inf"))
