"""python -m rpg.backends.verl.main KEY=VALUE...: verl's PPO trainer with our trainer mode.

The overrides are Hydra's, on verl's configuration `ppo_trainer`; ours are below `+rpg`
(rpg/backends/verl/job_settings.py). `rpg render FILE` prints them for a run. The exit code is 0
when all steps are done; otherwise it is 1, and the last line on stderr is `error: <one line>`. It
is 71 instead where Ray did not start, which is worth another attempt.
"""

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, cast

import hydra
from omegaconf import OmegaConf, open_dict

from rpg.backends.ray_connection import RayNotUp
from rpg.backends.verl import cpu, readiness
from rpg.backends.verl.job_output import clean
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.overrides import PLUGIN
from rpg.errors import UserError
from rpg.system.processes import LOST, PARENT, collect_seldom, die_with_parent

_OURS = ("UserError", "ConfigError", "SettingsError", "StoreError")
"""Errors whose text is a whole sentence for the user."""


def main(arguments: Sequence[str] | None = None) -> int:
    if PARENT in os.environ:
        die_with_parent()
    collect_seldom()
    overrides = list(sys.argv[1:] if arguments is None else arguments)
    try:
        config = compose(overrides)
        _prepare_environment(config.trainer.device)
        derive(config)
        from rpg.backends.verl.task_runner import run  # noqa: PLC0415 (verl and Ray read what was prepared above)

        run(config)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 (whatever ends a job is told in its last line)
        traceback.print_exc()
        print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
        return LOST if isinstance(error, RayNotUp) else 1
    return 0


def compose(overrides: Sequence[str]) -> Any:
    """verl's configuration with these overrides; no folder is made and the working directory
    stays."""
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", overrides=list(overrides))


def _prepare_environment(device: str) -> None:
    """Load the plug-in here, and have every process of the job do so; Ray hands it on to those on
    this machine."""
    modules = [name for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if name]
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys([*modules, PLUGIN]))
    if device == "cpu":
        for name, value in cpu.part("job").ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    importlib.import_module(PLUGIN)  # composing the configuration has imported verl already


def derive(config: Any) -> None:
    """Set, in place, what follows from our settings: none of it is for the user to choose. Raises
    SettingsError: an override of ours is missing or refused.
    """
    # A worker's configuration holds the part actor_rollout_ref only, so our settings travel there.
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    settings = JobSettings.of(cast(Mapping[str, Any], plain))
    values = {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "rpg",
        # the steps end a run, not the epochs
        "trainer.total_epochs": config.trainer.total_training_steps,
        "algorithm.adv_estimator": "rpg",
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": False,
        "actor_rollout_ref.actor.use_kl_loss": settings.algorithm.needs_reference,
        "actor_rollout_ref.actor.loss_agg_mode": settings.algorithm.loss_agg_mode,
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.rollout.calculate_log_probs": True,
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.rollout.agent.agent_loop_manager_class": (
            "rpg.backends.verl.agent_loops.SeededManager"
        ),
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "VerifierManager",
        "reward.reward_manager.module.path": "pkg://rpg.backends.verl.reward_manager",
        "actor_rollout_ref.rpg": settings.model_dump_json(),
    }
    if settings.device == "cpu":
        values |= cpu.part("job").overrides(config.actor_rollout_ref.model.path)
    else:
        values |= attention(config)
    with open_dict(config):
        config.pop("rpg", None)
        for name, value in values.items():
            OmegaConf.update(config, name, value, force_add=True)
        config.critic.enable = settings.algorithm.advantage.type == "gae"
        if config.critic.enable:  # trained as the policy is
            actor = config.actor_rollout_ref.actor
            critic = config.critic
            critic.model = config.actor_rollout_ref.model
            critic.optim, critic.fsdp = actor.optim, actor.fsdp_config
            for name in ("strategy", "use_dynamic_bsz", "ulysses_sequence_parallel_size"):
                critic[name] = actor[name]
            longest = actor.ppo_max_token_len_per_gpu
            critic.ppo_max_token_len_per_gpu = critic.ppo_infer_max_token_len_per_gpu = longest


def attention(config: Any) -> dict[str, object]:
    """verl would take flash attention, a package of its own (verl/workers/config/model.py:185);
    torch has another."""
    name = "actor_rollout_ref.model.override_config.attn_implementation"
    if config.actor_rollout_ref.model.override_config.get("attn_implementation") is not None:
        return {}
    if importlib.util.find_spec("flash_attn") is not None:
        return {name: "flash_attention_2"}
    print(readiness.NO_FLASH, flush=True)
    return {name: "sdpa", "actor_rollout_ref.model.use_remove_padding": False}


_ERROR_LINE = re.compile(
    r"(?m)^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Exit|Interrupt)): (.+)$"
)
_WRAPPERS = ("RayTaskError", "RayActorError", "ActorDiedError")


def one_line(error: BaseException) -> str:
    """What went wrong at the bottom of a chain of Ray's and verl's errors, in one line.

    Ray tells of an error elsewhere by its traceback as text: the last error named there is the
    root.
    """
    while not isinstance(error, UserError):
        deeper = getattr(error, "cause", None) or error.__cause__
        if not isinstance(deeper, BaseException):
            break
        error = deeper
    text = clean(str(error)).strip()
    if isinstance(error, UserError):
        return text
    named = [line for line in _ERROR_LINE.findall(text) if line[0] not in _WRAPPERS]
    kind, message = named[-1] if named else (type(error).__name__, text.partition("\n")[0])
    if kind.endswith(_OURS):
        return message
    return f"{kind}: {message}" if message else kind


if __name__ == "__main__":
    sys.exit(main())
