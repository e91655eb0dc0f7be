"""The rollout server and what feeds it, in the driver instead of in processes: for a job with one
worker on a CPU.

verl makes Ray actors of the rollout server, the worker that runs agent loops, the one that grades
and the load balancer. Each costs four to eight processor seconds before it does anything, nearly
all of it for imports that the driver has made already, and the driver waits while they work. With
several workers, as on GPUs, they stay actors.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from verl.checkpoint_engine import CheckpointEngineManager
from verl.experimental.reward_loop.reward_loop import RewardLoopManager, RewardLoopWorker
from verl.trainer.ppo.v1 import trainer_base
from verl.utils.ray_utils import auto_await
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from rpg.backends.verl.agent_loops import SeededManager, SeededWorker
from rpg.backends.verl.overrides import HUGGINGFACE
from verl_cpu.rollout_server import Replica, Server

_STOP_SECONDS = 10.0
"""How long the agent loops may take to end."""


def suffices(config: Any) -> bool:
    """Whether the driver is enough for a job: nothing in it asks for more than one of each, and
    rollouts are those of the embedded trainer's decoder (other servers have not been tried)."""
    trainer, rollout, reward = config.trainer, config.actor_rollout_ref.rollout, config.reward
    return (
        trainer.nnodes * trainer.n_gpus_per_node
        == rollout.agent.num_workers
        == reward.num_workers
        == 1
        and rollout.name == HUGGINGFACE
        and not reward.reward_model.enable  # verl would call the graders from another event loop
        and not rollout.get("router_config_path")
    )


@contextmanager
def in_driver(config: Any) -> Iterator[None]:
    """For the duration of a training, where the driver is enough for it.

    verl looks these classes up in the module of its trainer, or in the configuration.
    """
    if not suffices(config):
        yield
        return
    rollout = config.actor_rollout_ref.rollout
    rollout.agent.agent_loop_manager_class = f"{__name__}.{AgentLoops.__name__}"
    with patch.multiple(
        trainer_base,
        RewardLoopManager=Graders,
        LLMServerManager=Servers,
        CheckpointEngineManager=Weights,
    ):
        yield


class Direct:
    """In place of an actor's handle: an object of this process, whose methods run in the caller's
    event loop."""

    def __init__(self, inner: Any):
        self._inner = inner

    def __getattr__(self, name: str) -> SimpleNamespace:
        method = getattr(self._inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        # A task: as with an actor, the call is made also where nobody awaits it.
        return SimpleNamespace(
            remote=lambda *args, **kwargs: asyncio.ensure_future(call(*args, **kwargs))
        )


class Graders(RewardLoopManager):
    def _init_reward_loop_workers(self) -> None:
        self.reward_loop_workers = [
            Direct(RewardLoopWorker(self.config, self.reward_router_address))
        ]


class DriverReplica(Replica):
    async def launch_servers(self) -> None:
        server = Server(
            self.model_config["path"],
            self.config.response_length,
            int(os.environ.get("OMP_NUM_THREADS", "1")),
        )
        handle = Direct(server)
        self.servers, self._server_handle, self._server_address = [handle], handle, "the driver"


class Servers(LLMServerManager):
    rollout_replica_class = DriverReplica

    async def _init_global_load_balancer(self) -> None:
        servers = dict(zip(self.server_addresses, self.server_handles, strict=True))
        self.global_load_balancer = Direct(GlobalRequestLoadBalancer(servers))


class Weights(CheckpointEngineManager):
    """The driver fetches the policy's weights; a server elsewhere gets them from the worker."""

    @auto_await
    async def update_weights(self, global_steps: int | None = None) -> dict[str, Any]:
        (weights,) = self.actor_wg.whole_weights()
        (replica,) = self.replicas
        await replica.server_handle.load_weights.remote(weights, global_steps)
        return {}


class AgentLoops(SeededManager):
    """Runs the agent loops in an event loop on a thread of their own."""

    async def _init_agent_loop_workers(self) -> None:
        graders = self.reward_loop_worker_handles
        self.worker = SeededWorker(self.config, self.llm_client, self.teacher_client, graders)
        self.ended = asyncio.Event()
        ready = threading.Event()

        async def until_ended() -> None:
            self.loop = asyncio.get_running_loop()
            ready.set()
            await self.ended.wait()

        self.thread = threading.Thread(target=asyncio.run, args=[until_ended()], daemon=True)
        self.thread.start()
        ready.wait()

    def generate_sequences(self, prompts: Any) -> None:
        """verl's contract: begin responses to the prompts; they come back through its queue."""
        asyncio.run_coroutine_threadsafe(
            self.worker.generate_sequences(prompts), self.loop
        ).result()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(_STOP_SECONDS)
