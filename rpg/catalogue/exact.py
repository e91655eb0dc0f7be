"""The loss whose expected gradient is exactly that of an objective, for what other losses are held against."""

from __future__ import annotations

from typing import Any

from rpg.catalogue.components import ObjectiveKL
from rpg.catalogue.divergences import DIVERGENCES
from rpg.catalogue.entry import Algorithm
from rpg.catalogue.lookup import algorithm


def divergence_of(algo: Algorithm) -> str:
    """The KL that a loss is meant to have, a name of DIVERGENCES that is its own `normalised`; `none` without."""
    if algo.kl.type == "none" or not algo.beta:
        return "none"
    # k1, k2 and k3 are estimators of KL(policy || reference)
    return DIVERGENCES[algo.kl.divergence].normalised if isinstance(algo.kl, ObjectiveKL) else "rkl"


def exact_loss(divergence: str, beta: float, **overrides: Any) -> Algorithm:
    """The unclipped RPG loss of a divergence (or of `none`), of several the least noisy; `overrides` of the rest."""
    less_noisy = (d.name for d in DIVERGENCES.values() if d.normalised == divergence and d.unnormalised)
    if divergence == "none":
        return algorithm("rpg-urkl", kl="none", clip=None, **overrides)
    return algorithm(f"rpg-{next(less_noisy, divergence)}", beta=beta, clip=None, **overrides)
