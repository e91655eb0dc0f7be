"""One of two workers of an update (test_inside_update.py); argument: the folder with experience.pt."""

import os
import sys
from pathlib import Path

os.environ["VERL_PLATFORM"] = "cpu"
os.environ["VERL_USE_EXTERNAL_MODULES"] = "rpg.backends.verl.plugin"

import torch
import verl  # noqa: F401 (loads the plug-in)

from rpg.config.run import RunSpec
from tests.verl.inside import make_worker, verl_config, verl_update, weights

torch.set_num_threads(1)
folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
text, model, experience = torch.load(
    folder / "experience.pt", weights_only=False
)  # our own file of a moment ago
torch.distributed.init_process_group("gloo")
config = verl_config(RunSpec.model_validate_json(text), model, folder, gpus_per_node=2, max_tokens_per_gpu=32)
worker = make_worker(config)
calls = []
theirs = worker.actor.engine.forward_step
worker.actor.engine.forward_step = lambda *args, **kwargs: calls.append(1) or theirs(*args, **kwargs)
result = verl_update(worker, experience.batch, experience.old, experience.advantages, rank=rank, workers=2)
moved = weights(worker.actor.engine.module)
if rank == 0:
    numbers = {
        "metrics": result.metrics,
        "token_kls": result.token_kls,
        "optimizer_steps": result.optimizer_steps,
        "micro_batches": len(calls),
    }
    torch.save((numbers, moved), folder / "result.pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
