"""What would fail on the first GPU machine is refused where it is written, with what would do."""

import os
from pathlib import Path

import pytest

from rpg.backends.verl.launch import initial_model
from rpg.config.errors import ConfigError
from tests.specs import load_run
from tests.verl.test_gpu_resources import VLLM
from tests.verl.test_launch_overrides import CHAIN

BATCH = {
    "training.prompts_per_step": 512,
    "training.mini_batch_prompts": 32,
    "rollout.group_size": 16,
}

NODES = {
    "backend.nodes": 3,
    "backend.gpus_per_node": 8,
    "backend.ray": {"type": "address", "address": "auto"},
}
SPLIT = {"backend.gpus_per_node": 6, "backend.sequence_parallel": 2}


@pytest.mark.parametrize(
    ("gpus", "would_do"),
    [
        ({"backend.gpus_per_node": 5}, "4 GPUs in total, or training.mini_batch_prompts 30 or 35"),
        (NODES, "16 GPUs in total, or training.mini_batch_prompts 30 or 33"),
        (SPLIT, "4 GPUs in total, or training.mini_batch_prompts 30 or 33"),
    ],
)
def test_rows_that_do_not_spread_over_the_gpus(gpus, would_do):
    with pytest.raises(ConfigError) as error:
        load_run(CHAIN, {**VLLM, **BATCH, **gpus})
    assert "= 512 responses does not divide evenly among" in str(error.value)
    assert would_do in str(error.value)


def test_the_numbers_that_a_refusal_proposes_are_accepted():
    for gpus, prompts in ((4, 32), (5, 30), (5, 35)):
        changes = {
            "training.mini_batch_prompts": prompts,
            "training.prompts_per_step": 16 * prompts,
        }
        load_run(CHAIN, {**VLLM, **BATCH, **changes, "backend.gpus_per_node": gpus})


def test_a_model_of_the_hub_lies_where_every_node_of_a_cluster_sees_it(tmp_path, monkeypatch):
    """The launcher's cache is its own; and a snapshot in it is links to files beside it."""
    import huggingface_hub

    snapshot = tmp_path / "cache/models--org--model/snapshots/abc123"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / f"cache/blob-{name}").write_text(name)
        (snapshot / name).symlink_to(tmp_path / f"cache/blob-{name}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **kwargs: str(snapshot))
    changes = {**VLLM, "model": {"type": "pretrained", "path": "org/model"}}
    home = tmp_path / "home"
    places = ({"type": "local"}, {"type": "address", "address": "head:6379"})
    runs = (load_run(CHAIN, {**changes, "backend.ray": ray}) for ray in places)
    here, shared = (initial_model(run, home, print) for run in runs)
    assert here == snapshot
    assert Path(home) in shared.parents
    contents = {path.name: path.read_text() for path in shared.iterdir()}
    assert contents == {name: name for name in ("config.json", "model.safetensors")}
    assert not any(os.path.islink(path) for path in shared.iterdir())


def test_a_node_that_does_not_see_the_data_says_so(tmp_path):
    pytest.importorskip("verl")
    from omegaconf import OmegaConf

    from rpg.backends.verl.task_runner import UserError, require_files

    def config(model):
        role = {"model": {"path": str(model)}}
        return OmegaConf.create({"data": {"train_files": str(tmp_path)}, "actor_rollout_ref": role})

    require_files(config(tmp_path))
    require_files(config("org/model"))
    with pytest.raises(UserError, match=r"not visible on .* every node must see the data folder"):
        require_files(config(tmp_path / "elsewhere"))
