"""A run as overrides of verl: every key is one that verl has, every value arrives unchanged,
nothing heavy is loaded."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpg.backends.verl.hydra_values import hydra_value
from rpg.backends.verl.overrides import MAIN, Paths, plan
from rpg.config.errors import ConfigError
from tests.specs import load_run

ROOT = Path(__file__).resolve().parents[2]
CHAIN = ROOT / "configs/runs/chain.yaml"
TRAIN, EASY, STATE = map(Path, ("/data/train.parquet", "/data/chain-easy.parquet", "/runs/r/verl"))
PATHS = Paths("/models/tiny", TRAIN, (EASY,), STATE, STATE / "metrics-1.jsonl")


def of(**changes):
    return plan(load_run(CHAIN, {"backend.type": "verl", **changes}), PATHS)


def parsed(arguments):
    """What Hydra and OmegaConf make of `key=value` arguments."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    out = {}
    for override in OverridesParser.create().parse_overrides(arguments):
        value = OmegaConf.create({"value": override.value()})
        out[override.key_or_group] = OmegaConf.to_container(value, resolve=True)["value"]
    return out


texts = st.text(st.sampled_from("\\'\"${}[]:, ab=\n%#()é\t")) | st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(values)
def test_any_value_survives_the_command_line(value):
    assert parsed([f"+a={hydra_value(value)}"])["a"] == value


@pytest.mark.system
def test_nothing_of_verl_that_is_in_use_has_moved():
    """In a process of its own, where nothing of ours has replaced anything of verl's."""
    command = [sys.executable, "-m", "benchmarks.verl_internals"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


VARIANTS = {
    "cpu": {},
    "cluster": {
        "backend.device": "cuda",
        "backend.rollout": {"type": "vllm", "tensor_parallel": 2},
        "backend.nodes": 2,
        "backend.gpus_per_node": 8,
        "backend.sequence_parallel": 4,
        "backend.ray": {"type": "address", "address": "head:6379"},
        "model": {"type": "pretrained", "path": "Qwen/Qwen3-4B", "dtype": "bfloat16"},
        "algorithm": {"name": "rpg-reinforce-urkl", "reference": {"type": "every_k", "k": 100}},
        "training.optimizer": {"type": "schedule_free"},
    },
    "options": {
        "rollout.stop": ["</answer>", "\n\n"],
        "training.entropy_coeff": 0.01,
        "evaluation.top_p": 0.9,
        "evaluation.top_k": 20,
        "evaluation.min_p": 0.05,
    },
    "adapters": {
        "model.lora": {"rank": 8, "targets": ["q_proj", "v_proj"]},
        "rollout.staleness": 2,
    },
    "address": {"backend.ray": {"type": "address", "address": "head:6379"}, "algorithm": "dapo"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_verl_knows_every_key_that_is_not_said_to_be_added(name):
    """Hydra refuses a plain override of a key that is not there, and a `+` of one that is."""
    from omegaconf import OmegaConf

    from rpg.backends.verl.main import compose

    launch = of(**VARIANTS[name])
    config = compose(launch.arguments())
    for key, value in launch.overrides.items():
        found = OmegaConf.select(config, key)
        assert (OmegaConf.to_container(found) if OmegaConf.is_config(found) else found) == value, (
            key
        )


def test_what_a_run_says_reaches_verl():
    launch = of(
        **VARIANTS["cluster"], seed=7, **{"training.checkpoint_every": 20, "evaluation.every": 15}
    )
    o = launch.overrides
    assert o["actor_rollout_ref.model.path"] == "/models/tiny"
    assert o["data.seed"] == 7
    assert (o["trainer.nnodes"], o["trainer.n_gpus_per_node"]) == (2, 8)
    assert o["actor_rollout_ref.rollout.tensor_model_parallel_size"] == 2
    assert o["actor_rollout_ref.actor.ulysses_sequence_parallel_size"] == 4
    assert o["trainer.save_freq"] == 20 and o["rpg.save_steps"] == [1, 2, 4, 15, 30, 40], (
        "none is needed at step 0"
    )
    assert o["trainer.total_training_steps"] == 40
    assert json.loads(o["rpg.algorithm"])["reference"] == {"type": "every_k", "k": 100}
    assert o["actor_rollout_ref.actor.optim.optimizer"] == "AdamWScheduleFree"
    assert json.loads(o["rpg.verifier"])["marker"] == "#"
    assert of(**VARIANTS["adapters"]).overrides["rpg.staleness"] == 2


def test_sampling_options_and_the_entropy_bonus_reach_verl():
    from omegaconf import OmegaConf

    from rpg.backends.verl.job_settings import JobSettings, SettingsError
    from rpg.backends.verl.main import compose

    launch = of(**VARIANTS["options"])
    config = OmegaConf.to_container(
        compose(launch.arguments()), resolve=True, throw_on_missing=False
    )
    settings = JobSettings.of(config)
    assert settings.stop == ("</answer>", "\n\n")
    assert settings.entropy_coeff == 0.01
    assert settings.validation_min_p == 0.05
    validation = config["actor_rollout_ref"]["rollout"]["val_kwargs"]
    assert (validation["top_p"], validation["top_k"]) == (0.9, 20)
    config["actor_rollout_ref"]["rollout"]["top_p"] = 0.9
    with pytest.raises(SettingsError, match=r"top_p 0.9, top_k -1, but verl's workers compute"):
        JobSettings.of(config)


@pytest.mark.parametrize(
    ("field", "value"), [("top_p", 0.9), ("top_k", 20), ("min_p", 0.1), ("min_response_tokens", 3)]
)
def test_truncated_sampling_is_refused_where_ratios_would_be_wrong(field, value):
    with pytest.raises(
        ConfigError, match=rf"rollout.{field} {value}: backend verl computes .* accepted: "
    ):
        of(**{f"rollout.{field}": value})


def test_a_resumed_run_neither_validates_nor_counts_its_step_again():
    spec = load_run(CHAIN, {"backend.type": "verl", "backend.validation_samples": 2})
    paths = Paths(
        **{**vars(PATHS), "resume": Path("/runs/r/checkpoints/step-000004/training/global_step_4")}
    )
    o = plan(spec, paths).overrides
    assert o["trainer.resume_mode"] == "resume_path"
    assert o["trainer.val_before_train"] is False
    assert o["trainer.resume_from_path"].endswith("global_step_4")
    assert of(**{"backend.validation_samples": 2}).overrides["trainer.val_before_train"] is True


def test_the_shell_command_is_the_same_launch():
    launch = of()
    words = shlex.split(launch.command().replace("\\\n", " "))
    python = words.index("python")
    assert dict(word.split("=", 1) for word in words[:python]) == launch.environment
    assert words[python : python + 3] == ["python", "-m", MAIN]
    assert parsed(words[python + 3 :]) == launch.overrides
    assert launch.runtime_env()["env_vars"] == launch.environment


def test_a_job_on_a_cpu_is_told_so_and_goes_before_the_evaluation_of_its_checkpoints():
    """Where processors are scarce; a cluster has a priority of its own. `test_gpu_resources.py`
    asks a worker."""
    environment = of().environment
    assert environment["VERL_PLATFORM"] == "cpu"
    assert int(environment["RAY_worker_niceness"]) < load_run(CHAIN).evaluation.place.niceness
    assert not {"VERL_PLATFORM", "RAY_worker_niceness"} & set(of(**VARIANTS["cluster"]).environment)


def test_another_back_end_is_refused():
    with pytest.raises(ValueError, match="'local'; accepted here: 'verl'"):
        plan(load_run(CHAIN), PATHS)
