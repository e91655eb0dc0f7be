"""A command that starts verl, as settings of a run: translated, or refused by name."""

import re
from pathlib import Path
from typing import Any

from rpg.auditing.foreign_settings import read_settings
from rpg.errors import UserError
from rpg.interop.adopting.taken_over import TABLES, Source, taken_over

_ACTOR = "actor_rollout_ref.actor."
_LOSS_MODE = f"{_ACTOR}policy_loss.loss_mode"
_CORRECTION = "algorithm.rollout_correction."
_IN_REWARD = "algorithm.use_kl_in_reward"
_ESTIMATOR = "algorithm.adv_estimator"
_DECIDES = re.compile(
    r"algorithm\.|distillation\.enabled|"
    r"actor_rollout_ref\.actor\.(clip_ratio_|tau_|policy_loss|loss_|entropy_coeff|use_kl|kl_)"
)
"""Settings of verl that decide the loss."""


class _Numbers:
    """Accepts every number."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)


_TRANSLATED: dict[str, Any] = {
    _LOSS_MODE: ("vanilla", "gspo"),
    _IN_REWARD: (True, False),
    "algorithm.kl_penalty": tuple(TABLES["estimators"]),
    "algorithm.kl_ctrl.type": ("fixed",),
    "algorithm.kl_ctrl.kl_coef": _Numbers(),
    "algorithm.gamma": (1, 1.0),
    "algorithm.lam": (1, 1.0),
    f"{_CORRECTION}rollout_is": ("token", "sequence"),
    f"{_CORRECTION}rollout_is_threshold": _Numbers(),
    f"{_CORRECTION}rollout_is_batch_normalize": (False,),
    f"{_CORRECTION}bypass_mode": (False,),
    "algorithm.filter_groups.enable": (False,),
    "distillation.enabled": (False,),
}
"""Setting of verl that decides the loss -> the values that are taken over, beside those of
settings.toml."""
_ONLY: dict[str, list[Any]] = TABLES["only"]["verl"]
"""Setting that decides what is drawn and rewarded -> its values that change nothing."""


def read_command(path: Path) -> Source:
    """The data, model and settings of a command in a shell script. Raises UserError."""
    foreign = read_settings(path)
    if foreign.trainer != "verl":
        raise UserError(
            f"{path}: starts {foreign.trainer}; accepted are commands of verl (overrides a.b=value)"
        )
    source = taken_over(foreign, path, [*_TRANSLATED, *_ONLY])
    values = foreign.values
    for key, files in (("train", source.train), ("val", source.held_out)):
        named = values.get(f"data.{key}_files", [])
        files += [named] if isinstance(named, str) else map(str, named)
    settings = source.settings
    name = source.counterpart(values, _ESTIMATOR, "advantages", "gae")
    settings["algorithm.name"] = name
    if name in ("grpo", "grpo-passk"):
        by_std = values.get("algorithm.norm_adv_by_std_in_grpo", True)
        settings["algorithm.advantage.std"] = by_std
    _take_policy_loss(settings, values)
    _take_kl(source, values)
    _take_correction(settings, values)
    _note_untranslated(source)
    source.refuse_untranslated(path)
    prompts = settings["training.prompts_per_step"]
    settings["training.mini_batch_prompts"] = min(settings["training.mini_batch_prompts"], prompts)
    return source


def _take_policy_loss(settings: dict[str, Any], values: dict[str, Any]) -> None:
    """verl's loss_mode; `vanilla` is what verl-defaults says."""
    if values.get(_LOSS_MODE) != "gspo":
        return
    settings["algorithm.surrogate"] = "gspo"
    settings["algorithm.ratio"] = "sequence"
    settings["algorithm.clip.c"] = None
    if settings["algorithm.name"] == "grpo":
        settings["algorithm.name"] = "gspo"


def _take_kl(source: Source, values: dict[str, Any]) -> None:
    """The KL in verl's loss or reward, under whichever advantages."""
    settings = source.settings
    if values.get(f"{_ACTOR}use_kl_loss"):
        kind = source.counterpart(values, f"{_ACTOR}kl_loss_type", "estimators", "low_var_kl")
        settings["algorithm.kl"] = {"type": "loss", "estimator": kind}
    elif values.get(_IN_REWARD):
        kind = source.counterpart(values, "algorithm.kl_penalty", "estimators", "kl")
        settings["algorithm.kl"] = {"type": "reward", "estimator": kind}
        settings["algorithm.beta"] = values.get("algorithm.kl_ctrl.kl_coef", 0.001)
    else:
        settings["algorithm.beta"] = 0.0
        return
    settings["algorithm.reference"] = "fixed"


def _take_correction(settings: dict[str, Any], values: dict[str, Any]) -> None:
    """verl's weights for samples of an engine that rounds otherwise."""
    level = values.get(f"{_CORRECTION}rollout_is")
    if level in ("token", "sequence"):
        cap = values.get(f"{_CORRECTION}rollout_is_threshold", 2.0)
        settings["algorithm.rollout_correction"] = {"type": "truncate", "level": level, "cap": cap}


def _note_untranslated(source: Source) -> None:
    """Whatever else decides the loss or the data."""
    assert source.foreign is not None
    values = source.foreign.values
    for key, why in source.foreign.unresolved.items():
        if _DECIDES.match(key) or key in _ONLY:
            source.untranslated.append(f"{key} ({why})")
    read = {*TABLES["verl"], *TABLES["read"]["verl"]}
    for key, value in values.items():
        if value is None or key in read:
            continue
        if key in _ONLY:
            is_taken = value in _ONLY[key]
        else:
            is_taken = not _DECIDES.match(key) or value in _TRANSLATED.get(key, ())
        if not is_taken:
            source.untranslated.append(f"{key}={value}")
    if values.get(f"{_ACTOR}use_kl_loss") and values.get(_IN_REWARD):
        source.untranslated.append("a KL in the loss and one in the reward")
