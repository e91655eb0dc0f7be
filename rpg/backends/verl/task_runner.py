"""verl's task runner, which is the driver of a job, with our trainer mode; and how it is started."""

import os
import socket
import time
from types import SimpleNamespace
from typing import Any, Self

import ray
from ray.autoscaler.sdk import request_resources
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from rpg.backends.ray_connection import SAID_SECONDS, RayNotUp, may_come_up, promised
from rpg.backends.verl import cpu
from rpg.backends.verl.resources import PER_GPU, lacking
from rpg.errors import UserError, first_line

REPORT_SECONDS = 10.0
"""Ray's nodes report their free resources with a delay, and this very actor has just started."""


def run(config: Any) -> None:
    """The whole training of a job, on the Ray that its configuration names. Raises RayNotUp: there is no such Ray, or
    its processes took longer to start than Ray waits (30 s, on a machine under load).
    """
    reference, critic = need_reference_policy(config), need_critic(config)
    validate_config(config, use_reference_policy=reference, use_critic=critic)
    # On GPUs the runner stays an actor: Ray hides the GPUs from one that asks for none, so nothing starts there by mistake.
    here = config.trainer.device == "cpu" and config.ray_kwargs.ray_init.get("address") == "local"
    try:
        run_ppo(config, task_runner_class=InDriver if here else ray.remote(Runner))
    except Exception as error:
        if ray.is_initialized() or not may_come_up(error):
            raise
        raise RayNotUp(f"Ray did not start: {first_line(error)}") from error
    finally:
        ray.shutdown()


class Runner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's own, which first checks files and resources; everything it starts is a child of it."""

    def run(self, config: Any) -> Any:
        import rpg.backends.verl.trainer  # noqa: F401, PLC0415 (registers the trainer mode, in the runner's process)

        require_files(config)
        require_resources(config)
        return super().run(config)


class InDriver:
    """The runner in the calling process, with as much of an actor's interface as `run_ppo` uses.

    For a job on a CPU with its own Ray: both would be on the same machine, and one process fewer imports all of verl.
    """

    def __init__(self) -> None:
        self.run = SimpleNamespace(remote=lambda config: ray.put(_run_here(config)))

    @classmethod
    def remote(cls) -> Self:
        return cls()


def _run_here(config: Any) -> Any:
    with cpu.part("in_driver")(config):
        return Runner().run(config)


def require_files(config: Any) -> None:
    """Raises: UserError: this node, which need not be the launcher's, does not see the data or the model."""
    for path in (str(config.data.train_files), str(config.actor_rollout_ref.model.path)):
        if os.path.isabs(path) and not os.path.exists(path):
            raise UserError(
                f"{path}: not visible on {socket.gethostname()}, where verl's driver runs; every node must see the "
                "data folder (RPG_HOME) and the model under the same path"
            )


def require_resources(config: Any) -> None:
    """Before Ray is asked for something that it would wait for without end. An autoscaler is asked to add what is lacking,
    and waited for as long as it promises nodes. Raises UserError: Ray does not have it, and no node is promised.
    """
    if _lacking(config):
        nodes, gpus = config.trainer.nnodes, config.trainer.n_gpus_per_node
        request_resources(bundles=[{"CPU": PER_GPU * gpus, "GPU": gpus}] * nodes)
        deadline, said = time.monotonic() + REPORT_SECONDS, -SAID_SECONDS
        try:
            while lacks := _lacking(config):
                now, coming = time.monotonic(), promised(ray)
                if coming:
                    deadline = now + REPORT_SECONDS
                if coming and now - said >= SAID_SECONDS:
                    said = now
                    print(f"waits: {lacks}; the autoscaler promises {coming} nodes", flush=True)
                if now > deadline:
                    raise UserError(lacks)
                time.sleep(0.5)
        finally:
            request_resources(bundles=[])  # from here on, workers hold the nodes


def _lacking(config: Any) -> str | None:
    free = ray._private.state.available_resources_per_node()  # as verl itself asks (ResourcePoolManager)
    units = config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    return lacking(list(free.values()), config.trainer.nnodes, config.trainer.n_gpus_per_node, units)
