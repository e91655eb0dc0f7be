"""Two parts around a loss that change its expected gradient, too: the advantage estimator and the aggregation over
lengths.

Both are studied on-policy, to isolate them, and exactly: all outcomes are enumerated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import comb, prod

import torch
from torch import Tensor

from rpg.auditing.moments import Moments, moments
from rpg.auditing.objectives import Objective, gradient
from rpg.auditing.worlds import world
from rpg.catalogue import algorithm, override
from rpg.losses.advantages import advantages
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss


@dataclass(frozen=True)
class StudyResult:
    """An expected gradient as `scale` times the exact one (which a learning rate absorbs) plus a part of relative size
    `bias` in other directions (which nothing absorbs).
    """

    study: str
    name: str
    setting: str
    scale: float
    bias: float
    noise: float  # standard deviation / |mean| of a batch's step (advantage) or a response's (aggregation)

    @classmethod
    def of(cls, study: str, name: str, setting: str, step: Moments, exact: Tensor) -> StudyResult:
        scale = (step.mean @ exact / (exact @ exact)).item()
        bias = ((step.mean - scale * exact).norm() / (scale * exact).norm()).item()
        noise = max(step.variance, 0.0) ** 0.5 / step.mean.norm().item()
        return cls(study, name, setting, scale, bias, noise)


ESTIMATORS = {
    "group mean and std (GRPO, DAPO)": ("grpo", {"type": "group", "std": True}),
    "group mean (RPG, Dr. GRPO)": ("dr-grpo", {"type": "group", "std": False}),
    "group mean, rescaled (GPG)": ("gpg", {"type": "group", "std": False, "rescale": True}),
    "mean of the others (RLOO)": ("rloo", {"type": "leave_one_out"}),
    "batch mean and std (REINFORCE++, PPO)": ("ppo", {"type": "batch", "std": True}),
    "group mean, batch std (REINFORCE++-Baseline)": ("reinforce-pp-baseline", {"type": "group_then_batch"}),
    "batch mean (REINFORCE)": ("reinforce", {"type": "batch", "std": False}),
    "no baseline": ("reinforce", {"type": "none"}),
}


SUCCESS = (0.15, 0.6)  # probability of a right answer, by prompt
LENGTH = 4  # of the longest response whose aggregation is studied


@cache
def advantage_study(sizes: tuple[int, ...] = (2, 4, 8, 16)) -> list[StudyResult]:
    """Every advantage estimator on two prompts of different difficulty, reward 1 or 0, by group size.

    A prompt's policy is one logit with success probability p; all counts of successes of the two groups are
    enumerated.
    """
    p = torch.tensor(SUCCESS, dtype=torch.float64)
    exact = p * (1 - p) / len(p)  # d mean E[R] / d logit
    results = []
    for name, (algo_name, setting) in ESTIMATORS.items():
        algo = override(algorithm(algo_name), advantage=setting, kl="none")
        for n in sizes:
            group = torch.arange(len(p)).repeat_interleave(n)
            mean, square = torch.zeros_like(p), 0.0
            for counts in product(range(n + 1), repeat=len(p)):
                right = torch.cat([torch.arange(n) < k for k in counts])
                a = advantages(
                    algo, rewards=right.double(), group=group, response_mask=torch.ones(len(group), 1)
                )[:, 0]
                score = torch.where(right, 1 - p[group], -p[group])  # d log pi / d logit
                step = torch.zeros_like(p).index_add(0, group, a * score) / len(group)
                binomial = zip(counts, SUCCESS, strict=True)
                chance = prod(comb(n, k) * q**k * (1 - q) ** (n - k) for k, q in binomial)
                mean, square = mean + chance * step, square + chance * (step @ step).item()
            moment = Moments(mean, square - (mean @ mean).item())
            results.append(StudyResult.of("advantage", name, f"group of {n}", moment, exact))
    return results


@cache
def aggregation_study() -> list[StudyResult]:
    """The four aggregation modes for responses of different lengths, against the gradient of E[R]."""
    w = world(vocabulary=3, length=LENGTH, eos=True)
    logits, n = w.policy(0.0), len(w.rewards)
    exact = gradient(Objective("sequence", "none"), w, logits, w.ref, 0.0)
    tokens = (w.probabilities(logits) @ w.mask.sum(-1).double()).item()
    counts = Counts(tokens=n * tokens, sequences=n, horizon=LENGTH)  # of a large batch
    results = []
    for mode in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean", "seq-mean-token-mean"):
        log_prob = w.log_probs(logits).requires_grad_()
        out = policy_loss(
            algorithm("reinforce", loss_agg_mode=mode),
            log_prob=log_prob,
            old_log_prob=log_prob.detach(),
            advantages=w.rewards[:, None].expand_as(log_prob),
            response_mask=w.mask,
            counts=counts,
        )
        moment = moments(w, logits, torch.autograd.grad(out.loss, log_prob)[0] * n)
        results.append(StudyResult.of("aggregation", mode, f"up to {LENGTH} tokens", moment, exact))
    return results
