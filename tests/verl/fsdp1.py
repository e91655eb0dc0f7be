"""Two gloo workers of an FSDP1 model, for test_gpu_reference.py; argument: a folder.

Both models score once without gradients, as verl does before an update. Then the actor becomes the reference, is saved,
and comes back into a third model that has scored, too. Written: the largest difference of what they say.
"""

import json
import multiprocessing
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from rpg.backends.verl.fsdp_weights import copy_weights, drop_gathered, load_shards, shards


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.block = Block()
        self.head = nn.Linear(8, 16, bias=False)

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens)))


def make(seed, original):
    torch.manual_seed(seed)
    return FullyShardedDataParallel(
        Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=original,
    )  # fmt: skip


def work(rank, folder):
    store = distributed.FileStore(str(folder / "store"), 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    tokens, found = torch.arange(6)[None], {}
    with torch.no_grad():
        for original in (False, True):
            actor, reference, resumed = (make(seed, original) for seed in range(3))
            said, other = actor(tokens), reference(tokens)
            resumed(tokens)
            copy_weights(actor, reference)
            now = reference(tokens)
            drop_gathered(reference)
            load_shards(resumed, {name: value.clone() for name, value in shards(reference)})
            found[str(original)] = {
                "before": float((said - other).abs().max()),
                "copied": float((said - now).abs().max()),
                "loaded": float((said - resumed(tokens)).abs().max()),
                "actor": float((said - actor(tokens)).abs().max()),
            }
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    process = multiprocessing.get_context("fork").Process
    workers = [process(target=work, args=(rank, folder)) for rank in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))
