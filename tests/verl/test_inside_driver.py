"""The driver's decisions, without Ray: settings, order of rows, rounds of a rollout, which
checkpoint is whole."""

import json
import os
import re
import subprocess
import sys
import traceback

import pytest
import torch
from safetensors.torch import save_file

import rpg
from rpg.backends.ray_connection import RayNotUp
from rpg.backends.verl.checkpoints import State, newest
from rpg.backends.verl.experience import arrange, mini_batch_order
from rpg.backends.verl.job_settings import JobSettings, SettingsError
from rpg.backends.verl.main import main, one_line
from rpg.errors import UserError, first_line
from rpg.models import seeds
from rpg.store.atomic_files import StoreError
from tests.verl.inside import make_spec, verl_config

ACTOR = "actor_rollout_ref.actor"


def settings(config):
    return JobSettings.inside(config.actor_rollout_ref)


def fresh(code):
    """Output of a process that nobody has told about verl."""
    told = ("VERL_PLATFORM", "VERL_USE_EXTERNAL_MODULES")
    environment = {name: value for name, value in os.environ.items() if name not in told}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_importing_it_loads_no_verl():
    code = "import sys, rpg.backends.verl.plugin, rpg.backends.verl.main\n"
    assert fresh(code + "print({'verl', 'torch', 'ray'} & {*sys.modules})").strip() == "set()"


@pytest.mark.system
def test_on_a_cluster_it_needs_no_other_extra_and_leaves_verl_as_it_is():
    """Every module of the back end without the packages of flows and dashboard, and with no CPU
    asked for."""
    pytest.importorskip("verl")
    code = (
        "import os; os.environ['VERL_USE_EXTERNAL_MODULES'] = 'rpg.backends.verl.plugin'\n"
        "import sys, pkgutil, importlib\n"
        "for name in ('prefect', 'streamlit', 'duckdb', 'altair', 'typer'): "
        "sys.modules[name] = None\n"
        "import verl, rpg.backends.verl as package\n"
        "assert 'rpg.backends.verl.plugin' in sys.modules\n"
        "for module in pkgutil.walk_packages(package.__path__, 'rpg.backends.verl.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "assert not any(name.startswith('verl_cpu') for name in sys.modules)\n"
        "from verl.plugin.platform import PlatformRegistry\n"
        "from verl.utils import distributed\n"
        "from verl.workers.engine import EngineRegistry\n"
        "print(PlatformRegistry.get('cpu'), "
        "distributed.initialize_global_process_group_ray.__module__,\n"
        "      importlib.metadata.version.__module__, 'cpu' in "
        "EngineRegistry._engines['language_model']['fsdp2'])\n"
    )
    assert fresh(code).split() == ["None", "verl.utils.distributed", "importlib.metadata", "False"]


def test_what_follows_from_the_algorithm_is_set(config):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    for reference, needed in (("old", False), ("fixed", True), ({"type": "kl_above"}, True)):
        derived = config(algorithm={"name": "rpg-urkl", "reference": reference})
        assert need_reference_policy(derived) is needed
        assert not need_critic(derived)
        assert derived.trainer.v1.trainer_mode == "rpg"
        assert "rpg" not in derived
        assert settings(derived).algorithm == rpg.algorithm("rpg-urkl", reference=reference)
    assert not need_reference_policy(config(algorithm={"name": "dapo"}))


@pytest.mark.parametrize(("elements", "megabytes"), [([3, 5], 16), ([1024, 20 * 256 + 1], 21)])
def test_on_a_cpu_the_largest_weight_fits_into_what_vllm_gets_new_weights_by(
    tmp_path, elements, megabytes
):
    """In float32, as verl sends it; a vocabulary of 49,152 ended the job at its first step."""
    weights = {"small": torch.zeros(2), "large": torch.zeros(elements, dtype=torch.int8)}
    save_file(weights, tmp_path / "model.safetensors")
    config = verl_config(make_spec(), tmp_path, tmp_path)
    assert (
        config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes
        == megabytes
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("~rpg.algorithm", "+rpg.algorithm: Field required"),
        ('rpg.algorithm=\'{"name": "rpg-urk"}\'', "did you mean 'rpg-urkl'?"),
        ("rpg.algorithm='{\"name\"'", "+rpg.algorithm: not JSON"),
        ('rpg.verifier=\'{"type": "magic"}\'', "+rpg.verifier"),
        ("+rpg.sed=3", "+rpg.sed"),
        (f"{ACTOR}.ppo_mini_batch_size=3", "3 does not divide data.train_batch_size 8"),
        ("trainer.n_gpus_per_node=3", "does not spread evenly over 3 data-parallel workers"),
    ],
)
def test_a_setting_that_cannot_be_is_named(config, override, words):
    with pytest.raises(SettingsError) as error:
        config(override)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_last_line_of_a_failed_job_says_why(cpu_verl, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["trainer.total_training_steps=1", "data.nonsense=1"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "nonsense" in last
    assert list(tmp_path.iterdir()) == []  # Hydra leaves no folder behind


@pytest.mark.parametrize(
    ("error", "comes"),
    [
        (
            Exception("The current node timed out during startup.\nThe raylet failed to start."),
            True,
        ),
        (ConnectionError("no GCS"), True),
        (OSError("AF_UNIX path length cannot exceed 107 bytes: /a/long/path"), False),
        (RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.1.0"), False),
        (ValueError("address: nonsense"), False),
    ],
)
def test_only_a_ray_that_may_come_up_is_worth_another_attempt(
    config, cpu_verl, monkeypatch, error, comes
):
    from rpg.backends.verl import task_runner

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(task_runner, "run_ppo", refuse)
    with pytest.raises(Exception, match=re.escape(first_line(error))) as told:
        task_runner.run(config())
    assert isinstance(told.value, RayNotUp) == comes
    assert str(error) in "".join(traceback.format_exception(told.value)), "all that Ray said"
    assert one_line(told.value).startswith("Ray did not start: ") == comes


def test_the_root_of_a_chain_of_errors_is_told():
    told = (
        "The actor died because of an error raised in its creation task, "
        "\x1b[36mray::Worker\x1b[39m\n"
        '  File "x.py", line 1, in f\nray.exceptions.RayTaskError: no\nValueError: the '
        "root: of it\n"
    )
    assert one_line(RuntimeError(told)) == "ValueError: the root: of it"
    assert one_line(UserError("model.path: gone")) == "model.path: gone"
    theirs = RuntimeError("a\nTraceback\nrpg.backends.verl.job_settings.SettingsError: +rpg.x: no")
    assert one_line(theirs) == "+rpg.x: no"
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = OSError("inner")
    assert one_line(wrapped) == "OSError: inner"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(("workers", "groups"), [(1, 8), (2, 8), (4, 7), (8, 3), (1, 1)])
def test_every_row_is_in_one_mini_batch_of_one_worker(config, workers, groups):
    found = settings(config())
    size = found.group_size
    step = 3
    rows = groups * size
    padded = rows + -rows % workers
    lengths = torch.randint(1, 20, (padded,), generator=torch.Generator().manual_seed(1)).tolist()
    order, sizes = arrange(found, step, groups, lengths, workers)
    assert sorted(order) == list(range(padded))
    assert sum(sizes) * workers == padded
    drawn = seeds.permutation(groups, found.seed, "mini-batches", step, 0).tolist()
    for number in range(len(sizes)):  # whole groups, those of the embedded trainer's mini-batch
        start = sum(sizes[:number])
        mini = []
        tokens = []
        for worker in range(workers):
            part = order[worker * sum(sizes) :][start : start + sizes[number]]
            mini += part
            tokens.append(sum(lengths[row] for row in part))
        wanted = drawn[number * found.mini_batch_prompts : (number + 1) * found.mini_batch_prompts]
        real = [row for row in mini if row < rows]
        assert sorted(real) == sorted(g * size + i for g in wanted for i in range(size))
        assert max(tokens) - min(tokens) <= 20


def test_later_epochs_take_the_mini_batches_in_another_order(config):
    found = settings(config())
    orders = [mini_batch_order(found, 1, epoch, 16) for epoch in range(3)]
    assert orders[0] == list(range(16))
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == orders[0] for order in orders)


def test_the_driver_is_enough_only_where_nothing_asks_for_more(config, cpu_verl):
    from omegaconf import OmegaConf
    from verl_cpu.in_driver import suffices

    derived = config()
    assert suffices(derived)
    for key, value in {
        "trainer.n_gpus_per_node": 2,
        "reward.num_workers": 2,
        "actor_rollout_ref.rollout.agent.num_workers": 2,
        "actor_rollout_ref.rollout.router_config_path": "router.yaml",
        "reward.reward_model.enable": True,
        "actor_rollout_ref.rollout.name": "vllm",
    }.items():
        more = derived.copy()
        OmegaConf.update(more, key, value, force_add=True)
        assert not suffices(more), key


def test_only_a_checkpoint_with_our_record_counts(tmp_path):
    assert newest(tmp_path) is None
    for step in (2, 10, 9):
        (tmp_path / f"global_step_{step}").mkdir()
        reference = {"renewed_at": 0, "average": 0.0, "kept": False}
        State(step, 4 * step, 100, reference, 1).write(tmp_path / f"global_step_{step}")
    (tmp_path / "global_step_11").mkdir()  # what a kill left behind
    (tmp_path / "global_step_12").mkdir()
    State(12, 48, 100, reference, 1, resumable=False).write(tmp_path / "global_step_12")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("")
    assert newest(tmp_path).name == "global_step_10"
    assert State.read(newest(tmp_path)).optimizer_step == 40
    record = tmp_path / "global_step_10" / "rpg.json"
    for text in ("{", json.dumps({"format": 99}), json.dumps({"format": 1, "step": 10})):
        record.write_text(text)
        with pytest.raises(StoreError, match=r"rpg\.json"):
            State.read(tmp_path / "global_step_10")
