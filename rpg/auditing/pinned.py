"""Losses of trainers that cannot be installed here, as formulas of our own over a few orthogonal parts.

pinned.toml has, for each loss, its parts and the file, line and commit of the original that they were read from. Clamps of
logarithms and divergences beyond 10 are left out: nothing in an audit's world reaches them.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from rpg.auditing.foreign_settings import leaves
from rpg.auditing.subjects import Subject, with_reward_kl
from rpg.auditing.worlds import World
from rpg.losses.kl_terms import estimator


@dataclass(frozen=True)
class Formula:
    """One loss. In the comments: w = π/old per token, A the advantage, sg a constant for the gradient."""

    at: str  # path:line of the original
    weight: str = "ratio"  # ratio: -w A; score: -sg(w) A log π; none: -A log π
    level: str = "token"  # sequence: w is the geometric mean over a response
    clip: Sequence[float] = ()  # PPO's: low and high, as distances from 1
    bound: Sequence[float] = (0.0, float("inf"))  # what `score` clamps w to
    keep: dict[str, float] = field(default_factory=dict)
    """Names of KEPT -> thresholds; other tokens are left out."""
    drift: float = 0.0  # weight of log² w
    kl: str = ""  # estimator in the loss
    kl_weight: str = "none"  # ratio: w k; score: the gradient of k as of a reward is added
    signal: str = ""  # estimator of the KL in the advantages
    scope: str = "own"  # own: a token's; to_go: from there on; response: the whole; current: at π, not at old
    reward: bool = True  # False: distillation, the advantages have no reward
    aggregation: str = "token-mean"

    @property
    def has_kl(self) -> bool:
        return bool(self.kl or self.signal)


@dataclass(frozen=True)
class Correction:
    """What a trainer does about samples of a policy μ that is not the one at the start of the step, π₀."""

    at: str  # path:line of the original
    default: str  # path:line of the default, and what stands there
    weight: str = ""
    """Whose π₀/μ the loss is multiplied by: of a token, a sequence, its geometric mean; "": by 1."""
    bound: Sequence[float] = (0.0, float("inf"))  # what the weight is clamped to
    by: str = ""  # whose π₀/μ decides what is left out; "": the weight's
    keep: Sequence[float] = (0.0, float("inf"))  # outside of this
    ratio: str = ""
    """Instead of a weight: the name of the trainer's loss whose ratio is π/μ."""


KEPT: dict[str, Callable[[dict[str, Tensor], float], Tensor]] = {
    "rises_at_most": lambda token, most: ~((token["advantage"] > 0) & (token["rise"] > most)),
    "falls_at_most": lambda token, most: ~((token["advantage"] <= 0) & (token["rise"] < -most)),
    "falls_at_most_any": lambda token, most: token["rise"] >= -most,
    "moves_at_most": lambda token, most: token["rise"].abs() <= most,
    "ratio_at_least": lambda token, least: token["w"] >= least,
    "ratio_at_most": lambda token, most: token["w"] <= most,
    "gap_if_negative": lambda token, most: ~((token["advantage"] < 0) & (token["gap"] > most)),
}
"""What a mask looks at, constants for the gradient: how far a token's probability has risen from old to π, w, A, and the
mean of log(old/π) over its response, the gap.
"""


def loss(
    formula: Formula,
    beta: float,
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    ref_log_prob: Tensor | None,
) -> Tensor:
    """The scalar loss of a formula, with weight `beta` on its KL."""
    mask, ref = response_mask.bool(), old_log_prob if ref_log_prob is None else ref_log_prob
    log_w, lengths = log_prob - old_log_prob, mask.sum(-1, keepdim=True)
    if formula.level == "sequence":
        log_w = (log_w.sum(-1, keepdim=True) / lengths).expand_as(log_prob)
    w = log_w.exp()
    if formula.scope == "current":
        advantages = advantages - beta * estimator(formula.signal, (log_prob - ref).detach())[0]
    step = _policy_step(formula, w, advantages, log_prob)
    rise = (log_prob.exp() - old_log_prob.exp()).detach()
    gap = (old_log_prob - log_prob).detach().sum(-1, keepdim=True) / lengths
    token = {"rise": rise, "w": w.detach(), "advantage": advantages, "gap": gap}
    for name, threshold in formula.keep.items():
        step = step * KEPT[name](token, threshold)
    step = step + formula.drift * log_w.square()
    if formula.kl:
        weights = {"none": torch.ones_like(w), "ratio": w, "score": (log_prob - log_prob.detach()).exp()}
        step = step + beta * weights[formula.kl_weight] * estimator(formula.kl, log_prob - ref)[0]
    step = step * mask
    if formula.aggregation == "token-mean":
        return step.sum() / mask.sum()
    by_response = step.sum(-1) / (lengths[:, 0] if formula.aggregation == "seq-mean-token-mean" else 1)
    return by_response.mean()


def _policy_step(formula: Formula, w: Tensor, advantages: Tensor, log_prob: Tensor) -> Tensor:
    """The loss of each token without a KL, (B, T)."""
    if formula.weight != "ratio":
        bounded = w.clamp(*formula.bound).detach() if formula.weight == "score" else 1.0
        return -bounded * advantages * log_prob
    step = -w * advantages
    if formula.clip:
        low, high = formula.clip
        step = torch.maximum(step, -w.clamp(1 - low, 1 + high) * advantages)
    return step


def subject(name: str, source: str, formula: Formula, beta: float) -> Subject:
    """What the audit measures: the formula as shipped, and without its clip, mask and drift term."""
    beta = beta if formula.has_kl else 0.0
    bare = replace(formula, clip=(), bound=(0.0, float("inf")), keep={}, drift=0.0)
    return Subject(
        name, source, partial(loss, bare, beta), partial(loss, formula, beta), beta, "rkl" if beta else "none",
        formula.aggregation != "seq-mean-token-sum", partial(_advantages, formula, beta), peer=True, rewarded=formula.reward,
    )  # fmt: skip


def _advantages(formula: Formula, beta: float, world: World, ref: Tensor) -> Tensor:
    rewarded = replace(world, rewards=world.rewards * formula.reward)
    away = world.log_probs(world.old) - world.log_probs(ref)
    if not formula.signal or formula.scope == "current":
        return with_reward_kl(rewarded, torch.zeros_like(away), to_go=False)
    penalty = beta * estimator(formula.signal, away)[0] * world.mask
    if formula.scope == "own":
        return with_reward_kl(rewarded, torch.zeros_like(away), to_go=False) - penalty
    return with_reward_kl(rewarded, penalty, to_go=formula.scope == "to_go")


def weights(
    correction: Correction, *, old_log_prob: Tensor, sampler_log_prob: Tensor, response_mask: Tensor
) -> Tensor:
    """What a correction multiplies the loss of each token by, (B, T)."""
    mask = response_mask.bool()
    away = torch.where(mask, old_log_prob - sampler_log_prob, 0)
    whole, lengths = away.sum(-1, keepdim=True), mask.sum(-1, keepdim=True)
    logs = {"": 0 * away, "token": away, "sequence": whole, "geometric": whole / lengths}
    judged, (low, high) = logs[correction.by or correction.weight].exp(), correction.keep
    weight = logs[correction.weight].exp().clamp(*correction.bound)
    return weight * ((judged >= low) & (judged <= high)) * mask


@dataclass(frozen=True)
class Trainer:
    """A trainer whose losses are pinned: where they were read, the losses and the sampler corrections by name, and the
    defaults of settings that a loss depends on.
    """

    name: str
    repository: str
    commit: str
    losses: dict[str, Formula]
    corrections: dict[str, Correction]
    defaults: dict[str, Any]


def trainers() -> dict[str, Trainer]:
    """Everything in pinned.toml, by the trainer's name."""
    pins = {}
    for name, table in tomllib.loads((files("rpg.auditing") / "pinned.toml").read_text("utf-8")).items():
        losses = {loss: Formula(**table["shared"] | parts) for loss, parts in table["losses"].items()}
        corrections = {key: Correction(**parts) for key, parts in table["corrections"].items()}
        defaults = dict(leaves(table.get("defaults", {})))
        pins[name] = Trainer(name, table["repository"], table["commit"], losses, corrections, defaults)
    return pins
