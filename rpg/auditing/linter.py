"""What the loss of somebody's configuration follows, in sentences, measured on the installed trainer's own code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from rpg.auditing import peers
from rpg.auditing.diagnosis import diagnose
from rpg.auditing.foreign_settings import ForeignSettings, leaves, read_settings
from rpg.auditing.measure import BY_NAME, Settings, measure
from rpg.auditing.objectives import Objective
from rpg.auditing.studies import advantage_study, aggregation_study
from rpg.auditing.subjects import Subject, from_algorithm
from rpg.catalogue import algorithm, algorithms
from rpg.errors import UserError

DRIFTS = (0.1, 0.4)
"""At which a loss is measured off-policy, in standard deviations of a logit."""


@dataclass(frozen=True)
class Reader:
    """How a trainer's settings are read: all its keys with their defaults, and the keys that its loss depends on.

    subject: (source, settings) -> what is measured, and remarks on what is not.
    """

    defaults: Callable[[], dict[str, Any]]
    loss_keys: re.Pattern[str]
    subject: Callable[[str, dict[str, Any]], tuple[Subject, list[str]]]


def lint(file: Path) -> list[str]:
    """Sentences about the loss of a verl or TRL configuration. Raises UserError where it cannot be read or measured."""
    given = read_settings(file)
    if given.trainer not in _READERS:
        raise UserError(f"{file} is for {given.trainer}; its loss is not known here")
    reader = _READERS[given.trainer]
    try:
        source = f"{given.trainer} {version(given.trainer)}"
        defaults = reader.defaults()
    except (PackageNotFoundError, ImportError):
        raise UserError(
            f"{file} is for {given.trainer}, which is not installed: pip install -e '.[peers]'"
        ) from None
    settings = defaults | given.values | {key: defaults.get(key) for key in given.unresolved}
    try:
        subject, remarks = reader.subject(source, settings)
        sentences = [*remarks, *_measured(subject)]
    except (AttributeError, KeyError, TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise UserError(
            f"{file}: {source} refuses its loss settings ({type(error).__name__}: {error})"
        ) from None
    return [*sentences, *_not_read(file, source, given, defaults, reader.loss_keys)]


def _not_read(
    file: Path, source: str, given: ForeignSettings, defaults: dict[str, Any], loss_keys: re.Pattern[str]
) -> Iterator[str]:
    of_the_loss = sorted(key for key in given.unresolved if loss_keys.match(key))
    for key in of_the_loss:
        why = given.unresolved[key]
        yield f"{file}: {key} could not be resolved ({why}); measured with {source}'s default, {defaults.get(key)!r}."
    if others := sorted(set(given.unresolved) - set(of_the_loss)):
        yield f"{file}: could not be resolved, and does not enter the loss: {', '.join(others)}."
    if unknown := sorted(set(given.values) - set(defaults)):
        yield f"{file}: {source} has no such keys: {', '.join(unknown)}."
    yield from (f"{file}: {remark}." for remark in given.remarks)
    if given.program and given.program.split(".")[0] != given.trainer:
        yield (
            f"{file} starts {given.program}, which can replace {given.trainer}'s losses; the figures are for {source}'s own."
        )


def _measured(subject: Subject) -> Iterator[str]:
    """The audit's sentence, and how far the loss is off where the policy has moved away from its samples."""
    yield diagnose(subject, Settings(beta=subject.beta)).sentence
    result = measure(subject, Settings(drifts=(0.0, *DRIFTS), beta=subject.beta))
    if result.note:
        yield f"It could not be measured off-policy ({result.note})."
        return
    reached = (BY_NAME[name] for name in result.exact_on_policy)
    target = next(
        (o for o in reached if o.divergence == subject.divergence), Objective("token", subject.divergence)
    )
    for drift in DRIFTS:
        bare, clipped = (result.point(drift, clipped) for clipped in (False, True))
        point = clipped or bare
        if point is None:  # of losses whose responses affect each other, only one drift is measured
            continue
        off, without = (p.bias[str(target)] if p else 0.0 for p in (point, bare))
        clip = f" with its clip, {without:.1%} without" if clipped and abs(off - without) > 5e-4 else ""
        yield (
            f"Where the policy is {point.kl / Settings.length:.3f} nats per token from the one that drew the samples (drift "
            f"{drift:g}), the step is {off:.1%} off the gradient of {target.short}{clip}; noise {point.noise:.1f}."
        )


def _aggregation(mode: str) -> Iterator[str]:
    result = next((r for r in aggregation_study() if r.name == mode), None)
    if result and result.bias > 1e-10:
        yield (
            f"Aggregation {mode}: a response counts by 1/length, which favours short right answers and long wrong ones; the "
            f"step is {result.bias:.1%} off for responses of up to 4 tokens."
        )
    elif result:
        yield f"Aggregation {mode}: over a large batch every token counts the same, and the direction is exact."
    else:
        yield f"Aggregation {mode}: its effect on lengths was not measured."


def _advantages(name: str, studied: str | None) -> str:
    """What the advantage estimator adds; `studied` is its name in the audit's study."""
    result = next((r for r in advantage_study(sizes=(8,)) if r.name == studied), None)
    if result is None:
        return f"Advantages {name}: their own bias was not measured."
    off = "exact up to a scale" if result.bias < 1e-10 else f"{result.bias:.1%} off the gradient of E[R]"
    return (
        f"Advantages {name} ({result.name}): in groups of 8, for two prompts of different difficulty, {off}."
    )


def _updates(count: float) -> str:
    if count <= 1:
        return (
            "There is one optimizer step per rollout: on-policy, if the sampler has the policy's weights and precision; a "
            "clip of the ratio never acts."
        )
    return f"There are {count:g} optimizer steps per rollout: all but the first are off-policy."


def _kl(where: str, kind: str, weight: float) -> str:
    return (
        f"A reverse KL is asked for in the {where} ({kind}, weight {weight:g}); it is measured with weight "
        f"{Settings.beta:g}, so that errors in it are visible."
    )


# --- verl ----------------------------------------------------------------------------------------------

_ACTOR = "actor_rollout_ref.actor."
_VERL_LOSS = re.compile(
    r"algorithm\.|data\.train_batch_size|actor_rollout_ref\.actor\.(clip_|tau_|policy_loss|loss_|entropy_coeff|use_kl|kl_"
    r"|ppo_epochs|ppo_mini_batch_size$)"
)
_VERL_ADVANTAGES = {
    "rloo": "mean of the others (RLOO)",
    "rloo_vectorized": "mean of the others (RLOO)",
    "reinforce_plus_plus": "batch mean and std (REINFORCE++, PPO)",
    "reinforce_plus_plus_baseline": "group mean, batch std (REINFORCE++-Baseline)",
    "gpg": "group mean, rescaled (GPG)",
}
_VERL_TO_GO = ("gae", "reinforce_plus_plus")
"""Estimators under which a token's advantage has the rewards from there on."""


def _verl_defaults() -> dict[str, Any]:
    """Every key of verl's own flattened configuration, with its default; verl is not imported."""
    tree = yaml.safe_load((files("verl") / "trainer/config/_generated_ppo_trainer.yaml").read_text())
    return dict(leaves(tree))


def _verl(source: str, settings: dict[str, Any]) -> tuple[Subject, list[str]]:
    actor = {key.removeprefix(_ACTOR): value for key, value in settings.items() if key.startswith(_ACTOR)}
    estimator, kind = settings["algorithm.adv_estimator"], str(actor["kl_loss_type"])
    updates = settings["data.train_batch_size"] / actor["ppo_mini_batch_size"] * actor["ppo_epochs"]
    if estimator == "rpg" and kind.startswith("rpg_"):
        subject, remarks = _released(kind)
        return subject, [*remarks, _updates(updates)]
    beta, loss = Settings.beta, actor["policy_loss.loss_mode"]
    remarks = [f"{source}: policy loss {loss}."]
    studied = {True: "group mean and std (GRPO, DAPO)", False: "group mean (RPG, Dr. GRPO)"}
    by_std = studied[bool(settings["algorithm.norm_adv_by_std_in_grpo"])]
    remarks.append(_advantages(estimator, by_std if estimator == "grpo" else _VERL_ADVANTAGES.get(estimator)))
    in_loss = kind if actor["use_kl_loss"] and actor["kl_loss_coef"] else None
    in_reward = settings["algorithm.kl_penalty"] if settings["algorithm.use_kl_in_reward"] else None
    if in_reward and not settings["algorithm.kl_ctrl.kl_coef"]:
        in_reward = None
    remarks += [_kl("loss", kind, actor["kl_loss_coef"])] * bool(in_loss)
    remarks += [_kl("reward", str(in_reward), settings["algorithm.kl_ctrl.kl_coef"])] * bool(in_reward)
    remarks += ["There is no KL."] * (not in_loss and not in_reward)
    if actor["entropy_coeff"]:
        remarks.append(f"The entropy bonus ({actor['entropy_coeff']:g}) is not part of this measurement.")
    for key in ("rollout_is", "rollout_rs"):
        if value := settings[f"algorithm.rollout_correction.{key}"]:
            remarks.append(f"The correction for the sampler ({key} {value}) is not part of this measurement.")
    remarks += [*_aggregation(actor["loss_agg_mode"]), _updates(updates)]
    subject = peers.verl_subject(
        loss, source, beta, loss=loss, mode=actor["loss_agg_mode"], kl=in_loss, reward_kl=in_reward,
        to_go=estimator in _VERL_TO_GO,
        actor={key: actor[key] for key in (*peers.VERL_BOUNDS, "tau_pos", "tau_neg")},
        options={k.removeprefix("policy_loss."): v for k, v in actor.items() if k.startswith("policy_loss.")},
    )  # fmt: skip
    return subject, remarks


def _released(kind: str) -> tuple[Subject, list[str]]:
    """The loss of a script that was released with the RPG paper; its code is no part of verl, but of the catalogue."""
    name = kind.removesuffix("_clip_ppo").replace("_rf_", "_reinforce_").replace("_", "-")
    if name not in algorithms("released"):
        raise KeyError(f"kl_loss_type {kind}")
    algo = algorithm(name, "released")
    what = f"The loss is {kind} of the code released with the RPG paper, here {name} with preset released."
    return from_algorithm(algo, Settings.beta), [what, *_aggregation(algo.loss_agg_mode)]


# --- TRL -----------------------------------------------------------------------------------------------

_TRL_MODES = {
    **dict.fromkeys(("grpo", "sapo"), "seq-mean-token-mean"),
    **dict.fromkeys(("bnpo", "dapo", "cispo", "vespo"), "token-mean"),
    "dr_grpo": "seq-mean-token-sum-norm",
    "luspo": "seq-mean-token-sum",
}
_TRL_LOSS = re.compile(
    r"beta$|epsilon|delta$|loss_type|importance_sampling|scale_rewards|use_bias|num_iter|steps_per_gen|sapo|vespo|off_policy"
)
_TRL_ADVANTAGES = {"group": "group mean and std (GRPO, DAPO)", "none": "group mean (RPG, Dr. GRPO)"}
_TRL_UNMEASURED = ("top_entropy_quantile", "entropy_coef", "use_adaptive_entropy", "use_liger_kernel")


def _trl_defaults() -> dict[str, Any]:
    from trl.scripts.utils import ScriptArguments  # noqa: PLC0415 (optional)
    from trl.trainer.grpo_config import GRPOConfig  # noqa: PLC0415 (optional)
    from trl.trainer.model_config import ModelConfig  # noqa: PLC0415 (optional)

    kinds = (ScriptArguments, ModelConfig, GRPOConfig)
    return {entry.name: entry.default for kind in kinds for entry in fields(kind)}


def _trl(source: str, settings: dict[str, Any]) -> tuple[Subject, list[str]]:
    loss, beta = settings["loss_type"], Settings.beta if settings["beta"] else 0.0
    remarks = [f"{source}: loss_type {loss}, ratios per {settings['importance_sampling_level']}."]
    scaling = {True: "group", False: "none"}.get(settings["scale_rewards"], settings["scale_rewards"])
    remarks.append(_advantages(f"with scale_rewards {scaling}", _TRL_ADVANTAGES.get(scaling)))
    remarks.append(_kl("loss", "k3", settings["beta"]) if beta else "There is no KL.")
    if beta and not settings["use_bias_correction_kl"]:
        remarks.append("use_bias_correction_kl is off: the KL lacks its ratio.")
    if loss == "cispo" and settings["epsilon_high"] is None:
        remarks.append(
            f"epsilon_high is not set: cispo takes epsilon, {settings['epsilon']:g}, as the most that a ratio may be, so "
            "that almost every token has this weight; MiniMax-M1's is 5."
        )
    defaults = _trl_defaults()
    changed = [key for key in _TRL_UNMEASURED if settings[key] != defaults[key]]
    remarks += [f"{key} {settings[key]} is not part of this measurement." for key in changed]
    if settings["use_vllm"] and settings["vllm_importance_sampling_correction"]:
        mode, most = (settings[f"vllm_importance_sampling_{key}"] for key in ("mode", "clip_max"))
        remarks.append(
            f"The correction for vLLM's rounding ({mode}, {most}) is not part of this measurement."
        )
    accumulated = settings["gradient_accumulation_steps"]
    steps = settings["steps_per_generation"] or accumulated
    remarks += _aggregation(_TRL_MODES.get(loss, loss))
    remarks.append(_updates(steps / accumulated * settings["num_iterations"]))
    known = {key: value for key, value in settings.items() if _TRL_LOSS.match(key)}
    return peers.trl_subject(loss, source, beta, known), remarks


_READERS = {
    "verl": Reader(_verl_defaults, _VERL_LOSS, _verl),
    "trl": Reader(_trl_defaults, _TRL_LOSS, _trl),
}
