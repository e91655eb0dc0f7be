"""`backend.verl`: settings of verl itself, by their dotted names, for what this project has no field for.

What our fields decide is refused here by the field's name, so that a run never trains what its file does not say. Every
other key goes to verl as it is; `unknown` compares it with verl's own configuration where verl is installed.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rpg.config.errors import nearest

ACTOR, REF, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout", "model"))
_OURS = "follows from the algorithm"
_OFFLOAD, _TOKENS, _OPTIMIZER = "backend.offload", "backend.max_tokens_per_gpu", "training.optimizer"
_GENERATES, _VALIDATES = "rollout, backend.rollout", "backend.validation_samples, evaluation"
_REWARD = "reward, task.verifier"
_GROUPS = "algorithm (dynamic_sampling), rollout.max_refills"
_NO_CRITIC = "(no run has a critic: algorithm.advantage)"
_STALENESS = "rollout.staleness"

DERIVED: dict[str, str] = {
    "data.train_files": "task",
    "data.val_files": "task, evaluation.benchmarks",
    "data.train_batch_size": "training.prompts_per_step",
    "data.gen_batch_size": _GROUPS,
    "data.max_prompt_length": "rollout.max_prompt_tokens",
    "data.max_response_length": "rollout.max_response_tokens",
    "data.filter_overlong_prompts": "rollout.max_prompt_tokens",
    "data.seed": "seed",
    "data.dataloader_num_workers": "(the order of prompts is the run's own)",
    f"{MODEL}.path": "model.path",
    f"{MODEL}.hf_config_path": "model.path",
    f"{MODEL}.tokenizer_path": "model.path",
    f"{MODEL}.enable_gradient_checkpointing": "backend.gradient_checkpointing",
    f"{MODEL}.custom_chat_template": "task.chat",
    f"{MODEL}.lora": "model.lora",
    f"{MODEL}.lora_rank": "model.lora.rank",
    f"{MODEL}.lora_alpha": "model.lora.alpha",
    f"{MODEL}.target_modules": "model.lora.targets",
    f"{MODEL}.target_parameters": "model.lora.targets",
    f"{MODEL}.lora_adapter_path": "model.path",
    f"{ACTOR}.strategy": "backend.strategy",
    f"{REF}.strategy": "backend.strategy",
    f"{ACTOR}.ppo_mini_batch_size": "training.mini_batch_prompts",
    f"{ACTOR}.ppo_micro_batch_size": _TOKENS,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": _TOKENS,
    f"{ACTOR}.ppo_epochs": "training.epochs",
    f"{ACTOR}.use_dynamic_bsz": _TOKENS,
    f"{ACTOR}.ppo_max_token_len_per_gpu": _TOKENS,
    f"{ACTOR}.ulysses_sequence_parallel_size": "backend.sequence_parallel",
    f"{ACTOR}.data_loader_seed": "seed",
    f"{ACTOR}.shuffle": "seed",
    f"{ACTOR}.grad_clip": "training.max_grad_norm",
    f"{ACTOR}.optim": _OPTIMIZER,
    f"{ACTOR}.fsdp_config.param_offload": _OFFLOAD,
    f"{ACTOR}.fsdp_config.optimizer_offload": _OFFLOAD,
    f"{ACTOR}.fsdp_config.seed": "seed",
    f"{ACTOR}.fsdp_config.mixed_precision": "model.dtype",
    f"{ACTOR}.checkpoint": "training.checkpoint_every, training.keep_checkpoints",
    f"{ACTOR}.use_kl_loss": _OURS,
    f"{ACTOR}.loss_agg_mode": "algorithm.loss_agg_mode",
    f"{ACTOR}.loss_scale_factor": "algorithm.loss_agg_mode",
    f"{ACTOR}.clip_ratio": "algorithm.clip",
    f"{ACTOR}.clip_ratio_low": "algorithm.clip.low",
    f"{ACTOR}.clip_ratio_high": "algorithm.clip.high",
    f"{ACTOR}.clip_ratio_c": "algorithm.clip.c",
    f"{ACTOR}.policy_loss": "algorithm",
    f"{ACTOR}.kl_loss_coef": "algorithm.beta",
    f"{ACTOR}.kl_loss_type": "algorithm.kl",
    f"{ACTOR}.entropy_coeff": "training.entropy_coeff",
    f"{ACTOR}.rollout_n": "rollout.group_size",
    f"{REF}.fsdp_config.param_offload": _OFFLOAD,
    f"{REF}.fsdp_config.optimizer_offload": _OFFLOAD,
    f"{REF}.fsdp_config.seed": "seed",
    f"{REF}.fsdp_config.mixed_precision": "model.dtype",
    f"{REF}.log_prob_use_dynamic_bsz": _TOKENS,
    f"{REF}.log_prob_max_token_len_per_gpu": _TOKENS,
    f"{ROLLOUT}.name": "backend.rollout.type",
    f"{ROLLOUT}.mode": "backend.rollout.type",
    f"{ROLLOUT}.n": "rollout.group_size",
    f"{ROLLOUT}.temperature": "rollout.temperature",
    f"{ROLLOUT}.top_k": _GENERATES,
    f"{ROLLOUT}.top_p": _GENERATES,
    f"{ROLLOUT}.do_sample": _GENERATES,
    f"{ROLLOUT}.seed": "seed",
    f"{ROLLOUT}.dtype": "model.dtype",
    f"{ROLLOUT}.prompt_length": "rollout.max_prompt_tokens",
    f"{ROLLOUT}.response_length": "rollout.max_response_tokens",
    f"{ROLLOUT}.max_model_len": "rollout.max_prompt_tokens, rollout.max_response_tokens",
    f"{ROLLOUT}.tensor_model_parallel_size": "backend.rollout.tensor_parallel",
    f"{ROLLOUT}.gpu_memory_utilization": "backend.rollout.gpu_memory_utilization",
    f"{ROLLOUT}.enforce_eager": "backend.rollout.enforce_eager",
    f"{ROLLOUT}.max_num_batched_tokens": "backend.rollout.max_batched_tokens",
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": _TOKENS,
    f"{ROLLOUT}.log_prob_max_token_len_per_gpu": _TOKENS,
    f"{ROLLOUT}.calculate_log_probs": _OURS,
    f"{ROLLOUT}.val_kwargs": _VALIDATES,
    f"{ROLLOUT}.multi_turn": "(a response is one turn)",
    f"{ROLLOUT}.agent.agent_loop_manager_class": "seed",
    f"{ROLLOUT}.nnodes": "backend.nodes",
    f"{ROLLOUT}.n_gpus_per_node": "backend.gpus_per_node",
    "actor_rollout_ref.nccl_timeout": "backend.hang_minutes",
    "actor_rollout_ref.hybrid_engine": _STALENESS,
    "actor_rollout_ref.rpg": _OURS,
    "algorithm.adv_estimator": "algorithm.advantage",
    "algorithm.norm_adv_by_std_in_grpo": "algorithm.advantage",
    "algorithm.gamma": "algorithm.advantage",
    "algorithm.lam": "algorithm.advantage",
    "algorithm.filter_groups": _GROUPS,
    "algorithm.rollout_correction": "algorithm.rollout_correction",
    "algorithm.use_kl_in_reward": "algorithm.kl",
    "algorithm.kl_penalty": "algorithm.kl",
    "algorithm.kl_ctrl": "algorithm.beta",
    "algorithm.use_pf_ppo": "algorithm",
    "algorithm.pf_ppo": "algorithm",
    "critic": _NO_CRITIC,
    "custom_reward_function": _REWARD,
    "reward_model": _REWARD,
    "sandbox_fusion": _REWARD,
    "reward.custom_reward_function": _REWARD,
    "reward.reward_manager": _REWARD,
    "reward.reward_model": _REWARD,
    "reward.sandbox_fusion": _REWARD,
    "distillation": "(no run has a teacher)",
    "ray_kwargs.ray_init.address": "backend.ray",
    "ray_kwargs.ray_init.include_dashboard": "backend.ray",
    "ray_kwargs.ray_init.num_gpus": "backend.gpus_per_node",
    "ray_kwargs.ray_init.runtime_env.env_vars": "backend.ray",
    "ray_kwargs.ray_init.runtime_env.worker_process_setup_hook": _OURS,
    "rpg": _OURS,
    "trainer.checkpoint_callback_class": "training.checkpoint_every",
    "trainer.critic_warmup": _NO_CRITIC,
    "trainer.default_hdfs_dir": "training.checkpoint_every",
    "trainer.default_local_dir": "(the run's folder)",
    "trainer.del_local_ckpt_after_load": "training.keep_checkpoints",
    "trainer.device": "backend.device",
    "trainer.esi_redundant_time": "training.checkpoint_every",
    "trainer.experiment_name": "(the run's name)",
    "trainer.max_actor_ckpt_to_keep": "training.keep_checkpoints",
    "trainer.max_critic_ckpt_to_keep": "training.keep_checkpoints",
    "trainer.n_gpus_per_node": "backend.gpus_per_node",
    "trainer.nnodes": "backend.nodes",
    "trainer.project_name": "(the sweep's name)",
    "trainer.resume_from_path": "(the same command goes on from the last checkpoint)",
    "trainer.resume_mode": "(the same command goes on from the last checkpoint)",
    "trainer.save_freq": "training.checkpoint_every",
    "trainer.test_freq": _VALIDATES,
    "trainer.total_epochs": "training.steps",
    "trainer.total_training_steps": "training.steps",
    "trainer.use_v1": _OURS,
    "trainer.v1": _STALENESS,
    "trainer.val_before_train": _VALIDATES,
    "trainer.val_only": _VALIDATES,
}
"""Key of verl, with all below it -> our field, or in brackets why there is none."""

_KINDS: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
    list: (list, tuple),
}


def refused(settings: dict[str, Any]) -> str | None:
    """What is wrong with the first setting that is ours to decide, or no dotted name; None where all may go to verl."""
    for key in settings:
        name = key.removeprefix("+")
        parts = name.split(".")
        if (
            not all(part and part.replace("_", "").isalnum() and part.isascii() for part in parts)
            or len(parts) < 2
        ):
            return f"{key!r}: expected a dotted key of verl's configuration, e.g. {ROLLOUT}.max_num_seqs"
        field = next((DERIVED[at] for at in _above(parts) if at in DERIVED), None)
        if field is not None:
            return f"{key}: {_instead(field)}"
        below = next((ours for ours in DERIVED if ours.startswith(f"{name}.")), None)
        if below is not None:
            return f"{key}: holds {below}, which is not to be set here; name single settings in it"
    return None


def unknown(settings: dict[str, Any]) -> list[str]:
    """What verl does not know of these settings, or knows as another kind of value; nothing where verl is not installed.

    A key with a `+` before it is one that verl's YAML lacks, and is taken as it is.
    """
    known = _schema()
    if known is None:
        return []
    lines = []
    for key, value in settings.items():
        if key.startswith("+") or _is_open(key, known):
            continue
        if key not in known:
            lines.append(f"backend.verl: verl has no setting {key!r}{nearest(key, known)}")
        elif isinstance(known[key], dict):
            if not isinstance(value, dict) or known[key]:
                lines.append(f"backend.verl: {key} is a section of verl's; name single settings in it")
        elif value is not None and known[key] is not None and not _fits(value, known[key]):
            lines.append(f"backend.verl: {key}: {value!r} (verl's own is {known[key]!r})")
    return lines


def is_added(key: str) -> bool:
    """Whether Hydra has to be told with a `+` that a key is new."""
    known = _schema()
    return key.startswith("+") or (known is not None and key not in known and _is_open(key, known))


def sections() -> list[str]:
    """The top-level sections of verl's configuration; none where verl is not installed."""
    return sorted({key.partition(".")[0] for key in _schema() or {}})


def _instead(field: str) -> str:
    return f"is not to be set {field}" if field.startswith("(") else f"is not to be set here, but by {field}"


def _above(parts: list[str]) -> list[str]:
    """A key and all that it lies in."""
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _is_open(key: str, known: dict[str, Any]) -> bool:
    """Whether it lies in a section that takes any key, as what is handed on to vLLM does."""
    return any(known.get(at) == {} for at in _above(key.split("."))[1:])


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, str) and default.startswith("${"):
        return True  # it follows from another
    kinds = next((kinds for kind, kinds in _KINDS.items() if isinstance(default, kind)), None)
    if kinds is None:
        return True
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


@cache
def _schema() -> dict[str, Any] | None:
    """Every key of verl's configuration with its default, sections too ({} for those that take any key)."""
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml"
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        found: dict[str, Any] = {}
        _flatten(yaml.load(path.read_bytes(), Loader=loader), "", found)
        return found
    except (OSError, yaml.YAMLError, AttributeError):
        return None


def _flatten(section: dict[str, Any], prefix: str, found: dict[str, Any]) -> None:
    for name, value in section.items():
        found[prefix + str(name)] = value
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{name}.", found)
