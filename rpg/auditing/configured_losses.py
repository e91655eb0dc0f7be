"""The loss that a trainer's settings describe: what the audit measures of it, and in sentences what
it does not.

verl and TRL are measured on the installed package's own code, prime-rl and open-instruct on the
formulas of pinned.toml.
"""

from dataclasses import fields
from importlib.metadata import version
from typing import Any

from rpg.auditing import peers, pinned
from rpg.auditing.measure import Settings
from rpg.auditing.peers import ACTOR
from rpg.auditing.pinned import Trainer
from rpg.auditing.studies import advantage_study
from rpg.auditing.subjects import Subject, from_algorithm
from rpg.catalogue import algorithm, algorithms, override

INSTALLED = ("verl", "trl")
_CORRECTION = "algorithm.rollout_correction."
_TEACHER = "the reverse KL to the teacher is asked for, without a reward."


def described(trainer: Trainer, configuration: str = "") -> tuple[str, dict[str, Any]]:
    """A trainer with its version, and its keys with their defaults: all where it is installed, else
    those that are pinned; `configuration` is verl's, e.g. ppo_megatron_trainer. Raises ImportError,
    PackageNotFoundError: it is not installed.
    """
    name = trainer.name
    if name == "verl":
        return f"{name} {version(name)}", peers.verl_defaults("megatron" in configuration)
    if name == "trl":
        return f"{name} {version(name)}", _trl_defaults()
    return f"{name} at {trainer.commit[:8]}", trainer.defaults


def _advantages(name: str, studied: str | None) -> str:
    """What the advantage estimator adds; `studied` is its name in the audit's study."""
    result = next((r for r in advantage_study(sizes=(8,)) if r.name == studied), None)
    if result is None:
        return f"Advantages {name}: their own bias was not measured."
    off = (
        "exact up to a scale"
        if result.bias < 1e-10
        else f"{result.bias:.1%} off the gradient of E[R]"
    )
    prompts = "in groups of 8, for two prompts of different difficulty"
    return f"Advantages {name} ({result.name}): {prompts}, {off}."


def _updates(count: float) -> str:
    if count <= 1:
        return (
            "There is one optimizer step per rollout: on-policy, if the sampler has the "
            "policy's weights and precision; a "
            "clip of the ratio never acts."
        )
    return f"There are {count:g} optimizer steps per rollout: all but the first are off-policy."


def _kl(*asked: tuple[str, str, float]) -> list[str]:
    """Of each KL where it is, its kind and its weight, 0 where none is asked for."""
    remarks = [
        f"A reverse KL is asked for in the {where} ({kind}, weight {weight:g}); it is "
        "measured with weight "
        f"{Settings.beta:g}, so that errors in it are visible."
        for where, kind, weight in asked
        if weight
    ]
    return remarks or ["There is no KL."]


# --- verl
# ----------------------------------------------------------------------------------------------


def _verl(source: str, settings: dict[str, Any], trainer: Trainer) -> tuple[Subject, list[str]]:
    correction = {
        k.removeprefix(_CORRECTION): v for k, v in settings.items() if k.startswith(_CORRECTION)
    }
    bypass = correction["bypass_mode"]
    way = correction["loss_type"]
    remarks = list[str]()
    if bypass:  # as verl's apply_bypass_mode, whatever loss_mode says
        loss = {"loss_mode": "bypass_mode", "rollout_correction": correction}
        settings = settings | {f"{ACTOR}policy_loss.{key}": value for key, value in loss.items()}
    for key in ("rollout_is", "rollout_rs"):
        if correction[key] and not bypass:
            remarks.append(
                f"{_CORRECTION}{key} ({correction[key]}) is not part of this measurement."
            )
    actor = {
        key.removeprefix(ACTOR): value for key, value in settings.items() if key.startswith(ACTOR)
    }
    estimator = settings["algorithm.adv_estimator"]
    kind = str(actor["kl_loss_type"])
    updates = settings["data.train_batch_size"] / actor["ppo_mini_batch_size"] * actor["ppo_epochs"]
    if estimator == "rpg" and kind.startswith("rpg_"):
        subject, sentences = _released(kind, actor)
        sentences += remarks
        sentences.append(_updates(updates))
        return subject, sentences
    mode = actor["policy_loss.loss_mode"]
    subject = peers.verl_subject(mode, source, Settings.beta, settings)
    if settings["distillation.enabled"]:
        kl = settings["distillation.distillation_loss.loss_mode"]
        as_reward = settings["distillation.distillation_loss.use_policy_gradient"]
        how = f"{source}: distillation by {kl}, use_policy_gradient {str(as_reward).lower()}"
        if not subject.rewarded:
            return subject, [f"{how}: {_TEACHER}", *remarks, _updates(updates)]
        remarks.append(f"{how}, is not part of this measurement.")
    shown_way = f" ({way})" if bypass else ""
    remarks.append(f"{source}: policy loss {mode}{shown_way}.")
    plain = estimator == "grpo" and not settings["algorithm.norm_adv_by_std_in_grpo"]
    studied = trainer.advantages.get(f"{estimator}, not by std" if plain else estimator)
    remarks.append(_advantages(estimator, studied))
    remarks += _kl(*peers.verl_kls(settings))
    remarks.append(_updates(updates))
    return subject, remarks


def _released(kind: str, actor: dict[str, Any]) -> tuple[Subject, list[str]]:
    """The loss of a script that was released with the RPG paper; its code is not part of verl, but
    of the catalogue."""
    name = kind.removesuffix("_clip_ppo").replace("_rf_", "_reinforce_").replace("_", "-")
    if name not in algorithms("released"):
        raise KeyError(f"kl_loss_type {kind}")
    clip = {part: actor[f"clip_ratio_{part}"] for part in ("low", "high", "c")}
    algo = override(algorithm(name, "released"), clip=clip, loss_agg_mode=actor["loss_agg_mode"])
    what = (
        f"The loss is {kind} of the code released with the RPG paper, here {name} with preset "
        "released."
    )
    return from_algorithm(algo, Settings.beta), [what]


# --- TRL
# -----------------------------------------------------------------------------------------------


def _trl_defaults() -> dict[str, Any]:
    from trl.scripts.grpo import GRPOScriptArguments  # noqa: PLC0415 (optional)
    from trl.trainer.grpo_config import GRPOConfig  # noqa: PLC0415 (optional)
    from trl.trainer.model_config import ModelConfig  # noqa: PLC0415 (optional)

    kinds = (GRPOScriptArguments, ModelConfig, GRPOConfig)
    return {entry.name: entry.default for kind in kinds for entry in fields(kind)}


def _trl(source: str, settings: dict[str, Any], trainer: Trainer) -> tuple[Subject, list[str]]:
    loss = settings["loss_type"]
    remarks = [f"{source}: loss_type {loss}, ratios per {settings['importance_sampling_level']}."]
    scaling = {True: "group", False: "none"}.get(
        settings["scale_rewards"], settings["scale_rewards"]
    )
    remarks.append(_advantages(f"with scale_rewards {scaling}", trainer.advantages.get(scaling)))
    remarks += _kl(("loss", "k3", settings["beta"]))
    if settings["beta"] and not settings["use_bias_correction_kl"]:
        remarks.append("use_bias_correction_kl is off: the KL lacks its ratio.")
    if loss == "cispo" and settings["epsilon_high"] is None:
        remarks.append(
            f"epsilon_high is not set: cispo takes epsilon, {settings['epsilon']:g}, as the "
            "most that a ratio may be, so "
            "that almost every token has this weight; MiniMax-M1's is 5."
        )
    if settings["use_vllm"] and settings["vllm_importance_sampling_correction"]:
        rule = ", ".join(
            str(settings[f"vllm_importance_sampling_{key}"]) for key in ("mode", "clip_max")
        )
        remarks.append(
            f"The correction for vLLM's rounding ({rule}) is not part of this measurement."
        )
    accumulated = settings["gradient_accumulation_steps"]
    steps = settings["steps_per_generation"] or accumulated
    if settings["generation_batch_size"] is None:
        remarks.append(_updates(steps / accumulated * settings["num_iterations"]))
    else:
        remarks.append(
            "With generation_batch_size, the optimizer steps per rollout depend on the processes."
        )
    loss_settings = {key: value for key, value in settings.items() if trainer.loss_keys.match(key)}
    return peers.trl_subject(loss, source, Settings.beta, loss_settings), remarks


# --- trainers that are not installed
# -------------------------------------------------------------------


def _prime(source: str, settings: dict[str, Any], trainer: Trainer) -> tuple[Subject, list[str]]:
    algo = settings["orchestrator.algo.type"]
    kind = settings["trainer.loss.type"]
    keys = ("dppo_mask_high", "dppo_mask_low", "ipo_threshold", "kl_tau")
    high, low, move, drift = (settings[f"trainer.loss.{key}"] for key in keys)
    if algo == "sft":
        why = "a cross-entropy of another model's samples, no objective of RL"
        raise ValueError(f"orchestrator.algo.type sft is {why}")
    if algo in ("opd", "opsd"):
        loss = trainer.losses["ref_kl (distillation)"]
        remarks = [f"{source}: algorithm {algo}: {_TEACHER}"]
    else:
        masks = {"default": {"low": low, "high": high}, "ipo": {"low": move, "high": move}}
        if kind not in masks:
            raise ValueError(f"trainer.loss.type {kind!r}; measured are {' and '.join(masks)}")
        loss = override(trainer.losses[kind], mask=masks[kind], drift_penalty=drift)
        remarks = [f"{source}: algorithm {algo}, loss {kind}. There is no KL to a reference."]
        remarks.append(_advantages(algo, trainer.advantages.get(algo)))
    remarks.append(_stale(settings["orchestrator.max_off_policy_steps"], "max_off_policy_steps"))
    return pinned.subject(algo, source, loss, Settings.beta), remarks


def _stale(steps: float, key: str) -> str:
    return f"Samples may be up to {steps:g} steps old ({key}): training is off-policy."


def _open(source: str, settings: dict[str, Any], trainer: Trainer) -> tuple[Subject, list[str]]:
    loss, estimator, high = (settings[key] for key in ("loss_fn", "kl_estimator", "clip_higher"))
    for key, accepted in (("loss_fn", ("dapo", "cispo")), ("kl_estimator", (0, 1, 2, 3))):
        if settings[key] not in accepted:
            raise ValueError(f"{key} {settings[key]!r}; accepted: {', '.join(map(str, accepted))}")
    updates = settings["num_mini_batches"] * settings["num_epochs"]
    # with one step per rollout the policy is its own `old`, and only rho knows how stale the
    # samples are
    alone = updates == 1 and not settings["use_vllm_logprobs"]
    kl = ("k1", "k2", "k3", "k1")[estimator]
    weighted = estimator == 3 and ("score" if alone else True)
    parts: dict[str, Any] = {
        "kl": {"estimator": kl, "weighted": weighted} if settings["beta"] else "none"
    }
    if alone and settings["use_rho_correction"]:
        least = settings["rho_clamp_lower_bound"]
        most = settings["rho_clamp_upper_bound"] or 1e9
        parts["clip"] = {"low": 1 - least, "high": most - 1}
    elif alone:
        parts |= {"surrogate": "policy_gradient", "clip": None}
    else:
        parts["clip"] = {"high": high} | ({"low": settings["clip_lower"]} if loss == "dapo" else {})
    if settings["loss_denominator"] != "token":  # a constant
        parts["loss_agg_mode"] = "seq-mean-token-sum"
    name = "dapo, stale samples" if alone else f"{loss}, mini-batches"
    algo = override(trainer.losses[name], **parts)
    scaling = settings["advantage_normalization_type"]
    remarks = [f"{source}: loss_fn {loss}.", _advantages(scaling, trainer.advantages.get(scaling))]
    remarks += _kl(("loss", f"kl_estimator {estimator}, {kl}", settings["beta"]))
    is_measured_or_one = alone or settings["use_vllm_logprobs"]
    if settings["use_rho_correction"] and not is_measured_or_one:
        remarks.append("use_rho_correction is not part of this measurement.")
    if updates > 1:
        remarks.append(_updates(updates))
    remarks.append(_stale(settings["async_steps"], "async_steps"))
    return pinned.subject(loss, source, algo, Settings.beta), remarks


READERS = {"verl": _verl, "trl": _trl, "prime-rl": _prime, "open-instruct": _open}
"""Trainer -> of (its version, all settings, itself) what is measured, and remarks."""
