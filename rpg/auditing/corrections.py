"""What each `rollout_correction` optimises when another policy samples than the one a step begins with, by enumeration.

Three policies: the sampler mu, `old` where the step begins, and the trained pi. The advantage is the reward minus its
mean under the sampler, as a group's mean is; there is no KL and no clip, so that nothing else is at work.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rpg.auditing.moments import moments, slopes
from rpg.auditing.objectives import Objective, gradient
from rpg.auditing.studies import Bend, bend
from rpg.auditing.subjects import spread
from rpg.auditing.worlds import World, world
from rpg.catalogue import Algorithm, algorithm
from rpg.losses.correction import rollout_weights
from rpg.losses.policy_loss import LossOutput, policy_loss

CORRECTIONS: dict[str, dict[str, object]] = {
    "none: exact ratio": {"type": "none"},
    "ignore": {"type": "ignore"},
    "truncate 2, token": {"type": "truncate", "cap": 2.0},
    "truncate 2, sequence": {"type": "truncate", "level": "sequence", "cap": 2.0},
    "no bound, sequence": {"type": "truncate", "level": "sequence", "cap": 1e9},
    "mask 0.5-2, token": {"type": "mask"},
    "mask 0.5-2, sequence": {"type": "mask", "level": "sequence"},
}


def correction_study(gap: float = 1.0, drift: float = 0.2, seed: int = 0) -> list[Bend]:
    """Every correction against E[R] of responses and of tokens (prefixes as the sampler has them, or as old has).

    gap: how far the sampler is from old, as a part of the distance to the world's third policy (0.7 standard deviations
    of a logit).
    """
    w = world(seed=seed)
    sampler = w.old + gap * (w.ref - w.old)
    drawn = replace(w, old=sampler)  # responses come from the sampler
    drawn = replace(drawn, rewards=w.rewards - drawn.probabilities(sampler) @ w.rewards)
    logits = w.policy(drift)
    targets = {
        "token, sampler's prefixes": gradient(Objective("token", "none"), drawn, logits, sampler, 0.0),
        "token, old's prefixes": gradient(Objective("token", "none"), w, logits, w.old, 0.0),
        "response": gradient(Objective("sequence", "none"), w, logits, w.old, 0.0),
    }
    bends = []
    for name, setting in CORRECTIONS.items():
        algo = algorithm(
            "rpg-reinforce-urkl", kl="none", clip=None, loss_agg_mode="seq-mean-token-sum",
            rollout_correction=setting,
        )  # fmt: skip
        slope = slopes(partial(_loss, algo, w), drawn, logits, None, spread(drawn, None))
        found = moments(drawn, logits, slope)
        noise = found.variance**0.5 / found.mean.norm().item()
        for target, exact in targets.items():
            bends.append(Bend("correction", name, target, *bend(found.mean, exact), noise))
    return bends


def _loss(algo: Algorithm, w: World, *, old_log_prob, ref_log_prob, **inputs) -> LossOutput:
    """`old_log_prob` comes in as the sampler's; where the step begins is the world's old."""
    copies = len(old_log_prob) // len(w.tokens)
    begin = w.log_probs(w.old).repeat(copies, 1)
    weights = rollout_weights(
        algo.rollout_correction,
        old_log_prob=begin,
        sampler_log_prob=old_log_prob,
        response_mask=inputs["response_mask"],
    )
    old = old_log_prob if algo.rollout_correction.type == "none" else begin
    return policy_loss(algo, old_log_prob=old, rollout_weights=weights, **inputs)
