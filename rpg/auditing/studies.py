"""Three parts around a loss that change its expected gradient, too: the advantage estimator, the
aggregation over lengths and the correction for samples of another policy.

All are studied exactly, by enumerating all outcomes, and the first two on-policy, to isolate them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import comb, inf
from typing import Any, Self

import torch
from torch import Tensor

from rpg.auditing.moments import LossFunction, Moments, batch_slopes, inputs_of, moments
from rpg.auditing.objectives import gradients
from rpg.auditing.subjects import Scene, Subject, spread
from rpg.auditing.worlds import World, world
from rpg.catalogue import Algorithm, algorithm, override
from rpg.losses.advantages import advantages
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss, rollout_weights


@dataclass(frozen=True)
class StudyResult:
    """An expected gradient as `scale` times the exact one (which a learning rate absorbs) plus a
    part of relative size `bias` in other directions (which nothing absorbs); infinite for a step of
    zero, as is its noise.
    """

    study: str
    name: str
    setting: str
    scale: float
    bias: float
    # standard deviation / |mean| of a batch's step (advantage) or a response's (aggregation)
    noise: float

    @classmethod
    def of(cls, study: str, name: str, setting: str, step: Moments, exact: Tensor) -> Self:
        if not step.mean.any():
            return cls(study, name, setting, 0.0, inf, inf)
        scale = (step.mean @ exact / (exact @ exact)).item()
        bias = ((step.mean - scale * exact).norm() / (scale * exact).norm()).item()
        noise = max(step.variance, 0.0) ** 0.5 / step.mean.norm().item()
        return cls(study, name, setting, scale, bias, noise)


ESTIMATORS = {
    "group mean and std (GRPO, DAPO)": {"type": "group", "std": True},
    "group mean (RPG, Dr. GRPO)": {"type": "group", "std": False},
    "group mean, rescaled (GPG)": {"type": "group", "std": False, "rescale": True},
    "mean of the others (RLOO)": {"type": "leave_one_out"},
    "batch mean and std (REINFORCE++, PPO)": {"type": "batch", "std": True},
    "group mean, batch std (REINFORCE++-Baseline)": {"type": "group_then_batch"},
    "batch mean (REINFORCE)": {"type": "batch", "std": False},
    "no baseline": {"type": "none"},
}


SUCCESS = (0.15, 0.6)  # probability of a right answer, by prompt
LENGTH = 4  # of the longest response whose aggregation is studied


@cache
def advantage_study(sizes: tuple[int, ...] = (2, 4, 8, 16)) -> list[StudyResult]:
    """Every advantage estimator on two prompts of different difficulty, reward 1 or 0, by group
    size.

    A prompt's policy is one logit with success probability p; all counts of successes of the two
    groups are enumerated.
    """
    p = torch.tensor(SUCCESS, dtype=torch.float64)
    exact = p * (1 - p) / len(p)  # d mean E[R] / d logit
    results = []
    for name, setting in ESTIMATORS.items():
        algo = algorithm("reinforce", advantage=setting)
        for n in sizes:
            estimated = _two_groups(algo, p, n)
            results.append(StudyResult.of("advantage", name, f"group of {n}", estimated, exact))
    return results


def _two_groups(algo: Algorithm, p: Tensor, n: int) -> Moments:
    """The estimated gradient's moments over all outcomes of `n` responses to each prompt, which
    are right with probabilities `p` (2,)."""
    group = torch.arange(len(p)).repeat_interleave(n)
    mask = torch.ones(len(group), 1)
    mean = torch.zeros_like(p)
    square = 0.0
    for counts in product(range(n + 1), repeat=len(p)):
        right = torch.cat([torch.arange(n) < k for k in counts])
        found = advantages(algo, rewards=right.double(), group=group, response_mask=mask)
        advantage = found[:, 0]
        score = torch.where(right, 1 - p[group], -p[group])  # d log pi / d logit
        step = torch.zeros_like(p).index_add(0, group, advantage * score) / len(group)
        chance = 1.0  # that so many responses to each prompt are right
        for k, q in zip(counts, SUCCESS, strict=True):
            chance *= comb(n, k) * q**k * (1 - q) ** (n - k)
        mean = mean + chance * step
        square = square + chance * (step @ step).item()
    return Moments(mean, square - (mean @ mean).item())


@cache
def aggregation_study() -> list[StudyResult]:
    """The aggregation modes for responses of different lengths, against the gradient of E[R]."""
    w = world(vocabulary=3, length=LENGTH, eos=True)
    return aggregations(w, gradients(w, w.policy(0.0), w.ref, "sequence")["reward"])


def aggregations(world: World, exact: Tensor) -> list[StudyResult]:
    """Each mode on-policy, in a large batch of a world's responses, against the gradient
    `exact`."""
    (n, longest) = world.tokens.shape
    results = []
    tokens = (world.sampled() @ world.mask.sum(-1).double()).item()
    counts = Counts(tokens=n * tokens, sequences=n, horizon=longest)
    for mode in (
        "seq-mean-token-sum",
        "seq-mean-token-sum-norm",
        "token-mean",
        "seq-mean-token-mean",
    ):
        loss = partial(policy_loss, algorithm("reinforce", loss_agg_mode=mode), counts=counts)
        scene = Scene.of(Subject(mode, "rpg", loss, per_token=False), world, 0.0)
        setting = f"up to {longest} tokens"
        results.append(StudyResult.of("aggregation", mode, setting, scene.moments(loss), exact))
    return results


CORRECTIONS: dict[str, dict[str, object]] = {
    "none: exact ratio": {"type": "none"},
    "ignore": {"type": "ignore"},
    "truncate 2, token": {"type": "truncate", "cap": 2.0},
    "truncate 2, sequence": {"type": "truncate", "level": "sequence", "cap": 2.0},
    "no bound, sequence": {"type": "truncate", "level": "sequence", "cap": 1e9},
    "mask 0.5-2, token": {"type": "mask"},
    "mask 0.5-2, sequence": {"type": "mask", "level": "sequence"},
}

DRIFT = 0.2  # of the trained policy from old, where corrections are studied
# Standard deviations of a logit between the sampler and old, where corrections are studied.
APART = 0.7
Weigh = Callable[
    ..., Tensor | None
]  # called with old_log_prob, sampler_log_prob, response_mask; None: 1
_PLAIN = algorithm("rpg-reinforce-urkl", kl="none", clip=None, loss_agg_mode="seq-mean-token-sum")
UNCLIPPED = partial(policy_loss, _PLAIN)
# a loss of pi / mu, or one of pi / old with what weighs it to correct for mu
Corrected = tuple[LossFunction, Weigh | None]


def correction_study(apart: float = APART) -> list[StudyResult]:
    """What each `rollout_correction` optimises, without a KL or a clip, to isolate it."""
    results = []
    for name, setting in CORRECTIONS.items():
        correction = override(_PLAIN, rollout_correction=setting).rollout_correction
        weigh = None if correction.type == "none" else partial(rollout_weights, correction)
        results += corrected(name, (UNCLIPPED, weigh), apart)
    return results


def corrected(name: str, how: Corrected, apart: float) -> list[StudyResult]:
    """What a loss optimises if the sampler is not the policy at the start of a step: against E[R]
    of tokens (prefixes from the sampler, prefixes from old) and of responses.

    Three policies: the sampler mu, the one at the start of the step (the world's old), and the
    trained pi. The advantage is the reward minus its mean under the sampler, like a group's mean.
    apart: from old to the sampler, towards the world's third policy, in standard deviations of a
    logit.
    """
    loss, weigh = how
    sampled_world, logits, inputs, targets = _mismatch(apart)
    if weigh is not None:
        mask = inputs["response_mask"]
        start = world().log_probs(world().old)
        weights = weigh(
            old_log_prob=start, sampler_log_prob=inputs["old_log_prob"], response_mask=mask
        )
        inputs = inputs | {"old_log_prob": start, "rollout_weights": weights}
    moment = moments(sampled_world, logits, batch_slopes(loss, inputs))
    return [
        StudyResult.of("correction", name, target, moment, exact)
        for target, exact in targets.items()
    ]


@cache
def _mismatch(apart: float) -> tuple[World, Tensor, dict[str, Any], dict[str, Tensor]]:
    """The world as the sampler draws from it, the trained policy, what a loss is called with, and
    the gradients."""
    w = world()
    sampler = w.old + apart / APART * (w.ref - w.old)
    sampled_world = replace(w, old=sampler)  # responses come from the sampler
    mean_reward = sampled_world.sampled() @ w.rewards
    sampled_world = replace(sampled_world, rewards=w.rewards - mean_reward)
    logits = w.policy(DRIFT)
    inputs = inputs_of(sampled_world, logits, sampler, spread(sampled_world, sampler))
    targets = {
        "token, sampler's prefixes": gradients(sampled_world, logits, sampler, "token")["reward"],
        "token, old's prefixes": gradients(w, logits, w.old, "token")["reward"],
        "response": gradients(w, logits, w.old, "sequence")["reward"],
    }
    return sampled_world, logits, inputs, targets
