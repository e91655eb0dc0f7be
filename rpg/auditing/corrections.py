"""What each `rollout_correction` optimises if the sampler is not the policy at the start of a step, by enumeration.

Three policies: the sampler mu, `old` at the start of the step, and the trained pi. The advantage is the reward minus its
mean under the sampler, like a group's mean; without a KL or a clip, to isolate the correction.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rpg.auditing.moments import batch_slopes, batches_of, moments
from rpg.auditing.objectives import Objective, gradient
from rpg.auditing.studies import StudyResult
from rpg.auditing.subjects import spread
from rpg.auditing.worlds import World, world
from rpg.catalogue import Algorithm, algorithm
from rpg.losses.policy_loss import LossOutput, policy_loss, rollout_weights

CORRECTIONS: dict[str, dict[str, object]] = {
    "none: exact ratio": {"type": "none"},
    "ignore": {"type": "ignore"},
    "truncate 2, token": {"type": "truncate", "cap": 2.0},
    "truncate 2, sequence": {"type": "truncate", "level": "sequence", "cap": 2.0},
    "no bound, sequence": {"type": "truncate", "level": "sequence", "cap": 1e9},
    "mask 0.5-2, token": {"type": "mask"},
    "mask 0.5-2, sequence": {"type": "mask", "level": "sequence"},
}

DRIFT = 0.2


def correction_study(gap: float = 1.0) -> list[StudyResult]:
    """Every correction against E[R] of responses and of tokens (prefixes from the sampler or from old).

    gap: how far the sampler is from old, as a part of the distance to the world's third policy (0.7 standard deviations
    of a logit).
    """
    w = world()
    sampler = w.old + gap * (w.ref - w.old)
    drawn = replace(w, old=sampler)  # responses come from the sampler
    drawn = replace(drawn, rewards=w.rewards - drawn.probabilities(sampler) @ w.rewards)
    logits = w.policy(DRIFT)
    targets = {
        "token, sampler's prefixes": gradient(Objective("token", "none"), drawn, logits, sampler, 0.0),
        "token, old's prefixes": gradient(Objective("token", "none"), w, logits, w.old, 0.0),
        "response": gradient(Objective("sequence", "none"), w, logits, w.old, 0.0),
    }
    results = []
    for name, setting in CORRECTIONS.items():
        algo = algorithm(
            "rpg-reinforce-urkl", kl="none", clip=None, loss_agg_mode="seq-mean-token-sum",
            rollout_correction=setting,
        )  # fmt: skip
        inputs = batches_of(drawn, logits, None, spread(drawn, None))(torch.arange(len(w.tokens)))
        slope = batch_slopes(partial(_loss, algo, w), inputs)
        moment = moments(drawn, logits, slope)
        for target, exact in targets.items():
            results.append(StudyResult.of("correction", name, target, moment, exact))
    return results


def _loss(
    algo: Algorithm, w: World, *, old_log_prob: Tensor, ref_log_prob: None, **inputs: Any
) -> LossOutput:
    """The audit passes the sampler's log-probabilities as `old_log_prob`; the step starts at the world's old."""
    del ref_log_prob  # there is no KL
    start = w.log_probs(w.old)
    weights = rollout_weights(
        algo.rollout_correction,
        old_log_prob=start,
        sampler_log_prob=old_log_prob,
        response_mask=inputs["response_mask"],
    )
    old = old_log_prob if algo.rollout_correction.type == "none" else start
    return policy_loss(algo, old_log_prob=old, rollout_weights=weights, **inputs)
