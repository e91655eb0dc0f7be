"""verl's task runner, which is the driver of a job, with our trainer mode registered."""

from __future__ import annotations

import os
import socket
import time
from contextlib import nullcontext
from types import SimpleNamespace

import ray
from verl.trainer.main_ppo import TaskRunnerV1

from rpg.backends.verl.resources import lacking
from rpg.errors import UserError

REPORT_SECONDS = 10.0
"""Ray's nodes report what is free with a delay, and this very actor has just started."""


class Runner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's own, which looks around first; everything it starts hangs on it."""

    def run(self, config):
        import rpg.backends.verl.trainer  # noqa: F401 (registers the trainer mode "rpg")

        require_files(config)
        require_resources(config)
        return super().run(config)


class InDriver:
    """The runner in the very process that asks for it, with as much of an actor's interface as `run_ppo` uses.

    For a Ray of the job's own on a CPU: there the two are always on the same machine, and a process less imports all of
    verl.
    """

    def __init__(self) -> None:
        self.run = SimpleNamespace(remote=lambda config: ray.put(_run_here(config)))

    @classmethod
    def remote(cls) -> InDriver:
        return cls()


def _run_here(config):
    from rpg.backends.verl.cpu import helpers

    with helpers.in_this_process(config) if helpers.suffice(config) else nullcontext():
        return Runner().run(config)


def require_files(config) -> None:
    """Raises: UserError: data or model lie where this node, which may be another than the launcher's, does not see them."""
    for path in (str(config.data.train_files), str(config.actor_rollout_ref.model.path)):
        if os.path.isabs(path) and not os.path.exists(path):
            raise UserError(
                f"{path}: is not to be seen on {socket.gethostname()}, where verl's driver runs; every node must see the "
                "data folder (RPG_HOME) and the model under the same path"
            )


def require_resources(config) -> None:
    """Before anything is asked of Ray that it would wait for without end.

    Raises:
        UserError: it cannot be had.
    """
    units = config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    deadline = time.monotonic() + REPORT_SECONDS
    while why := lacking(_free(), config.trainer.nnodes, config.trainer.n_gpus_per_node, units):
        if time.monotonic() > deadline:
            raise UserError(why)
        time.sleep(0.5)


def _free() -> list[dict[str, float]]:
    """As verl itself asks (ResourcePoolManager._check_resource_available)."""
    return list(ray._private.state.available_resources_per_node().values())
