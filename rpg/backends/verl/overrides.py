"""A run as overrides of verl's Hydra configuration: pure, and loaded without torch or verl.

`plan(spec, paths)` gives the overrides in the order of verl's sections, the environment of every
process and Ray's runtime environment; `LaunchPlan.command` is the shell command that starts the
same training by hand.
"""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rpg.backends.verl.hydra_values import hydra_value
from rpg.backends.verl.resources import cpus_reserved, helpers
from rpg.config.backend import LocalRay, RayAddress, VerlBackend, VllmRollout
from rpg.config.model import bfloat16
from rpg.config.reward import PythonReward
from rpg.config.run_spec import RunSpec
from rpg.config.task import EnvironmentTask, chat_of
from rpg.config.training import ScheduleFreeAdamW
from rpg.config.verl_keys import is_added, taken_over
from rpg.tasks import verifier_of
from rpg.tasks.preparation import PreparedData

STATE = "verl"
"""Folder of verl's files, in that of the run."""
MAIN = "rpg.backends.verl.main"
PLUGIN = "rpg.backends.verl.plugin"
HUGGINGFACE = "rpg_huggingface"
"""The rollout server on the embedded trainer's decoder, as verl's configuration names it
(verl-cpu)."""
SETUP = "rpg.system.processes.collect_seldom"
"""Called by Ray's workers before they import anything of verl."""
ACTOR, REF, ROLLOUT, MODEL = (
    f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout", "model")
)
LOGICAL_CPUS = 16
"""Least number of CPUs that the run's own Ray is told of: verl's processes mostly wait, so they may
outnumber the cores."""
LEAST_WAIT = 600
"""Least number of seconds that a worker waits for another: all others wait while one writes a model
of 30 GB."""
ENDLESS_EPOCHS = 1_000_000
"""The number of steps ends a run, not the passes over the data."""


@dataclass(frozen=True)
class Paths:
    """A run's inputs and outputs, at the same place on every machine that takes part."""

    model: str
    """Folder of the initial Hugging Face model, or a hub id."""
    train: Path
    benchmarks: tuple[Path, ...]
    state: Path
    """Folder in which verl leaves its checkpoints."""
    metrics: Path
    """File of verl's metrics; each attempt has its own, since verl truncates it when it opens it.
    """
    resume: Path | None = None
    """A `global_step_<n>` folder of verl to go on from."""

    @classmethod
    def of(
        cls,
        run: Path,
        data: PreparedData,
        model: str | Path,
        attempt: int = 1,
        resume: Path | None = None,
    ) -> Self:
        """The paths of one attempt at the run in folder `run`."""
        state = run / STATE
        benchmarks = tuple(data.benchmarks.values())
        return cls(
            str(model), data.train, benchmarks, state, state / f"metrics-{attempt}.jsonl", resume
        )


@dataclass(frozen=True)
class LaunchPlan:
    """How to start one training. `overrides` maps dotted keys to values; `added` are those verl
    does not know."""

    overrides: dict[str, Any]
    environment: dict[str, str]
    added: frozenset[str]

    def arguments(self) -> list[str]:
        """`key=value` in Hydra's grammar, one per override; a key verl does not have is added with
        a `+`."""
        pairs = self.overrides.items()
        return [
            f"{'+' if key in self.added else ''}{key}={hydra_value(value)}" for key, value in pairs
        ]

    def runtime_env(self) -> dict[str, Any]:
        """The runtime environment for the workers of a cluster."""
        return {"env_vars": dict(self.environment)}

    def command(self) -> str:
        """The equivalent shell command."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        lines = [*variables, f"python -m {MAIN}", *map(shlex.quote, self.arguments())]
        return " \\\n  ".join(lines)


def plan(
    spec: RunSpec, paths: Paths, *, project: str = "rpg", experiment: str = "run"
) -> LaunchPlan:
    """The whole launch of a run on verl. Raises ValueError: the run's back end is not verl."""
    backend = spec.backend
    if not isinstance(backend, VerlBackend):
        raise ValueError(f"backend.type: {backend.type!r}; accepted here: 'verl'")
    environment = _environment(backend, paths)
    parts: list[Mapping[str, Any]] = [
        taken_over(spec),
        _data(paths),
        _model(spec, backend, paths),
        _actor(spec),
        {f"{REF}.log_prob_use_dynamic_bsz": True, **_engine(spec, REF)},
        _rollout(spec, backend),
        _ours(spec, backend, paths),
        _trainer(spec, backend, paths, project, experiment),
        _ray(backend, environment),
    ]
    overrides = {key: value for part in parts for key, value in part.items()}
    overrides |= _theirs(backend, overrides)
    added = frozenset(key.removeprefix("+") for key in overrides if key.startswith("+"))
    return LaunchPlan(
        {key.removeprefix("+"): value for key, value in overrides.items()}, environment, added
    )


def _theirs(backend: VerlBackend, ours: Mapping[str, Any]) -> dict[str, Any]:
    """`backend.verl`, which cannot decide what our fields do (rpg.config.verl_keys)."""
    keys: dict[str, Any] = {}
    for key, value in backend.verl.items():
        name = key.removeprefix("+")
        if name == "trainer.logger":  # our metrics are read from the file that verl logs to
            value = list(
                dict.fromkeys([*ours[name], *([value] if isinstance(value, str) else value)])
            )
        keys[f"+{name}" if name not in ours and is_added(key) else name] = value
    return keys


def _data(paths: Paths) -> dict[str, Any]:
    return {
        "data.train_files": str(paths.train),
        "data.val_files": [str(path) for path in paths.benchmarks],
        "data.filter_overlong_prompts": False,
        "data.dataloader_num_workers": 0,
    }


def _model(spec: RunSpec, backend: VerlBackend, paths: Paths) -> dict[str, Any]:
    wait = max(LEAST_WAIT, math.ceil(60 * backend.hang_minutes))
    keys = {f"{MODEL}.path": paths.model, "actor_rollout_ref.nccl_timeout": wait}
    lora = spec.model.lora
    if lora is None:
        return keys
    return keys | {
        f"{MODEL}.lora_rank": lora.rank,
        f"{MODEL}.lora_alpha": lora.alpha,
        f"{MODEL}.target_modules": lora.targets
        if isinstance(lora.targets, str)
        else list(lora.targets),
        f"{MODEL}.lora.merge": True,  # the servers get whole weights (fsdp_weights.py)
    }


def _actor(spec: RunSpec) -> dict[str, Any]:
    training = spec.training
    optimizer = spec.training.optimizer
    bound = math.inf if training.max_grad_norm is None else training.max_grad_norm
    state = ["model", "optimizer", "extra"]
    saved = [*state]
    if spec.model.lora is None:  # else fsdp_weights.py writes it
        saved.append("hf_model")
    keys: dict[str, Any] = {
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.optim.betas": list(optimizer.betas),
        f"{ACTOR}.optim.clip_grad": bound,
        **_engine(spec, ACTOR),
        f"{ACTOR}.checkpoint.load_contents": state,
        f"{ACTOR}.checkpoint.save_contents": saved,
    }
    if isinstance(optimizer, ScheduleFreeAdamW):
        keys |= {
            f"{ACTOR}.optim.optimizer_impl": "schedulefree",
            f"{ACTOR}.optim.optimizer": "AdamWScheduleFree",
            f"{ACTOR}.optim.override_optimizer_config": {"warmup_steps": optimizer.warmup_steps},
            f"{ACTOR}.optim.lr_warmup_steps": 0,
        }
    return keys


def _engine(spec: RunSpec, role: str) -> dict[str, Any]:
    """FSDP of one role; weights and optimizer state are always float32."""
    if bfloat16(spec.model):
        return {}
    precision = dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), "fp32")
    return {f"+{role}.fsdp_config.mixed_precision": precision}


def _rollout(spec: RunSpec, backend: VerlBackend) -> dict[str, Any]:
    rollout = spec.rollout
    server = backend.rollout
    keys: dict[str, Any] = {
        f"{ROLLOUT}.name": HUGGINGFACE,
        f"{ROLLOUT}.top_k": -1,
        f"{ROLLOUT}.top_p": 1.0,
        f"{ROLLOUT}.dtype": "bfloat16" if bfloat16(spec.model) else "float32",
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.max_model_len": rollout.max_prompt_tokens + rollout.max_response_tokens,
    }
    if isinstance(server, VllmRollout):
        keys |= {
            f"{ROLLOUT}.name": server.type,
            f"{ROLLOUT}.tensor_model_parallel_size": server.tensor_parallel,
            f"{ROLLOUT}.gpu_memory_utilization": server.gpu_memory_utilization,
            f"{ROLLOUT}.enforce_eager": server.enforce_eager,
            f"{ROLLOUT}.max_num_batched_tokens": server.max_batched_tokens,
        }
    if backend.device == "cpu":
        keys[f"{ROLLOUT}.free_cache_engine"] = False
    return {
        **keys,
        f"{ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{ROLLOUT}.val_kwargs.n": max(backend.validation_samples, 1),
        f"{ROLLOUT}.val_kwargs.do_sample": spec.evaluation.temperature > 0,
        f"{ROLLOUT}.val_kwargs.top_k": spec.evaluation.top_k or -1,
    }


def _ours(spec: RunSpec, backend: VerlBackend, paths: Paths) -> dict[str, Any]:
    """What our code inside verl reads and verl's own sections have no place for."""
    keys = {
        "rpg.algorithm": json.dumps({"name": spec.algorithm.name, **spec.algorithm.settings()}),
        "rpg.verifier": json.dumps(verifier_of(spec.task).model_dump(mode="json")),
        "rpg.seed": spec.seed,
        "rpg.max_refills": spec.rollout.max_refills,
        "rpg.save_steps": [step for step in spec.eval_steps() if step],
    }
    environment = spec.task if isinstance(spec.task, EnvironmentTask) else None
    if environment or any(isinstance(part, PythonReward) for part in spec.reward):
        keys["rpg.manifest"] = str(paths.state.parent / "manifest.json")
    optimizer = spec.training.optimizer
    stop = list(spec.rollout.stop)
    if environment and environment.reply is not None:
        stop.append(environment.markers[1])
    records = spec.training.token_records
    schedule = getattr(optimizer, "schedule", "constant")
    rewards = [part.model_dump(mode="json") for part in spec.reward]
    optional = {
        "rpg.reward": json.dumps(rewards)
        if spec.reward != RunSpec.model_fields["reward"].default
        else None,
        "rpg.schedule": schedule if schedule != "constant" else None,
        "rpg.prefix": chat_of(spec.task).prefix,
        "rpg.task": environment.model_dump_json() if environment else None,
        "rpg.stop": json.dumps(stop) if stop else None,
        "rpg.staleness": spec.rollout.staleness,
        "rpg.token_records": records.model_dump() if records.every else None,
        "rpg.validation_min_p": spec.evaluation.min_p,
        "rpg.threads": backend.threads if backend.device == "cpu" else None,
    }
    keys |= {key: value for key, value in optional.items() if value}
    return {f"+{key}": value for key, value in keys.items()}


def _trainer(
    spec: RunSpec, backend: VerlBackend, paths: Paths, project: str, run: str
) -> dict[str, Any]:
    validates = backend.validation_samples > 0
    keys = {
        "trainer.logger": ["console", "file"],
        "trainer.project_name": project,
        "trainer.experiment_name": run,
        "trainer.default_local_dir": str(paths.state),
        "trainer.total_epochs": ENDLESS_EPOCHS,
        "trainer.test_freq": spec.evaluation.every if validates else -1,
        # After a resume it would log the step that it goes on from a second time.
        "trainer.val_before_train": validates and paths.resume is None,
        "trainer.resume_mode": "disable" if paths.resume is None else "resume_path",
    }
    return keys if paths.resume is None else {**keys, "trainer.resume_from_path": str(paths.resume)}


def _ray(backend: VerlBackend, environment: dict[str, str]) -> dict[str, Any]:
    """`ray.init` of the driver, and how many processes verl starts: as many as Ray gives CPUs to
    (resources.py)."""
    gpus = backend.nodes * backend.gpus_per_node
    units = helpers(backend.device, gpus)
    counts: dict[str, Any] = {
        f"{ROLLOUT}.agent.num_workers": units,
        "reward.num_workers": units,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": units,
    }
    if isinstance(backend.ray, RayAddress):
        keys = {"address": backend.ray.address, "runtime_env.env_vars": environment}
        return counts | {f"+ray_kwargs.ray_init.{key}": value for key, value in keys.items()}
    local: dict[str, Any] = {
        "+ray_kwargs.ray_init.address": "local",
        "+ray_kwargs.ray_init.include_dashboard": False,
        "+ray_kwargs.ray_init.runtime_env.worker_process_setup_hook": SETUP,
        "ray_kwargs.ray_init.num_cpus": max(LOGICAL_CPUS, cpus_reserved(gpus, units)),
    }
    if backend.device == "cpu":
        local["+ray_kwargs.ray_init.num_gpus"] = gpus  # verl counts workers in GPUs
    return counts | local


def _environment(backend: VerlBackend, paths: Paths) -> dict[str, str]:
    variables = {
        "VERL_USE_EXTERNAL_MODULES": PLUGIN,
        "VERL_FILE_LOGGER_PATH": str(paths.metrics),
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if isinstance(backend.ray, LocalRay):
        # Ray's switch for "no other machine takes part": it then listens on the loopback interface
        # only.
        variables["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        # Ray's workers would yield to everything else on the machine (niceness 15), even to
        # evaluations (5).
        variables["RAY_worker_niceness"] = "0"
        # Ray would start a worker for every CPU it is told of, and a job with its own environment
        # can use none of them.
        variables["RAY_prestart_worker_first_driver"] = "0"
    if Path(paths.model).is_absolute():
        variables["HF_HUB_OFFLINE"] = "1"
    if backend.device == "cpu":
        threads = str(backend.threads)
        variables |= {
            "VERL_PLATFORM": "cpu",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
        }
    return variables
