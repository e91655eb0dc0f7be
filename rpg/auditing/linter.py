"""What the loss of somebody's configuration follows, in sentences, measured on the installed trainer's own code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from rpg.auditing import peers
from rpg.auditing.diagnosis import diagnose
from rpg.auditing.foreign_settings import ForeignSettings, leaves, read_settings
from rpg.auditing.measure import Settings, measure
from rpg.auditing.objectives import Objective
from rpg.auditing.studies import aggregation_study
from rpg.auditing.subjects import Subject
from rpg.errors import UserError

DRIFT = 0.4
_ACTOR = "actor_rollout_ref.actor."


def lint(file: Path) -> list[str]:
    """Sentences about the loss of a verl or TRL configuration. Raises UserError where it cannot be read or measured."""
    found = read_settings(file)
    try:
        source = f"{found.trainer} {version(found.trainer)}"
        defaults = _verl_defaults() if found.trainer == "verl" else _trl_defaults()
    except (PackageNotFoundError, ImportError):
        raise UserError(
            f"{file} is for {found.trainer}, which is not installed: pip install -e '.[peers]'"
        ) from None
    settings = defaults | found.values
    for key in found.unresolved:
        settings[key] = defaults.get(key)
    describe = _verl if found.trainer == "verl" else _trl
    try:
        subject, remarks = describe(source, settings)
        sentences = [*remarks, *_measured(subject)]
    except (AttributeError, KeyError, TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise UserError(
            f"{file}: {source} refuses its loss settings ({type(error).__name__}: {error})"
        ) from None
    return [*sentences, *_not_read(file, source, found, defaults)]


def _not_read(file: Path, source: str, found: ForeignSettings, defaults: dict[str, Any]) -> Iterator[str]:
    for key, why in sorted(found.unresolved.items()):
        yield f"{file}: {key} could not be resolved ({why}); {source}'s default was used: {defaults.get(key)!r}."
    if unknown := sorted(set(found.values) - set(defaults)):
        yield f"{file}: {source} has no such keys: {', '.join(unknown)}."


def _measured(subject: Subject) -> Iterator[str]:
    """The audit's sentence, and how far the loss is off where the policy has moved away from its samples."""
    yield diagnose(subject, Settings(beta=subject.beta)).sentence
    result = measure(subject, Settings(drifts=(0.0, DRIFT), beta=subject.beta))
    if result.note:
        yield f"It could not be measured off-policy ({result.note})."
        return
    target = Objective("token", subject.divergence)
    bare, clipped = (result.point(DRIFT, clipped) for clipped in (False, True))
    if bare and clipped:
        yield (
            f"At drift {DRIFT:g} (a KL of {bare.kl:.3f} nats per response) its step is {clipped.bias[str(target)]:.1%} off "
            f"the gradient of {target.short} with the clip, {bare.bias[str(target)]:.1%} without; noise {clipped.noise:.1f}."
        )


def _aggregation(mode: str) -> Iterator[str]:
    result = next((r for r in aggregation_study() if r.name == mode), None)
    if result and result.bias > 1e-10:
        yield (
            f"Aggregation {mode}: a response counts by 1/length, which favours short right answers; the step is "
            f"{result.bias:.1%} off for responses of up to 4 tokens."
        )
    elif result:
        yield f"Aggregation {mode}: over a large batch every token counts the same; the direction is exact."
    else:
        yield f"Aggregation {mode}: its effect on lengths was not measured."


# --- verl ----------------------------------------------------------------------------------------------


def _verl_defaults() -> dict[str, Any]:
    """Every key of verl's own flattened configuration, with its default; verl is not imported."""
    tree = yaml.safe_load((files("verl") / "trainer/config/_generated_ppo_trainer.yaml").read_text())
    return dict(leaves(tree))


def _verl(source: str, settings: dict[str, Any]) -> tuple[Subject, list[str]]:
    actor = {key.removeprefix(_ACTOR): value for key, value in settings.items() if key.startswith(_ACTOR)}
    mode, loss = actor["loss_agg_mode"], actor["policy_loss.loss_mode"]
    remarks = [f"{source}: policy loss {loss}, advantages {settings['algorithm.adv_estimator']}."]
    kl, beta = None, 0.0
    if actor["use_kl_loss"] and actor["kl_loss_coef"]:
        kl, beta = str(actor["kl_loss_type"]), Settings.beta
        remarks.append(
            f"A reverse KL is asked for in the loss, estimated by {kl}, with weight {actor['kl_loss_coef']:g}; it is "
            f"measured with {beta:g}, so that errors in it are visible."
        )
    else:
        remarks.append("There is no KL in the loss.")
    if settings["algorithm.use_kl_in_reward"]:
        remarks.append("The KL in the reward is not part of this measurement.")
    if actor["entropy_coeff"]:
        remarks.append(f"The entropy bonus ({actor['entropy_coeff']:g}) is not part of this measurement.")
    remarks += _aggregation(mode)
    bounds = {name: actor[name] for name in peers.VERL_BOUNDS if actor.get(name) is not None}
    options = {k.removeprefix("policy_loss."): v for k, v in actor.items() if k.startswith("policy_loss.")}
    return peers.verl_subject(source, loss, mode, kl, beta, bounds, options), remarks


# --- TRL -----------------------------------------------------------------------------------------------

_TRL_MODES = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
} | dict.fromkeys(("bnpo", "dapo", "cispo"), "token-mean")
_TRL_UNMEASURED = ("delta", "off_policy_mask_threshold", "top_entropy_quantile")


def _trl_defaults() -> dict[str, Any]:
    from trl import GRPOConfig, ModelConfig, ScriptArguments  # noqa: PLC0415 (optional)

    kinds = (ScriptArguments, ModelConfig, GRPOConfig)
    return {entry.name: entry.default for kind in kinds for entry in fields(kind)}


def _trl(source: str, settings: dict[str, Any]) -> tuple[Subject, list[str]]:
    loss, beta = settings["loss_type"], Settings.beta if settings["beta"] else 0.0
    level = settings["importance_sampling_level"]
    remarks = [f"{source}: loss_type {loss}, ratios per {level}."]
    if beta:
        remarks.append(
            f"A reverse KL is asked for with weight {settings['beta']:g}; it is measured with {beta:g}, so that errors in "
            "it are visible."
        )
    else:
        remarks.append("There is no KL.")
    defaults = _trl_defaults()
    changed = [key for key in _TRL_UNMEASURED if settings[key] != defaults[key]]
    remarks += [f"{key} {settings[key]} is not part of this measurement." for key in changed]
    remarks += _aggregation(_TRL_MODES.get(loss, loss))
    low, high = settings["epsilon"], settings["epsilon_high"]
    make = partial(
        partial,
        peers.trl_loss,
        loss_type=loss,
        beta=beta,
        level=level,
        correct=settings["use_bias_correction_kl"],
    )
    bare, clipped = make(low=peers.WIDE, high=peers.WIDE), make(low=low, high=low if high is None else high)
    return Subject(loss, source, bare, clipped, beta, "rkl" if beta else "none", peer=True), remarks
