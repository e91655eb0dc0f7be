"""Adapters to audit the loss code of the *installed* peers, verl and TRL; none is a dependency of rpg-lab.

Each adapter calls the peer's own function with the arguments that its trainer would use. A peer that is not installed, or
whose code has moved, is reported as left out, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rpg.auditing.subjects import Subject

WIDE = 1e9  # a clip range that never clips


def installed(beta: float) -> tuple[list[Subject], dict[str, str]]:
    """(subjects of all installed peers, {peer: why it was left out})."""
    subjects: list[Subject] = []
    absent: dict[str, str] = {}
    for name, make in (("verl", _verl), ("trl", _trl)):
        try:
            source = f"{name} {version(name)}"
            subjects += make(source, beta)
        except PackageNotFoundError:
            absent[name] = "not installed"
        except (ImportError, AttributeError, TypeError) as error:
            absent[name] = f"its code could not be called ({type(error).__name__}: {error})"
    return subjects, absent


# --- verl ----------------------------------------------------------------------------------------------

_VERL_KL = {"k1": "rkl", "abs": "rkl", "k2": "rkl", "k3": "rkl", "k1+": "rkl", "k3+": "rkl"}

_VERL_ACTOR = {
    "strategy": "fsdp",
    "rollout_n": 1,
    "ppo_micro_batch_size_per_gpu": 1,
}  # required, not read by losses
VERL_BOUNDS = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c")


def verl_subject(
    source: str,
    loss: str,
    mode: str,
    kl: str | None,
    beta: float,
    bounds: dict[str, float],
    options: dict[str, Any],
) -> Subject:
    """verl's policy loss with the settings of one run: `bounds` by the names of VERL_BOUNDS, `options` of its policy_loss."""
    from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: PLC0415 (optional)

    known = {entry.name for entry in fields(PolicyLossConfig)}
    policy_loss = PolicyLossConfig(**{name: value for name, value in options.items() if name in known})
    wide, clipped = (
        ActorConfig(**_VERL_ACTOR, policy_loss=policy_loss, **limits)
        for limits in (dict.fromkeys(VERL_BOUNDS, WIDE), bounds)
    )
    bare, clip = (partial(_verl_loss, loss, c, kl=kl, beta=beta, mode=mode) for c in (wide, clipped))
    per_token = mode != "seq-mean-token-sum"
    return Subject(loss, source, bare, clip, beta, "rkl" if kl else "none", per_token, peer=True)


def _verl(source: str, beta: float) -> list[Subject]:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY  # noqa: PLC0415 (optional)
    from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: PLC0415 (optional)

    base: dict[str, Any] = dict(_VERL_ACTOR)
    base["policy_loss"] = PolicyLossConfig(dro_beta=beta)  # required by dro, not read by the others
    clipped = ActorConfig(**base)  # verl's own defaults
    wide = ActorConfig(**base, **dict.fromkeys(VERL_BOUNDS, WIDE))
    subjects = [
        Subject(name, source, partial(_verl_loss, name, wide), partial(_verl_loss, name, clipped), peer=True)
        for name in POLICY_LOSS_REGISTRY
        if name != "bypass_mode"  # a dispatcher to the others, not a loss
    ]
    for kind, divergence in _VERL_KL.items():
        bare, clip = (partial(_verl_loss, "vanilla", c, kl=kind, beta=beta) for c in (wide, clipped))
        name = f"vanilla + kl_penalty {kind}"
        subjects.append(Subject(name, source, bare, clip, beta, divergence, peer=True))
    return subjects


def _verl_loss(
    name: str,
    config: Any,
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    ref_log_prob: Tensor | None,
    kl: str | None = None,
    beta: float = 0.0,
    mode: str = "token-mean",
) -> Tensor:
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty  # noqa: PLC0415 (optional)

    mask = response_mask.to(log_prob.dtype)
    loss: Tensor
    loss, _ = get_policy_loss_fn(name)(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
    )
    if kl is None:
        return loss
    ref = old_log_prob if ref_log_prob is None else ref_log_prob
    penalty: Tensor = agg_loss(kl_penalty(log_prob, ref, kl), mask, mode)
    return loss + beta * penalty


# --- TRL -----------------------------------------------------------------------------------------------

# name -> (settings, has a KL); `corrected` is GRPOConfig.use_bias_correction_kl, `seq.` and
# `sequence ratio` are its importance_sampling_level
_TRL: dict[str, tuple[dict[str, Any], bool]] = {
    "grpo": ({"loss_type": "grpo"}, False),
    "bnpo": ({"loss_type": "bnpo"}, False),
    "dr_grpo": ({"loss_type": "dr_grpo"}, False),
    "dapo": ({"loss_type": "dapo"}, False),
    "cispo": ({"loss_type": "cispo"}, False),
    "sapo": ({"loss_type": "sapo"}, False),
    "grpo, sequence ratio": ({"loss_type": "grpo", "level": "sequence"}, False),
    "grpo, beta": ({"loss_type": "grpo"}, True),
    "grpo, beta, corrected": ({"loss_type": "grpo", "correct": True}, True),
    "grpo, beta, corrected, seq.": ({"loss_type": "grpo", "correct": True, "level": "sequence"}, True),
}


def _trl(source: str, beta: float) -> list[Subject]:
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 (optional)

    assert callable(GRPOTrainer._compute_loss)
    subjects = []
    for name, (settings, has_kl) in _TRL.items():
        strength = beta if has_kl else 0.0
        bare = partial(trl_loss, **settings, beta=strength, low=WIDE, high=WIDE)
        high = 5.0 if settings["loss_type"] == "cispo" else 0.2  # cispo's is a bound, not a distance from 1
        clipped = partial(trl_loss, **settings, beta=strength, low=0.2, high=high)
        meant = "rkl" if has_kl else "none"
        subjects.append(Subject(name, source, bare, clipped, strength, meant, peer=True))
    return subjects


def trl_loss(
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    ref_log_prob: Tensor | None,
    loss_type: str,
    beta: float,
    low: float,
    high: float,
    level: str = "token",
    correct: bool = False,
) -> Tensor:
    """GRPOTrainer._compute_loss on a stand-in trainer whose model gives our log-probabilities."""
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 (optional)

    mask = response_mask.to(log_prob.dtype)
    entropies = torch.zeros_like(log_prob)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_args, **_kwargs: (log_prob, entropies, None),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _entropy_bonus_enabled=False,
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, **_: x
        ),
        args=SimpleNamespace(
            use_bias_correction_kl=correct, delta=None, sapo_temperature_pos=1.0, sapo_temperature_neg=1.05,
            steps_per_generation=1,
        ),
        aux_loss_enabled=False,
        beta=beta,
        current_gradient_accumulation_steps=1,
        epsilon_high=high,
        epsilon_low=low,
        importance_sampling_level=level,
        loss_type=loss_type,
        max_completion_length=log_prob.shape[1],
        model=SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_vllm=False,
    )  # fmt: skip
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
