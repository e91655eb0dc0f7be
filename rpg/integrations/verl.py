"""Our losses and advantages in verl's own trainers, by one import: VERL_USE_EXTERNAL_MODULES=rpg.integrations.verl.

Registers every algorithm of the catalogue whose KL, if it has one, refers to the policy that sampled the rollout: verl
passes no other reference to a registered loss. They are chosen by name in verl's configuration,

    actor_rollout_ref.actor.policy_loss.loss_mode=rpg/rpg-reinforce-urkl algorithm.adv_estimator=rpg/rpg-reinforce-urkl

and have the catalogue's default settings, except for the aggregation, which is verl's `actor.loss_agg_mode`. Everything
else (reference schedules, dynamic sampling, rewards) needs the trainer mode of rpg.backends.verl.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

from rpg.catalogue import Algorithm, algorithms, override
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss as loss_of


def policy_loss(
    algorithm: Algorithm,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """verl's contract of a policy loss; (B, T) each. The counts of the whole mini-batch are in config.global_batch_info."""
    info = dict(config.global_batch_info) if config is not None else {}
    counts = None
    if info.get("batch_num_tokens") and info.get("global_batch_size"):
        counts = Counts(info["batch_num_tokens"], info["global_batch_size"], info.get("loss_scale_factor"))
    out = loss_of(
        override(algorithm, loss_agg_mode=loss_agg_mode),
        log_prob=log_prob,
        old_log_prob=old_log_prob,
        advantages=advantages,
        response_mask=response_mask,
        rollout_weights=rollout_is_weights,
        counts=counts,
    )
    metrics = {f"rpg/{name}": value for name, value in out.metrics.items() if name != "loss"}
    return out.loss * (info.get("dp_size") or 1), metrics


def advantage(
    algorithm: Algorithm, token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, **_: Any
) -> tuple[Tensor, Tensor]:
    """verl's contract of an advantage estimator: (advantages, returns), (B, T); `index` names each row's prompt."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(index))}
    result = advantages_of(
        algorithm,
        rewards=token_level_rewards.sum(-1),
        group=torch.tensor([numbers[name] for name in index]),
        response_mask=response_mask,
    )
    return result, result


def registered() -> dict[str, Algorithm]:
    """Algorithms by their names in verl. verl has its own losses named gspo, cispo, ..., hence the prefix."""
    return {
        f"rpg/{name}": algorithm
        for name, algorithm in algorithms().items()
        if not algorithm.needs_reference and algorithm.advantage.type != "gae"
    }


LOSSES = tuple(registered())
"""Names for `loss_mode` and `adv_estimator`."""
for _name, _algorithm in registered().items():
    register_policy_loss(_name)(partial(policy_loss, _algorithm))
    register_adv_est(_name)(partial(advantage, _algorithm))
