"""One of some workers that save, or go on from what others saved (test_gpu_resharding.py); arguments: folder, what."""

import os
import sys
from pathlib import Path

os.environ["VERL_PLATFORM"] = "cpu"
os.environ["VERL_USE_EXTERNAL_MODULES"] = "rpg.backends.verl.plugin"

import torch
import verl  # noqa: F401 (loads the plug-in)

from rpg.backends.verl.sharded import copy_weights
from rpg.config.run import RunSpec
from tests.verl.inside import make_worker, verl_config, verl_update, weights

torch.set_num_threads(1)
folder, rank, world = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
text, model, experience = torch.load(
    folder / "experience.pt", weights_only=False
)  # our own file of a moment ago
torch.distributed.init_process_group("gloo")
config = verl_config(RunSpec.model_validate_json(text), model, folder, gpus_per_node=world)
worker = make_worker(config, "actor_rollout_ref")
source, target = (folder / name if name != "-" else None for name in sys.argv[2:4])
if source is not None:
    worker.load_checkpoint(str(source / "actor"))
    worker.load_reference(str(source / "reference"))
loaded = weights(worker.actor.engine.module)
verl_update(worker, experience.batch, experience.old, experience.advantages, rank=rank, workers=world)
if source is None:  # the others have to get it from there
    copy_weights(worker.actor.engine.module, worker.ref.engine.module)
worker.save_checkpoint(str(target / "actor"))
worker.save_reference(str(target / "reference"))
moments = torch.cat([
    value.full_tensor().flatten()
    for entries in worker.actor.engine.optimizer.state.values()
    for value in entries.values() if hasattr(value, "full_tensor")
])  # fmt: skip
found = (loaded, weights(worker.actor.engine.module), weights(worker.ref.engine.module), moments)
if rank == 0:
    torch.save(found, target / "found.pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
