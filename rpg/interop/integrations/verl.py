"""Our losses and advantages in verl's own trainers, by one import:
VERL_USE_EXTERNAL_MODULES=rpg.interop.integrations.verl.

Registers every algorithm of the catalogue whose KL, if it has one, refers to the policy that
sampled the rollout: verl passes no other reference to a registered loss. They are chosen by name in
verl's configuration,

    actor_rollout_ref.actor.policy_loss.loss_mode=rpg/rpg-reinforce-urkl
    algorithm.adv_estimator=rpg/rpg-reinforce-urkl

and have the catalogue's default settings, except for the aggregation, which is verl's
`actor.loss_agg_mode`. Everything else (reference schedules, dynamic sampling, rewards) needs the
trainer mode of rpg.backends.verl.

The same import registers a tracker: with trainer.logger=[console,rpg], a run of verl's own trainers
is recorded live as one of our runs (rpg.record), in the sweep `trainer.project_name`, as the
variant `trainer.experiment_name`.
"""

import re
from functools import partial
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss
from verl.utils.tracking import Tracking

from rpg.catalogue import Algorithm, algorithms, override
from rpg.interop.importing.recording import Recording
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss as loss_of
from rpg.store.current import flat


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
    """verl's contract of a policy loss; (B, T) each. The counts of the whole mini-batch are in
    config.global_batch_info."""
    info = dict(config.global_batch_info) if config is not None else {}
    counts = None
    if info.get("batch_num_tokens") and info.get("global_batch_size"):
        counts = Counts(
            info["batch_num_tokens"], info["global_batch_size"], info.get("loss_scale_factor")
        )
    inputs = {"log_prob": log_prob, "old_log_prob": old_log_prob, "advantages": advantages}
    inputs["response_mask"] = response_mask
    algo = override(algorithm, loss_agg_mode=loss_agg_mode)
    out = loss_of(algo, rollout_weights=rollout_is_weights, counts=counts, **inputs)
    metrics = {f"rpg/{name}": value for name, value in out.metrics.items() if name != "loss"}
    return out.loss * (info.get("dp_size") or 1), metrics


def advantage(
    algorithm: Algorithm,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """verl's contract of an advantage estimator: (advantages, returns), (B, T); `index` names each
    row's prompt."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(index))}
    rewards = token_level_rewards.sum(-1)
    group = torch.tensor([numbers[name] for name in index])
    result = advantages_of(algorithm, rewards=rewards, group=group, response_mask=response_mask)
    return result, result


def registered() -> dict[str, Algorithm]:
    """Algorithms by their names in verl. verl has its own losses named gspo, cispo, ..., hence the
    prefix."""
    algos = {f"rpg/{name}": algo for name, algo in algorithms().items() if not algo.needs_reference}
    return {name: algo for name, algo in algos.items() if _fits(algo)}


def _fits(algo: Algorithm) -> bool:
    """Whether verl's contracts tell the loss and the advantages all that they read: no values, no
    log-probabilities beside rewards, and no prompts or samplers beside the loss."""
    return (
        algo.advantage.type not in ("gae", "target")
        and algo.loss_agg_mode != "prompt-mean"
        and algo.rollout_correction.type == "none"
    )


LOSSES = tuple(registered())
"""Names for `loss_mode` and `adv_estimator`."""
for _name, _algorithm in registered().items():
    register_policy_loss(_name)(partial(policy_loss, _algorithm))
    register_adv_est(_name)(partial(advantage, _algorithm))


class Tracker:
    """verl's contract of a logger. The seed is `data.seed`, `val-core/<set>/<what>/mean@k` are
    accuracies on <set>, up to the first value that is not between 0 and 1: verl logs rewards there
    if a set's reward function returns no `acc`."""

    def __init__(self, project: str, experiment: str, config: Any):
        settings = flat(config or {})
        parts = ("trainer", "actor_rollout_ref.actor.optim")
        planned = (settings.get(f"{part}.total_training_steps") for part in parts)
        self._steps = next((int(steps) for steps in planned if steps), 0)
        seed = settings.get("data.seed") or 0
        self._run = Recording(
            project, variant=experiment, seed=seed, spec=config, steps=self._steps
        )
        self._run.__enter__()
        self._step = 0
        self._rewards: set[str] = set()

    def log(self, data: dict[str, Any], step: int) -> None:
        self._step = step
        self._run.log(
            step, {name: value for name, value in data.items() if name != "training/global_step"}
        )
        for name, value in data.items():
            match = re.fullmatch(r"val-core/(.+)/[^/]+/mean@\d+", name)
            if match and name not in self._rewards and 0 <= float(value) <= 1:
                self._run.score(match[1].replace("/", "-"), step, float(value))
            elif match and name not in self._rewards:
                self._rewards.add(name)
                self._run._say(
                    f"{name} is {value:g} at step {step}, not an accuracy: from here on only a "
                    "metric"
                )

    def finish(self, exit_code: int = 0) -> None:
        """verl calls it at whatever end, so the run counts as done if its last step was logged."""
        ended = exit_code == 0 and self._step >= self._steps
        self._run.__exit__(
            *((None, None, None) if ended else (KeyboardInterrupt, KeyboardInterrupt(), None))
        )


def _with_tracker() -> None:
    """Add `rpg` to the loggers of verl, whose list is fixed."""
    begin = Tracking.__init__
    end = Tracking.finish

    def init(
        self: Any,
        project_name: str,
        experiment_name: str,
        default_backend: Any = "console",
        config: Any = None,
    ) -> None:
        begin(self, project_name, experiment_name, default_backend, config)
        if "rpg" in ([default_backend] if isinstance(default_backend, str) else default_backend):
            self.logger["rpg"] = Tracker(project_name, experiment_name, config)

    def finish(self: Any, exit_code: int = 0) -> None:
        tracker = None if self._finished else self.logger.get("rpg")
        end(self, exit_code)
        if tracker is not None:
            tracker.finish(exit_code)

    Tracking.__init__, Tracking.finish = init, finish
    Tracking.supported_backend = [*Tracking.supported_backend, "rpg"]


if "rpg" not in Tracking.supported_backend:
    _with_tracker()
