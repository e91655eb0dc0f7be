"""Adapters to audit the loss code of the *installed* peers, verl and TRL; none is a dependency of rpg-lab.

Each adapter calls the peer's own function with the arguments that its trainer would use. A peer that is not installed, or
whose code has moved, is reported as left out, with the reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import torch
import yaml
from torch import Tensor

from rpg.auditing.moments import LossFunction
from rpg.auditing.studies import direct_loss, weighted_loss
from rpg.auditing.subjects import Subject, spread, with_reward_kl
from rpg.auditing.worlds import World

WIDE = 1e9  # a clip range that never clips


def installed(beta: float, all_shipped: bool = False) -> tuple[list[Subject], dict[str, str]]:
    """(subjects of all installed peers, {peer: why it was left out}); with `all_shipped` also what they ship around their
    losses: a KL in the reward, distillation, more loss types.
    """
    subjects: list[Subject] = []
    absent: dict[str, str] = {}
    for name, subjects_of in (("verl", _verl), ("trl", _trl)):
        try:
            # A list: all of a peer's losses, or none.
            subjects += list(subjects_of(f"{name} {version(name)}", beta, all_shipped))
        except PackageNotFoundError:
            absent[name] = "not installed"
        except (ImportError, AttributeError, TypeError) as error:
            absent[name] = f"its code could not be called ({type(error).__name__}: {error})"
    return subjects, absent


# --- verl ----------------------------------------------------------------------------------------------

VERL_BOUNDS = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c")
# required, not read by losses
_VERL_ACTOR = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1}


def verl_subject(
    name: str,
    source: str,
    beta: float,
    *,
    loss: str = "vanilla",
    mode: str = "token-mean",
    kl: str | None = None,
    reward_kl: str | None = None,
    to_go: bool = False,
    actor: Mapping[str, Any] = {},
    options: Mapping[str, Any] = {},
) -> Subject:
    """verl's policy loss under its defaults, replaced by `actor` (fields of ActorConfig) and `options` (PolicyLossConfig).

    kl, reward_kl: the kind of verl's kl_penalty in the loss and in the rewards, or None. to_go: a token's advantage has the
    KL from there on (REINFORCE++), not that of its whole response (GRPO, RLOO).
    """
    from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: PLC0415 (optional)

    policy_loss = PolicyLossConfig(**{"dro_beta": beta, **_fields_of(PolicyLossConfig, options)})
    settings = {**_VERL_ACTOR, **_fields_of(ActorConfig, actor), "policy_loss": policy_loss}
    bare, clipped = (
        partial(_verl_loss, loss, ActorConfig(**{**settings, **bounds}), kl, beta, mode)
        for bounds in (dict.fromkeys(VERL_BOUNDS, WIDE), {})
    )
    advantages = partial(_verl_reward_kl, reward_kl, beta, to_go) if reward_kl else spread
    asked = sum(kind is not None for kind in (kl, reward_kl))
    return Subject(
        name, source, bare, clipped, asked * beta, "rkl" if asked else "none", mode != "seq-mean-token-sum",
        advantages, peer=True,
    )  # fmt: skip


def _fields_of(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    accepted = {entry.name for entry in fields(config) if entry.init}
    return {name: value for name, value in settings.items() if name in accepted}


def _verl(source: str, beta: float, all_shipped: bool) -> Iterator[Subject]:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY  # noqa: PLC0415 (optional)

    for loss in POLICY_LOSS_REGISTRY:
        # not a loss, but a dispatcher to the others; and what rpg.integrations.verl registers where it was imported
        if loss != "bypass_mode" and not loss.startswith("rpg/"):
            yield verl_subject(loss, source, 0.0, loss=loss, options={"dro_beta": beta})  # dro requires one
    for kind in ("k1", "abs", "k2", "k3", "k1+", "k3+"):
        yield verl_subject(f"vanilla + kl_penalty {kind}", source, beta, kl=kind)
    if all_shipped:
        for kind in ("k1", "k2", "k3"):
            yield verl_subject(f"vanilla + use_kl_in_reward {kind}", source, beta, reward_kl=kind)
        name = "reinforce_plus_plus + use_kl_in_reward"
        yield verl_subject(name, source, beta, reward_kl="k1", to_go=True)
        for kind, as_reward in (("k3", False), ("k3", True), ("k1", True), ("k2", False)):
            yield verl_distillation(source, beta, kind, as_reward)


def verl_distillation(
    source: str, beta: float, kind: str, as_reward: bool, mode: str = "token-mean"
) -> Subject:
    """verl's distillation loss without task rewards: its KL estimate as a loss, or as the reward of a policy loss."""
    name = f"distillation {kind}" + ", use_policy_gradient" * as_reward
    subject = verl_subject(name, source, beta, kl=kind, mode=mode)
    subject = replace(subject, rewarded=False, advantages=lambda world, _ref: 0.0 * world.mask)
    if not as_reward:
        return subject
    plain = verl_subject(name, source, 0.0, mode=mode)
    bare, clipped = (partial(_verl_distilled, loss, kind, beta) for loss in plain.losses)
    return replace(subject, loss=bare, clipped=clipped)


def _verl_distilled(
    policy_loss: LossFunction, kind: str, beta: float, *, ref_log_prob: Tensor | None, **inputs: Tensor
) -> Any:
    """As verl's distillation_loss with use_policy_gradient: the negative KL estimate at the policy is the advantage."""
    from verl.trainer.ppo.core_algos import kl_penalty  # noqa: PLC0415 (optional)

    ref = inputs["old_log_prob"] if ref_log_prob is None else ref_log_prob
    advantages = -beta * kl_penalty(inputs["log_prob"], ref, kind).detach()
    return policy_loss(**inputs | {"advantages": advantages, "ref_log_prob": ref})


def _verl_loss(
    name: str,
    config: Any,
    kl: str | None,
    beta: float,
    mode: str,
    *,
    response_mask: Tensor,
    ref_log_prob: Tensor | None,
    **inputs: Tensor,
) -> Tensor:
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty  # noqa: PLC0415 (optional)

    mask = response_mask.to(inputs["log_prob"].dtype)
    policy_loss = get_policy_loss_fn(name)
    loss: Tensor = policy_loss(response_mask=mask, loss_agg_mode=mode, config=config, **inputs)[0]
    if kl is None:
        return loss
    ref = inputs["old_log_prob"] if ref_log_prob is None else ref_log_prob
    penalty: Tensor = agg_loss(kl_penalty(inputs["log_prob"], ref, kl), mask, mode)
    return loss + beta * penalty


VERL_CORRECTIONS = (
    "decoupled_token_is", "decoupled_seq_is", "decoupled_token_icepop", "decoupled_seq_is_rs", "decoupled_geo_rs",
    "bypass_ppo_clip", "bypass_pg_is",
)  # fmt: skip
_VERL_CORRECTION = ("rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold")


def verl_corrections() -> Iterator[tuple[str, dict[str, Any], LossFunction]]:
    """What verl's default and its presets do about samples of another policy: (name, its settings, the corrected loss)."""
    from verl.trainer.config.algorithm import RolloutCorrectionConfig  # noqa: PLC0415 (optional)

    shipped = (files("verl") / "trainer/config/algorithm/rollout_correction.yaml").read_text()
    presets = {"default": RolloutCorrectionConfig(**yaml.safe_load(shipped))}
    presets |= {name: getattr(RolloutCorrectionConfig, name)() for name in VERL_CORRECTIONS}
    for name, config in presets.items():
        asked = {key: config[key] for key in _VERL_CORRECTION}
        settings = {
            key: value for key, value in asked.items() if value and asked[key.removesuffix("_threshold")]
        }
        loss: LossFunction = partial(weighted_loss, partial(_verl_weights, asked))
        if config.bypass_mode:
            settings |= {"bypass": config.loss_type}
            options = {"rollout_correction": config}
            subject = verl_subject(
                "", "", 0.0, loss="bypass_mode", mode="seq-mean-token-sum", options=options
            )
            loss = partial(direct_loss, subject.losses[-1])
        yield name, settings, loss


def _verl_weights(
    asked: dict[str, Any], *, old_log_prob: Tensor, sampler_log_prob: Tensor, response_mask: Tensor
) -> Tensor:
    """verl's weights, zero where it rejects."""
    from verl.trainer.ppo import rollout_corr_helper  # noqa: PLC0415 (optional)

    weights, kept, _ = rollout_corr_helper.compute_rollout_correction_and_rejection_mask(
        old_log_prob, sampler_log_prob, response_mask.double(), **asked
    )
    rejected: Tensor = kept
    return rejected if weights is None else rejected * weights.batch["rollout_is_weights"]


def _verl_reward_kl(kind: str, beta: float, to_go: bool, world: World, ref: Tensor) -> Tensor:
    from verl.trainer.ppo.core_algos import kl_penalty  # noqa: PLC0415 (optional)

    penalty = kl_penalty(world.log_probs(world.old), world.log_probs(ref), kind) * world.mask
    return with_reward_kl(world, beta * penalty, to_go)


# --- TRL -----------------------------------------------------------------------------------------------

_BY_RESPONSE = {"importance_sampling_level": "sequence"}
# A name is a loss_type, and `beta` where there is a KL -> further fields of GRPOConfig.
_TRL: dict[str, dict[str, Any]] = {
    "grpo": {},
    "bnpo": {},
    "dr_grpo": {},
    "dapo": {},
    "cispo": {"epsilon_high": 5.0},  # a bound, not a distance from 1
    "sapo": {},
    "grpo, sequence ratio": _BY_RESPONSE,
    "grpo, beta": {"use_bias_correction_kl": False},
    "grpo, beta, corrected": {},
    "grpo, beta, corrected, seq.": _BY_RESPONSE,
}
_TRL_MORE: dict[str, dict[str, Any]] = {
    "cispo, its default epsilon_high": {}, "luspo": {}, "vespo": {}, "dapo, beta": {},
}  # fmt: skip
_TRL_BARE = {"epsilon": WIDE, "epsilon_high": WIDE, "delta": None, "off_policy_mask_threshold": None}


def _trl(source: str, beta: float, all_shipped: bool) -> Iterator[Subject]:
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 (optional)

    assert callable(GRPOTrainer._compute_loss)
    for name, options in (_TRL | _TRL_MORE if all_shipped else _TRL).items():
        loss, _, rest = name.partition(", ")
        kl = beta if rest.startswith("beta") else 0.0
        yield trl_subject(name, source, kl, {"loss_type": loss, **options})


def trl_subject(name: str, source: str, beta: float, options: Mapping[str, Any]) -> Subject:
    """TRL's GRPO loss under GRPOConfig's defaults, replaced by `options`."""
    settings = {**options, "beta": beta}
    bare, clipped = (partial(_trl_loss, options={**settings, **bounds}) for bounds in (_TRL_BARE, {}))
    per_token = options.get("loss_type") != "luspo"  # which sums over tokens
    return Subject(name, source, bare, clipped, beta, "rkl" if beta else "none", per_token, peer=True)


def _trl_loss(
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    ref_log_prob: Tensor | None,
    options: Mapping[str, Any],
) -> Tensor:
    """GRPOTrainer._compute_loss on a stand-in trainer whose model gives our log-probabilities."""
    from trl.trainer.grpo_config import GRPOConfig  # noqa: PLC0415 (optional)
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 (optional)

    mask, entropies = response_mask.to(log_prob.dtype), torch.zeros_like(log_prob)
    config = {entry.name: entry.default for entry in fields(GRPOConfig)} | dict(options)
    config |= {"steps_per_generation": 1, "max_completion_length": log_prob.shape[1]}
    if config["epsilon_high"] is None:  # as the trainer's constructor
        config["epsilon_high"] = config["epsilon"]
    trainer = SimpleNamespace(
        **config,
        _get_per_token_logps_and_entropies=lambda *_args, **_kwargs: (log_prob, entropies, None),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _entropy_bonus_enabled=False,
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, **_: x),
        args=SimpleNamespace(**config),
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        epsilon_low=config["epsilon"],
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        model=SimpleNamespace(training=True),
    )
    nothing = torch.zeros(len(log_prob), 0, dtype=torch.long)
    inputs = {
        "prompt_ids": nothing,
        "prompt_mask": nothing,
        "completion_ids": torch.zeros_like(log_prob, dtype=torch.long),
        "completion_mask": mask,
        "advantages": advantages[:, 0],
        "old_per_token_logps": old_log_prob,
        "ref_per_token_logps": old_log_prob if ref_log_prob is None else ref_log_prob,
        "num_items_in_batch": mask.sum(),
    }
    loss: Tensor = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    return loss
