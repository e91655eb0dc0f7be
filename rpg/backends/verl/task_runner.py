"""verl's task runner, which is the driver of a job, with our trainer mode; and how it is
started."""

import os
import socket
from functools import partial
from types import SimpleNamespace
from typing import Any, Self

import ray
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from rpg.backends.ray_connection import RayNotUp, await_nodes, may_come_up
from rpg.backends.verl import cpu
from rpg.backends.verl.resources import PER_GPU, lacking
from rpg.errors import UserError, first_line


def run(config: Any) -> None:
    """The whole training of a job, on the Ray that its configuration names. Raises RayNotUp: there
    is no such Ray, or its processes took longer to start than Ray waits (30 s, on a machine under
    load).
    """
    reference = need_reference_policy(config)
    critic = need_critic(config)
    validate_config(config, use_reference_policy=reference, use_critic=critic)
    # On GPUs the runner stays an actor: Ray hides the GPUs from one that asks for none, so nothing
    # starts there by mistake.
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

    For a job on a CPU with its own Ray: both would be on the same machine, and one process fewer
    imports all of verl.
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
    """Raises: UserError: this node, which need not be the launcher's, does not see the data or the
    model."""
    for path in (str(config.data.train_files), str(config.actor_rollout_ref.model.path)):
        if os.path.isabs(path) and not os.path.exists(path):
            raise UserError(
                f"{path}: not visible on {socket.gethostname()}, where verl's driver runs; "
                "every node must see the "
                "data folder (RPG_HOME) and the model under the same path"
            )


def require_resources(config: Any) -> None:
    """Raises UserError: Ray does not have what a job needs, and no node is promised."""
    nodes = config.trainer.nnodes
    gpus = config.trainer.n_gpus_per_node
    needs = [{"CPU": PER_GPU * gpus, "GPU": gpus}] * nodes
    await_nodes(ray, partial(_lacking, config), needs, partial(print, flush=True))


def _lacking(config: Any) -> str | None:
    free = (
        ray._private.state.available_resources_per_node()
    )  # as verl itself asks (ResourcePoolManager)
    units = config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    return lacking(
        list(free.values()), config.trainer.nnodes, config.trainer.n_gpus_per_node, units
    )
