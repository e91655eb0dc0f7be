"""Our losses inside TRL: a GRPOTrainer whose loss and advantages are those of an algorithm of the
catalogue.

    from rpg.interop.integrations.trl import RPGTrainer
    RPGTrainer(model, reward_funcs=..., args=GRPOConfig(...), train_dataset=...,
    algorithm="rpg-reinforce-urkl").train()

Everything else (generation, rewards, optimizer, logging, distribution) is TRL's. Written against
TRL 1.16.

And the other way round, any trainer of TRL or transformers recorded in our run folders while it
trains:

    with rpg.record("my-sweep", variant="TRL GRPO", seed=0) as run:
        GRPOTrainer(..., callbacks=[RecordCallback(run)]).train()
"""

import copy
import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rpg.catalogue import Algorithm, AlgorithmError
from rpg.catalogue import algorithm as find
from rpg.interop.importing.recording import Recording
from rpg.interop.importing.trainer_logs import of_one_set
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss


class RPGTrainer(GRPOTrainer):
    """TRL's trainer with the loss and the advantages of `algorithm`.

    `algorithm` is a name of the catalogue or what `rpg.algorithm(...)` returns. Its reference
    policy is `old` (the paper) or `fixed`, which is TRL's reference model. TRL's own settings of
    loss and advantages are not read: `loss_type`, `scale_rewards`, `epsilon`, `epsilon_high`,
    `importance_sampling_level`, and `beta` but for `algorithm.beta`.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        *more: Any,
        algorithm: str | Algorithm = "rpg-reinforce-urkl",
        **named: Any,
    ):
        self.algorithm = find(algorithm) if isinstance(algorithm, str) else algorithm
        _check(self.algorithm, args)
        args = (
            GRPOConfig() if args is None else copy.copy(args)
        )  # yours may be another trainer's, too
        # TRL loads its reference model where beta is positive.
        args.beta = self.algorithm.beta if self.algorithm.needs_reference else 0.0
        super().__init__(model, reward_funcs, args, *more, **named)
        self._earned: Tensor | None = None

    # --- advantages

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        """TRL's, (responses of all processes, functions); their weighted sums are kept, NaN where
        all are None."""
        rewards: Tensor = super()._calculate_rewards(*args, **kwargs)
        weights = self.reward_weights.to(rewards.device).unsqueeze(0)
        self._earned = (
            (rewards * weights).nansum(dim=1).masked_fill(rewards.isnan().all(1), torch.nan)
        )
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert self._earned is not None
        mask = _mask(output)
        rows, width = mask.shape
        # Of all processes: the responses to a prompt may be spread over several.
        mask = self.accelerator.gather(self.accelerator.pad_across_processes(mask, dim=1))
        rewards = self._earned.to(mask.device)
        size = self.num_generations if self.model.training else self.num_generations_eval
        group = torch.arange(len(rewards), device=mask.device) // size
        scored = ~rewards.isnan()
        given = {"rewards": rewards[scored], "group": group[scored], "response_mask": mask[scored]}
        values = torch.zeros(mask.shape, device=mask.device)
        values[scored] = advantages_of(self.algorithm, **given).to(values)
        first = self.accelerator.process_index * rows
        output["advantages"] = values[first : first + rows, :width]
        return output

    # --- loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        forward = self._get_per_token_logps_and_entropies
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        width = inputs["completion_ids"].size(1)
        # Further inputs of a multimodal model, by the names of TRL's own parameters.
        more = {
            name: inputs[name] for name in inspect.signature(forward).parameters if name in inputs
        }
        balanced = getattr(self, "aux_loss_enabled", False)  # a mixture of experts
        more |= {"compute_entropy": True, "compute_aux_loss": balanced}
        log_prob, entropies, balance = forward(model, ids, attended, width, **more)
        old = inputs.get("old_per_token_logps")
        mode = "train" if self.model.training else "eval"
        counts = self._counts(inputs) if mode == "train" else None
        given = {"log_prob": log_prob, "old_log_prob": log_prob.detach() if old is None else old}
        given |= {"advantages": inputs["advantages"], "response_mask": _mask(inputs)}
        given["rollout_weights"] = inputs.get("importance_sampling_ratio")
        if self.algorithm.needs_reference:
            given["ref_log_prob"] = inputs.get("ref_per_token_logps")
        out = policy_loss(self.algorithm, counts=counts, **given)
        parts = self.current_gradient_accumulation_steps if mode == "train" else 1
        if entropies is not None:  # (T of the model's own tokens), as TRL logs it
            mask = given["response_mask"]
            sums = torch.stack([(entropies.detach() * mask).sum(), mask.sum()]).view(1, 2)
            total, count = self.accelerator.gather(sums).sum(0)
            self._metrics[mode]["entropy"].append((total / count.clamp(min=1)).item())
        for name, value in (out.metrics | {"loss": out.metrics["loss"] * parts}).items():
            everywhere = self.accelerator.gather(torch.tensor(value, device=log_prob.device))
            shown = self._metrics[mode][f"rpg/{name}"]  # TRL logs their mean
            if name == "ratio_max":
                shown[:] = [max([everywhere.max().item(), *shown])]
            else:
                shown.append(everywhere.mean().item())
        # Gradients are averaged over processes, and the counts are those of all of them.
        loss = out.loss * (self.accelerator.num_processes if mode == "train" else 1)
        return loss + self.router_aux_loss_coef * balance / parts if balanced else loss

    def _counts(self, inputs: dict[str, Any]) -> Counts:
        """Of all processes and parts of an optimizer step, which has its even share of a
        generation's tokens, as in TRL."""
        parts = self.current_gradient_accumulation_steps
        tokens = inputs["num_items_in_batch"].clamp(min=1) * parts / self.args.steps_per_generation
        sequences = len(inputs["completion_mask"]) * parts * self.accelerator.num_processes
        return Counts(float(tokens), sequences, self.max_completion_length)


class RecordCallback(TrainerCallback):
    """Hands what a trainer of transformers logs to `run`, and its arguments as the run's settings.
    Its steps are optimizer steps: `rpg.record(updates=...)` says how many of them a rollout has.
    scores: {benchmark: the logged name of its accuracy}, e.g. {"easy":
    "eval_easy_rewards/right/mean"}.
    """

    def __init__(self, run: Recording, scores: Mapping[str, str] | None = None):
        self.run, self.scores, self._last = run, dict(scores or {}), 0

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Before the first step, or the first after a checkpoint."""
        self._last = state.global_step
        self.run.describe(
            args.to_sanitized_dict(), steps=math.ceil(state.max_steps / self.run.updates)
        )

    def on_log(
        self, _args: Any, state: Any, _control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """After each log of the trainer, of training and of evaluation alike."""
        row = of_one_set(dict(logs or {}))
        if "step_time" in row:  # the mean of the steps since the last log
            row["step_time"] *= max(1, state.global_step - self._last)
            self._last = state.global_step
        self.run.log(state.global_step, {"optimizer_step": state.global_step, **row})
        for benchmark, name in self.scores.items():
            if row.get(name) is not None:
                self.run.score(
                    benchmark, math.ceil(state.global_step / self.run.updates), row[name]
                )


def _mask(inputs: dict[str, Any]) -> Tensor:
    """(B, T): where a token counts: those of the model, not those of a tool's output."""
    mask: Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


_NOT_READ = {
    "use_liger_kernel": False,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "delta": None,
    "multi_objective_aggregation": "sum_then_normalize",
}
"""Settings of TRL that add something to its loss or advantages, and what they are where they do
not."""


def _check(algorithm: Algorithm, config: Any) -> None:
    """Raises AlgorithmError for what TRL's trainer cannot give an algorithm."""
    kl = algorithm.kl.type
    reference = algorithm.reference.type
    lm = algorithm.positive_lm_loss
    absent = "is not available in GRPOTrainer"
    other = algorithm.needs_reference and reference != "fixed"
    of_trl = "is of TRL's own loss and advantages, and would do nothing"
    given = {name: getattr(config, name, default) for name, default in _NOT_READ.items()}
    rules = [
        (
            algorithm.advantage.type == "gae",
            "advantage",
            "gae",
            "group, group_then_batch, batch",
            "needs a critic, and GRPOTrainer has none",
        ),
        (
            kl == "reward" and algorithm.beta > 0,
            "kl",
            kl,
            "a KL in the loss or the objective, or beta=0",
            "has no place in GRPOTrainer",
        ),
        (
            kl == "distribution" or not algorithm.rewarded,
            "kl",
            kl,
            "a KL of the sampled tokens, with rewards",
            absent,
        ),
        (lm > 0, "positive_lm_loss", lm, "0", absent),
        (
            algorithm.advantage.type == "target",
            "advantage",
            "target",
            "group, group_then_batch, batch",
            "follows the policy, and GRPOTrainer computes advantages once per rollout",
        ),
        (
            getattr(algorithm.kl, "centred", False) and algorithm.beta > 0,
            "kl.centred",
            True,
            "false",
            "needs whole distributions, and GRPOTrainer has those of the sampled tokens",
        ),
        (
            algorithm.rollout_correction.type != "none",
            "rollout_correction",
            algorithm.rollout_correction.type,
            "none, and TRL's own options",
            absent,
        ),
        (
            algorithm.loss_agg_mode == "prompt-mean",
            "loss_agg_mode",
            "prompt-mean",
            "token-mean, seq-mean-token-sum, seq-mean-token-mean",
            "needs to know which responses belong to a prompt",
        ),
        (other, "reference", reference, "old, fixed", absent),
        *(
            (given[name] != default, name, given[name], repr(default), of_trl)
            for name, default in _NOT_READ.items()
        ),
    ]
    for broken, field, value, accepted, why in rules:
        if broken:
            raise AlgorithmError(field, value, accepted, f"{field}: {value!r} {why}")
