"""What verl asks of Ray on a machine or cluster with GPUs: always to be had, or refused at once
with what would do."""

import inspect
import os
import subprocess
import sys

import pytest

from rpg.backends.verl.job_output import reason, tail
from rpg.backends.verl.overrides import plan
from rpg.backends.verl.resources import CONTROLLER, PER_GPU, cpus_reserved, lacking
from tests.specs import load_run
from tests.verl.test_launch_overrides import CHAIN, PATHS, parsed
from tests.waiting import HANG

VLLM = {"backend.type": "verl", "backend.device": "cuda", "backend.rollout": {"type": "vllm"}}


def asked(**changes):
    """The overrides of a run, as verl gets them."""
    launch = plan(load_run(CHAIN, {**VLLM, **changes}), PATHS)
    return parsed(launch.arguments())


def units(overrides):
    return overrides["transfer_queue.backend.SimpleStorage.num_data_storage_units"]


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_a_ray_of_our_own_has_as_many_cpus_as_verl_reserves_on_any_machine(gpus):
    """Whatever the machine has: 2 cores, 8 or 34. Without the override Ray counts cores, and verl
    waits for ever."""
    overrides = asked(**{"backend.gpus_per_node": gpus})
    assert overrides["ray_kwargs.ray_init.num_cpus"] >= cpus_reserved(gpus, units(overrides))
    assert "+ray_kwargs.ray_init.num_gpus" not in overrides, "Ray finds GPUs by itself"
    assert 1 <= overrides["reward.num_workers"] <= 8
    assert 1 <= overrides["actor_rollout_ref.rollout.agent.num_workers"] <= 8
    run = load_run(CHAIN, {"backend.type": "verl", "backend.gpus_per_node": gpus})
    on_cpus = parsed(plan(run, PATHS).arguments())
    assert on_cpus["ray_kwargs.ray_init.num_cpus"] >= cpus_reserved(gpus, units(on_cpus))


def test_a_cluster_says_itself_how_many_cpus_it_has():
    ray = {"type": "address", "address": "head:6379"}
    overrides = asked(**{"backend.gpus_per_node": 8, "backend.nodes": 4, "backend.ray": ray})
    assert not any(key.endswith("num_cpus") for key in overrides), (
        "Ray refuses it together with an address"
    )
    assert units(overrides) == 8


def node(cpus, gpus=8):
    return {"CPU": float(cpus), "GPU": float(gpus)}


@pytest.mark.parametrize(
    ("nodes", "wanted", "gpus", "says"),
    [
        (
            [node(2, 1)],
            1,
            1,
            "reserves 3 CPUs on each node (3 for every GPU), and 0 of the 1 nodes",
        ),
        ([node(8, 1)], 1, 1, None),
        ([node(8)], 1, 8, "verl reserves 24 CPUs on each node"),
        ([node(32)], 1, 8, "verl reserves 34 CPUs for 8 GPUs, and the Ray cluster has 32 free"),
        ([node(34)], 1, 8, None),
        ([node(64), node(8)], 2, 8, "1 of the 2 nodes it needs have as many free"),
        ([node(64), node(64)], 2, 8, None),
        ([node(64, 4)], 1, 8, "has 0 nodes with 8 free GPUs (free on its nodes: 4)"),
        ([], 1, 1, "free on its nodes: none"),
    ],
)
def test_a_cluster_that_cannot_do_is_told_at_once(nodes, wanted, gpus, says):
    why = lacking(nodes, wanted, gpus, min(8, wanted * gpus))
    assert (why is None) if says is None else says in why
    if says and "CPUs" in says:
        assert "ray start --num-cpus" in why
        assert "backend.gpus_per_node" in why


def test_the_numbers_are_verls_own():
    pytest.importorskip("verl")
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage
    from verl.single_controller.ray.base import ResourcePoolManager

    assert ResourcePoolManager.max_colocate_count == PER_GPU
    assert f"@ray.remote(num_cpus={CONTROLLER})" in inspect.getsource(controller)
    assert "@ray.remote(num_cpus=1)" in inspect.getsource(simple_storage)


LITTLE = """
import json, sys, threading, time
import ray
from omegaconf import OmegaConf
from ray.experimental.internal_kv import _internal_kv_put as put
from rpg.backends.verl import task_runner
from rpg.backends.verl.main import one_line

@ray.remote
class Worker:
    def work(self):
        time.sleep(60)

queue = {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}
config = OmegaConf.create({"trainer": {"nnodes": 1, "n_gpus_per_node": 1}, "transfer_queue": queue})
sys.modules["rpg.backends.ray_connection"].REPORT_SECONDS = 1.0
ray.init(address="local", num_cpus=2, num_gpus=1, include_dashboard=False)
report = {"pending_launches": {"worker": 2}, "pending_nodes": []}
put("__autoscaling_status", json.dumps({"autoscaler_report": report}))
threading.Timer(3.0, put, ("__autoscaling_status", "{}")).start()  # longer than REPORT_SECONDS
def require():
    task_runner.require_resources(config)
def work():
    ray.get(Worker.remote().work.remote())
for ask in (require, work):
    try:
        ask()
    except Exception as error:
        print(f"error: {one_line(error)}", flush=True)
"""


@pytest.mark.system
def test_a_real_ray_that_is_too_small_is_refused_and_one_that_is_full_says_what_helps(tmp_path):
    """Two CPUs, and Ray's own guard of the memory, told that the machine is full at 1 %."""
    pytest.importorskip("verl")
    full = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "100"}
    environment = (
        os.environ | plan(load_run(CHAIN, {"backend.type": "verl"}), PATHS).environment | full
    )
    path = tmp_path / "log.txt"
    with path.open("wb") as log:
        subprocess.run(
            [sys.executable, "-c", LITTLE], stdout=log, stderr=log, env=environment, timeout=HANG
        )
    said = [line for line in path.read_text().splitlines() if "verl reserves 3 CPUs" in line]
    assert [line[:5] for line in said] == ["waits", "error"] and "promises 2 nodes" in said[0], said
    why = reason("verl's driver ended with code 1", tail(path))
    assert why.startswith("too little memory: lower backend.max_tokens_per_gpu"), why
