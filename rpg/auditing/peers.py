"""Adapters to audit the loss code of the *installed* peers, verl and TRL; none is a dependency of
rpg-lab.

Each adapter calls the peer's own function with the arguments that its trainer would use. A peer
that is not installed, or whose code has moved, is reported as left out, with the reason.
"""

import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import torch
import yaml
from torch import Tensor

from rpg.auditing.foreign_settings import leaves
from rpg.auditing.moments import LossFunction
from rpg.auditing.studies import UNCLIPPED, Corrected
from rpg.auditing.subjects import Subject, less_kl, spread

WIDE = 1e9  # a clip range that never clips
Changes = Mapping[str, Any]  # of a trainer's defaults


def installed(beta: float, all_shipped: bool = False) -> tuple[list[Subject], dict[str, str]]:
    """(subjects of all installed peers, {peer: why it was left out}); with `all_shipped` also what
    they ship around their losses: a KL in the reward, distillation, more loss types.
    """
    subjects: list[Subject] = []
    absent: dict[str, str] = {}
    tables = tomllib.loads((files("rpg.auditing") / "variants.toml").read_text("utf-8"))
    for peer, subject in (("verl", verl_subject), ("trl", trl_subject)):
        try:
            source = f"{peer} {version(peer)}"
            variants = _registered(beta) if peer == "verl" else {}
            for table in ("audited", "shipped")[: 1 + all_shipped]:
                variants |= {name: dict(leaves(tree)) for name, tree in tables[table][peer].items()}
            # A list: all of a peer's losses, or none.
            subjects += [
                subject(name, source, beta, settings) for name, settings in variants.items()
            ]
        except PackageNotFoundError:
            absent[peer] = "not installed"
        except (ImportError, AttributeError, LookupError, TypeError) as error:
            absent[peer] = f"its code could not be called ({type(error).__name__}: {error})"
    return subjects, absent


# --- verl
# ----------------------------------------------------------------------------------------------

ACTOR = "actor_rollout_ref.actor."
_DISTILLATION = "distillation.distillation_loss."
VERL_BOUNDS = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c")
# required, not read by losses
_VERL_ACTOR = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1}
_VERL_READ = (*VERL_BOUNDS, "tau_pos", "tau_neg", "loss_agg_mode")
_VERL_TO_GO = ("gae", "reinforce_plus_plus")
"""Estimators under which a token's advantage has the rewards from there on."""


@cache
def verl_defaults(megatron: bool = False) -> dict[str, Any]:
    """Every key of verl's own flattened configuration, with its default; verl is not imported."""
    name = f"_generated_ppo{'_megatron' if megatron else ''}_trainer.yaml"
    text = (files("verl") / "trainer/config" / name).read_text("utf-8")
    return dict(leaves(yaml.safe_load(text)))


def _registered(beta: float) -> dict[str, dict[str, Any]]:
    """verl's policy losses, as variants."""
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY  # noqa: PLC0415 (optional)

    # not a loss, but a dispatcher to the others; and what rpg.interop.integrations.verl registers
    # where it was imported
    losses = (
        name
        for name in POLICY_LOSS_REGISTRY
        if name != "bypass_mode" and not name.startswith("rpg/")
    )
    dro = {f"{ACTOR}policy_loss.dro_beta": beta}  # it requires one
    return {name: {f"{ACTOR}policy_loss.loss_mode": name} | dro for name in losses}


def verl_kls(settings: Mapping[str, Any]) -> tuple[tuple[str, str, float], ...]:
    """Where verl has a KL, of which kind of its kl_penalty, and with which weight, 0 where it is
    off."""
    in_loss = settings[f"{ACTOR}use_kl_loss"] and settings[f"{ACTOR}kl_loss_coef"]
    in_reward = settings["algorithm.use_kl_in_reward"] and settings["algorithm.kl_ctrl.kl_coef"]
    kinds = settings[f"{ACTOR}kl_loss_type"], settings["algorithm.kl_penalty"]
    return ("loss", str(kinds[0]), in_loss), ("reward", str(kinds[1]), in_reward)


def verl_subject(name: str, source: str, beta: float, changes: Changes) -> Subject:
    """What verl trains with under its defaults, replaced by `changes` (dotted keys), but every KL
    has weight `beta`."""
    from verl.trainer.ppo.core_algos import kl_penalty  # noqa: PLC0415 (optional)
    from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: PLC0415 (optional)

    settings = {**verl_defaults(), **changes}
    estimated = settings[f"{_DISTILLATION}loss_mode"] != "forward_kl_topk"
    if (
        settings["distillation.enabled"]
        and estimated
        and not settings[f"{_DISTILLATION}use_task_rewards"]
    ):
        return _verl_distillation(name, source, beta, settings)
    actor = {
        key.removeprefix(ACTOR): value for key, value in settings.items() if key.startswith(ACTOR)
    }
    accepted = {f"policy_loss.{entry.name}" for entry in fields(PolicyLossConfig) if entry.init}
    options = {key.removeprefix("policy_loss."): actor[key] for key in accepted & actor.keys()}
    in_loss, in_reward = (kind if weight else None for _, kind, weight in verl_kls(settings))
    mode = actor["loss_agg_mode"]
    to_go = settings["algorithm.adv_estimator"] in _VERL_TO_GO
    fixed = _VERL_ACTOR | {key: actor[key] for key in _VERL_READ}
    fixed |= {"policy_loss": PolicyLossConfig(**options), "kl_loss_type": in_loss}
    both = (fixed | dict.fromkeys(VERL_BOUNDS, WIDE), fixed)
    bare, clipped = (partial(_verl_loss, ActorConfig(**config), beta) for config in both)
    estimate = partial(kl_penalty, kl_penalty=in_reward)
    advantages = partial(less_kl, estimate, beta, to_go) if in_reward else spread
    asked = sum(kind is not None for kind in (in_loss, in_reward))
    kl = "rkl" if asked else "none"
    return Subject(
        name, source, bare, clipped, asked * beta, kl, mode != "seq-mean-token-sum", advantages
    )


def _verl_distillation(name: str, source: str, beta: float, settings: Mapping[str, Any]) -> Subject:
    """verl's distillation loss: its KL estimate as a loss, or as the reward of a policy loss."""
    kind = settings[f"{_DISTILLATION}loss_mode"]
    mode = f"{ACTOR}loss_agg_mode"
    plain = verl_subject(name, source, beta, {mode: settings[mode]})
    asked = {f"{ACTOR}use_kl_loss": True, f"{ACTOR}kl_loss_type": kind, mode: settings[mode]}
    subject = verl_subject(name, source, beta, asked)
    subject = replace(subject, rewarded=False, advantages=lambda world, _ref: 0.0 * world.mask)
    if not settings[f"{_DISTILLATION}use_policy_gradient"]:
        return subject
    bare, clipped = (partial(_verl_distilled, loss, kind, beta) for loss in plain.losses)
    return replace(subject, loss=bare, clipped=clipped)


def _verl_distilled(
    policy_loss: LossFunction,
    kind: str,
    beta: float,
    *,
    ref_log_prob: Tensor | None,
    **inputs: Tensor,
) -> Any:
    """As verl's distillation_loss with use_policy_gradient: the negative KL estimate at the policy
    is the advantage."""
    from verl.trainer.ppo.core_algos import kl_penalty  # noqa: PLC0415 (optional)

    ref = inputs["old_log_prob"] if ref_log_prob is None else ref_log_prob
    advantages = -beta * kl_penalty(inputs["log_prob"], ref, kind).detach()
    return policy_loss(**inputs | {"advantages": advantages, "ref_log_prob": ref})


def _verl_loss(
    config: Any, beta: float, *, ref_log_prob: Tensor | None, **inputs: Tensor
) -> Tensor:
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty  # noqa: PLC0415 (optional)

    inputs["response_mask"] = mask = inputs["response_mask"].to(inputs["log_prob"].dtype)
    policy_loss = get_policy_loss_fn(config.policy_loss.loss_mode)
    mode = config.loss_agg_mode
    loss: Tensor = policy_loss(loss_agg_mode=mode, config=config, **inputs)[0]
    if config.kl_loss_type is None:
        return loss
    ref = inputs["old_log_prob"] if ref_log_prob is None else ref_log_prob
    penalty: Tensor = agg_loss(kl_penalty(inputs["log_prob"], ref, config.kl_loss_type), mask, mode)
    return loss + beta * penalty


VERL_CORRECTIONS = (
    "decoupled_token_is",
    "decoupled_seq_is",
    "decoupled_token_icepop",
    "decoupled_seq_is_rs",
    "decoupled_geo_rs",
    "bypass_ppo_clip",
    "bypass_pg_is",
)
_VERL_CORRECTION = ("rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold")


def verl_corrections() -> Iterator[tuple[str, dict[str, Any], Corrected]]:
    """What verl's default and its presets do about samples of another policy: (name, its settings,
    its loss and weights)."""
    from verl.trainer.config.algorithm import RolloutCorrectionConfig  # noqa: PLC0415 (optional)

    shipped = (files("verl") / "trainer/config/algorithm/rollout_correction.yaml").read_text()
    presets = {"default": RolloutCorrectionConfig(**yaml.safe_load(shipped))}
    presets |= {name: getattr(RolloutCorrectionConfig, name)() for name in VERL_CORRECTIONS}
    for name, config in presets.items():
        asked = {key: config[key] for key in _VERL_CORRECTION}
        settings = {
            key: x for key, x in asked.items() if x and asked[key.removesuffix("_threshold")]
        }
        if not config.bypass_mode:
            yield name, settings, (UNCLIPPED, partial(_verl_weights, asked))
        else:
            settings |= {"bypass": config.loss_type}
            changes = {
                "policy_loss.loss_mode": "bypass_mode",
                "policy_loss.rollout_correction": config,
            }
            changes |= {"loss_agg_mode": "seq-mean-token-sum"}
            subject = verl_subject(
                "", "", 0.0, {f"{ACTOR}{key}": value for key, value in changes.items()}
            )
            yield name, settings, (subject.losses[-1], None)


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


# --- TRL
# -----------------------------------------------------------------------------------------------

_TRL_BARE = {
    "epsilon": WIDE,
    "epsilon_high": WIDE,
    "delta": None,
    "off_policy_mask_threshold": None,
}


def trl_subject(name: str, source: str, beta: float, options: Changes) -> Subject:
    """TRL's GRPO loss under GRPOConfig's defaults, replaced by `options`, but a KL has weight
    `beta`."""
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 (optional)

    assert callable(GRPOTrainer._compute_loss)
    beta = beta if options.get("beta") else 0.0
    settings = {**options, "beta": beta}
    bare, clipped = (partial(_trl_loss, {**settings, **bounds}) for bounds in (_TRL_BARE, {}))
    per_token = options.get("loss_type") != "luspo"  # which sums over tokens
    return Subject(name, source, bare, clipped, beta, "rkl" if beta else "none", per_token)


def _trl_loss(options: Changes, *, ref_log_prob: Tensor | None, **inputs: Tensor) -> Tensor:
    """GRPOTrainer._compute_loss on a stand-in trainer whose model gives our log-probabilities."""
    from trl.trainer.grpo_config import GRPOConfig  # noqa: PLC0415 (optional)
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 (optional)

    log_prob = inputs["log_prob"]
    old_log_prob = inputs["old_log_prob"]
    mask = inputs["response_mask"].to(log_prob.dtype)
    entropies = torch.zeros_like(log_prob)
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
    ids = torch.zeros_like(log_prob, dtype=torch.long)
    nothing = ids[:, :0]
    given = {
        "prompt_ids": nothing,
        "prompt_mask": nothing,
        "completion_ids": ids,
        "completion_mask": mask,
    }
    given |= {"num_items_in_batch": mask.sum(), "advantages": inputs["advantages"][:, 0]}
    given["old_per_token_logps"] = old_log_prob
    given |= {"ref_per_token_logps": old_log_prob if ref_log_prob is None else ref_log_prob}
    loss: Tensor = GRPOTrainer._compute_loss(trainer, trainer.model, given)
    return loss
