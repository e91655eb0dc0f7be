"""A verl worker with our update, our loss and a reference policy that can be renewed and saved."""

from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from torch.distributed import distributed_c10d as c10d
from verl.single_controller.base.decorator import (
    Dispatch,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from rpg.backends.verl import cpu, fsdp_weights, padded_batches
from rpg.backends.verl.fsdp_weights import shards, written_by
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.update import ActorLoss, UpdatePlan, update
from rpg.errors import UserError

SHARDS = "world_size_{world}_rank_{rank}.safetensors"


def bound_waits(seconds: float) -> None:
    """Limit how long a collective waits: verl never reads `nccl_timeout`, and torch's defaults are
    10 and 30 minutes.

    (verl/workers/engine_workers.py:89; torch/distributed/distributed_c10d.py:836.) The groups that
    FSDP's meshes make later have these defaults, too.
    """
    defaults: Any = c10d
    defaults.default_pg_timeout = timedelta(seconds=seconds)
    if isinstance(defaults.default_pg_nccl_timeout, timedelta):  # torch was built with NCCL
        defaults.default_pg_nccl_timeout = timedelta(seconds=seconds)


class PolicyWorker(ActorRolloutRefWorker):
    """Named by the trainer mode (trainer.py); verl makes one per GPU. (It looks for a base class by
    the name `Worker`.)"""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        self.settings = JobSettings.inside(self.config)
        if self.settings.device == "cpu":
            cpu.part("engine")  # registers itself
            torch.set_num_threads(self.settings.threads)
        bound_waits(self.config.nccl_timeout)
        if not self.config.model.use_remove_padding:
            padded_batches.install()
        super().init_model()
        s = self.settings
        self.actor.set_loss_fn(ActorLoss(s.algorithm, s.max_response_tokens, s.entropy_coeff))
        self.kept: fsdp_weights.Weights | None = None
        """With `model.lora`: the adapters of the reference; None if that is the model without
        adapters."""
        if self.settings.lora_rank:
            fsdp_weights.send_merged(self.actor.engine)

    def ref_worker_cls(self, config: TrainingWorkerConfig) -> TrainingWorker:
        """verl makes the worker of the reference by this name, with the policy's model; a teacher
        is another one."""
        teacher = self.settings.algorithm.teacher_path
        if teacher is not None:
            other = OmegaConf.merge(self.config.model, {"path": teacher})
            config = replace(config, model_config=omega_conf_to_dataclass(other))
        return TrainingWorker(config=config)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_log_prob(self, data: TensorDict) -> TensorDict | None:
        """verl's; with `model.lora` also those of the reference (`no_lora_adapter`)."""
        if self.kept is None or not tu.pop(data, key="no_lora_adapter", default=False):
            return super().compute_log_prob(data)
        with fsdp_weights.with_adapters(self.actor.engine.module, self.kept):
            return super().compute_log_prob(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: TensorDict) -> TensorDict | None:
        plan = UpdatePlan(**tu.get(data, "rpg_plan"))
        if plan.renew_reference:
            self.renew_reference()
        result = update(self.actor, data, plan, self.settings)
        if not self.actor.engine.is_mp_src_rank_with_outputs():
            return None
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": asdict(result)})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def whole_weights(self) -> dict[str, torch.Tensor]:
        """What verl's update_weights sends to a rollout server, for a server in the driver itself
        (verl-cpu)."""
        parameters, _ = self.actor.engine.get_per_tensor_param(base_sync_done=True)
        return {name: value.detach().to("cpu", torch.float32) for name, value in parameters}

    def renew_reference(self) -> None:
        """Make the current policy the reference."""
        if self.settings.lora_rank:
            self.kept = fsdp_weights.adapters(self.actor.engine.module)
        else:
            fsdp_weights.load_shards(self.ref.engine.module, dict(shards(self.actor.engine.module)))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_reference(self, folder: str) -> None:
        """Each worker writes its shards of the reference policy."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        weights = dict(shards(self.ref.engine.module)) if self.kept is None else self.kept
        tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
        save_file(tensors, self._shard_file(folder))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_reference(self, folder: str) -> None:
        """Restore what :meth:`save_reference` wrote, also on another number of workers. Raises
        UserError: the folder holds no reference.
        """
        workers = written_by(folder, SHARDS)
        if not workers:
            raise UserError(f"{folder}: no reference policy in it")
        module = (self.actor if self.settings.lora_rank else self.ref).engine.module
        current = fsdp_weights.adapters(module)
        if workers == self.world_size:
            fsdp_weights.load_shards(module, load_file(self._shard_file(folder)))
        else:
            fsdp_weights.load_shards_of(module, folder, SHARDS, workers)
        if self.settings.lora_rank:
            self.kept = fsdp_weights.adapters(module)
            fsdp_weights.load_shards(module, current)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """verl's; with `model.lora` we write the model, merged."""
        super().save_checkpoint(local_path, *args, **kwargs)
        if self.settings.lora_rank:
            folder = Path(local_path) / "huggingface"
            fsdp_weights.export_merged(self.actor.engine.module, folder, self.rank == 0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_weights(self, local_path: str) -> None:
        """The model alone, which is evaluated; no training can go on from it."""
        manager = self.actor.engine.checkpoint_manager
        contents = manager.checkpoint_save_contents
        manager.checkpoint_save_contents = [part for part in contents if part == "hf_model"]
        try:
            self.save_checkpoint(local_path)
        finally:
            manager.checkpoint_save_contents = contents

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """verl's, or ours if another number of workers wrote it."""
        with fsdp_weights.resharding(
            self.actor.engine.checkpoint_manager, local_path, self.world_size
        ):
            super().load_checkpoint(local_path, *args, **kwargs)

    def _shard_file(self, folder: str) -> Path:
        return Path(folder) / SHARDS.format(world=self.world_size, rank=self.rank)
