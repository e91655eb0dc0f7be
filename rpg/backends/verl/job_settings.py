"""The settings of a verl job that our code reads. Imports neither verl nor torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from omegaconf import OmegaConf
from pydantic import ConfigDict, Field, ValidationError, field_validator

from rpg.catalogue.schema import complaint
from rpg.config.reward import CorrectnessReward, Rewards
from rpg.config.run_spec import AlgorithmField
from rpg.config.section import Positive, Section
from rpg.config.task import EnvironmentTask, Verifier
from rpg.config.training import Schedule, StopTexts, TokenRecords
from rpg.errors import UserError


class SettingsError(UserError):
    """A verl job that cannot be run; `str(error)` is one line that names the override and what it
    takes."""


class RpgOverrides(Section):
    """The overrides below `+rpg`."""

    algorithm: AlgorithmField
    verifier: Verifier
    reward: Rewards = (CorrectnessReward(),)
    manifest: Path | None = None
    """The run's manifest, which holds the source of its reward functions and of its environment, if
    it has any."""
    task: EnvironmentTask | None = None
    """Where an environment has turns in a response."""
    schedule: Schedule = "constant"
    """Of the learning rate after its warm-up, by optimizer steps."""
    prefix: str = ""
    """How the assistant's turn begins; it is scored with the response."""
    stop: StopTexts = ()
    """Texts that end a response."""
    validation_min_p: float = Field(0.0, ge=0, lt=1)
    """For verl's validation, whose own settings lack it."""
    seed: int = Field(0, ge=0, lt=2**31)
    max_refills: int = Field(8, ge=0)
    """Dynamic sampling: rounds of prompts that may be drawn to replace groups of equal rewards."""
    staleness: int = Field(0, ge=0)
    """By how many rollouts the policy that samples lags behind the policy in training."""
    save_steps: tuple[int, ...] = ()
    """Steps whose weights are saved besides the checkpoints of trainer.save_freq."""
    token_records: TokenRecords = TokenRecords()
    threads: Positive = 1
    """On a CPU: threads of each worker."""

    @field_validator("algorithm", "verifier", "reward", "task", "stop", mode="before")
    @classmethod
    def _json(cls, value: Any) -> Any:
        try:
            is_json = isinstance(value, str) and value.lstrip().startswith(("{", "["))
            return json.loads(value) if is_json else value
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from error


class JobSettings(RpgOverrides):
    """Ours, and those of verl's that our code reads. They travel through verl's configuration as
    JSON."""

    model_config = ConfigDict(frozen=True)

    device: str
    steps: Positive
    prompts_per_step: Positive
    group_size: Positive
    mini_batch_prompts: Positive
    epochs: Positive
    max_response_tokens: Positive
    temperature: float = Field(gt=0)
    learning_rate: float = Field(gt=0)
    entropy_coeff: float = Field(ge=0)
    lora_rank: int = 0
    """Rank of the low-rank adapters; 0 where all weights are trained."""
    warmup_steps: int = Field(ge=0)
    """In optimizer steps; schedule-free AdamW does its own warm-up."""

    @property
    def optimizer_steps(self) -> int:
        """The policy's of the whole run, if every step has groups to learn from."""
        steps = self.steps - getattr(self.algorithm.advantage, "critic_warmup", 0)
        return steps * self.epochs * (self.prompts_per_step // self.mini_batch_prompts)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """From verl's composed configuration with the overrides below `rpg` (as dicts and lists).
        Raises SettingsError: an override of ours is missing or refused.
        """
        actor = config["actor_rollout_ref"]["actor"]
        rollout = config["actor_rollout_ref"]["rollout"]
        theirs = {
            "device": config["trainer"]["device"],
            "steps": config["trainer"]["total_training_steps"],
            "prompts_per_step": config["data"]["train_batch_size"],
            "group_size": rollout["n"],
            "mini_batch_prompts": actor["ppo_mini_batch_size"],
            "epochs": actor["ppo_epochs"],
            "max_response_tokens": config["data"]["max_response_length"],
            "temperature": rollout["temperature"],
            "learning_rate": actor["optim"]["lr"],
            "entropy_coeff": actor["entropy_coeff"],
            "lora_rank": config["actor_rollout_ref"]["model"].get("lora_rank", 0),
            "warmup_steps": max(0, actor["optim"].get("lr_warmup_steps") or 0),
        }
        ours = _validated(RpgOverrides, config.get("rpg") or {}, "+rpg.")
        settings = _validated(cls, {**dict(ours), **theirs}, "the job's setting ")
        settings._check(config)
        return settings

    @classmethod
    def inside(cls, actor_rollout_ref: Any) -> Self:
        """From that part of the configuration, into which `rpg.backends.verl.main.derive` wrote
        them for every process."""
        values: Any = OmegaConf.to_container(
            actor_rollout_ref
        )  # unresolved: a text may contain "${"
        return cls.model_validate_json(values["rpg"])

    def _check(self, config: Mapping[str, Any]) -> None:
        workers = config["trainer"]["nnodes"] * config["trainer"]["n_gpus_per_node"]
        shards = workers // config["actor_rollout_ref"]["actor"].get(
            "ulysses_sequence_parallel_size", 1
        )
        rows = self.mini_batch_prompts * self.group_size
        if self.prompts_per_step % self.mini_batch_prompts:
            raise SettingsError(
                f"actor_rollout_ref.actor.ppo_mini_batch_size: {self.mini_batch_prompts} "
                "does not divide "
                f"data.train_batch_size {self.prompts_per_step}"
            )
        if shards < 1 or rows % shards:
            raise SettingsError(
                f"a mini-batch of {self.mini_batch_prompts} prompts x {self.group_size} "
                "responses does not spread "
                f"evenly over {shards} data-parallel workers"
            )
        rollout = config["actor_rollout_ref"]["rollout"]
        if rollout["top_p"] < 1 or rollout["top_k"] > 0:
            raise SettingsError(
                f"actor_rollout_ref.rollout: top_p {rollout['top_p']}, top_k "
                f"{rollout['top_k']}, but verl's workers compute "
                "log-probabilities of the whole distribution, and its rollout servers do "
                "not say which tokens could be "
                "drawn (verl 0.9.1: workers/engine/fsdp/transformer_impl.py:1428, "
                "workers/rollout/vllm_rollout/vllm_async_server.py:622); accepted: top_p "
                "1.0, top_k -1"
            )
        if self.algorithm.advantage.type == "gae" and self.lora_rank:
            raise SettingsError(
                "actor_rollout_ref.model.lora_rank: a critic (advantage type gae) is "
                "trained in full; accepted: 0"
            )


def _validated(kind: type[Section], values: Mapping[str, Any], prefix: str) -> Any:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{prefix}{field}: {complaint(first)}") from error
