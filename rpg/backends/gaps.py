"""How far two policies are from each other on a batch, as metrics of both back ends."""

import torch
from torch import Tensor

from rpg.losses.kl_terms import k3


def kl_and_error(log_ratio: Tensor, mask: Tensor) -> tuple[float, float | None]:
    """KL(p || q) per token from tokens drawn from p, and its standard error over responses: None
    for a single one.

    log_ratio (N, T): log q - log p; mask (N, T). The estimator is k3 (J. Schulman, 2020); the error
    is that of a ratio of sums over responses.
    """
    k3_of_tokens = k3(log_ratio.double())
    sums = torch.where(mask, k3_of_tokens, 0.0).sum(-1)
    lengths = mask.sum(-1).double()
    tokens = lengths.sum().clamp(min=1)
    mean = sums.sum() / tokens

    responses = int((lengths > 0).sum())
    if responses < 2:
        return float(mean), None
    residuals = sums - mean * lengths
    squares = residuals.square().sum() * responses / (responses - 1)
    error = squares.sqrt() / tokens
    return float(mean), float(error)


def gap_metrics(name: str, log_ratio: Tensor, mask: Tensor) -> dict[str, float]:
    """A KL and, where it has one, its standard error, as two metrics."""
    kl, error = kl_and_error(log_ratio, mask)
    return {name: kl} if error is None else {name: kl, f"{name}_error": error}
