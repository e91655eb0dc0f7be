"""Workers that update, go on with a training or renew a reference, for test_gpu_resharding.py: one
here, or two processes.

As a program it is both: each line of its input is [name of a function below, arguments ...] as
JSON, and is answered by the line "done" when both have done it.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed.device_mesh import init_device_mesh

from rpg.config.run_spec import RunSpec
from rpg.system.processes import quick_imports
from tests.verl.inside import ROOT, make_worker, one_rank, verl_config, verl_update, weights

DONE = "done\n"
BEGIN = "-"
WAIT = timedelta(seconds=5400)


def go_on(folder, source, target, rank=0, workers=1):
    """Load what `source` saved (a folder below; BEGIN: none), update, save as `target`.

    found.pt there: weights that were loaded, updated weights, weights of the reference, moments.
    """
    from rpg.backends.verl.fsdp_weights import load_shards, shards

    spec, model, experience = _told(folder)
    worker = make_worker(
        verl_config(spec, model, folder, gpus_per_node=workers), "actor_rollout_ref"
    )
    if source != BEGIN:
        worker.load_checkpoint(str(folder / source / "actor"))
        worker.load_reference(str(folder / source / "reference"))
    loaded = weights(worker.actor.engine.module)
    verl_update(
        worker,
        experience.batch,
        experience.old_log_prob,
        experience.advantages,
        rank=rank,
        workers=workers,
    )
    if source == BEGIN:  # the others have to get it from there
        load_shards(worker.ref.engine.module, dict(shards(worker.actor.engine.module)))
    worker.save_checkpoint(str(folder / target / "actor"))
    worker.save_reference(str(folder / target / "reference"))
    moments = torch.cat(
        [
            value.full_tensor().flatten()
            for entries in worker.actor.engine.optimizer.state.values()
            for value in entries.values()
            if hasattr(value, "full_tensor")
        ]
    )
    found = (
        loaded,
        weights(worker.actor.engine.module),
        weights(worker.ref.engine.module),
        moments,
    )
    if rank == 0:
        torch.save(found, folder / target / "found.pt")


def update(folder, rank, workers):
    """One update in many micro-batches; result.pt: its numbers, and the updated weights."""
    spec, model, experience = _told(folder)
    config = verl_config(spec, model, folder, gpus_per_node=workers, max_tokens_per_gpu=32)
    worker = make_worker(config)
    calls = []
    theirs = worker.actor.engine.forward_step
    worker.actor.engine.forward_step = lambda *args, **kwargs: (
        calls.append(1) or theirs(*args, **kwargs)
    )
    place = {"rank": rank, "workers": workers}
    result = verl_update(
        worker, experience.batch, experience.old_log_prob, experience.advantages, **place
    )
    moved = weights(worker.actor.engine.module)
    numbers = {**vars(result), "micro_batches": len(calls)}
    if rank == 0:
        torch.save((numbers, moved), folder / "result.pt")


def waits(folder, rank, workers):
    """waits.pt: how long a collective waits in verl's own group, in a new one, in one of FSDP's
    meshes, and with NCCL."""
    from rpg.backends.verl.policy_worker import bound_waits

    bound_waits(WAIT.total_seconds())
    mesh = init_device_mesh("cpu", (1, workers))
    groups = (torch.distributed.group.WORLD, torch.distributed.new_group([0, 1]), mesh.get_group(1))
    limits = {
        group._get_backend(torch.device("cpu")).options._timeout.total_seconds() for group in groups
    }
    limits.add(torch.distributed.distributed_c10d._get_default_timeout("nccl").total_seconds())
    if rank == 0:
        torch.save(limits, folder / "waits.pt")


def tell(folder, spec, model, experience):
    """What the functions above begin with."""
    torch.save((spec.model_dump_json(), str(model), experience), folder / "experience.pt")


def _told(folder):
    # our own file of a moment ago
    text, model, experience = torch.load(folder / "experience.pt", weights_only=False)
    return RunSpec.model_validate_json(text), model, experience


@contextmanager
def two_ranks():
    """A function that has both do something; it returns when they have."""
    base = {
        **os.environ,
        **one_rank(),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "OMP_NUM_THREADS": "1",
    }
    base |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "rpg.backends.verl.plugin"}
    command = [sys.executable, "-m", "tests.verl.ranks"]
    pipe = subprocess.PIPE
    ranks = subprocess.Popen(command, cwd=ROOT, env=base, stdin=pipe, stdout=pipe, text=True)

    def both(name, *arguments):
        print(json.dumps([name, *map(str, arguments)]), file=ranks.stdin, flush=True)
        while (line := ranks.stdout.readline()) != DONE:
            assert line, "a rank has ended; its error is on stderr"

    try:
        yield both
    finally:
        ranks.kill()
        ranks.wait()


def serve():
    """Rank 0, which hands each line on to rank 1: forked from it, after the imports."""
    with quick_imports():  # importing verl loads the plug-in
        from verl.utils.distributed import initialize_global_process_group_ray

        from rpg.backends.verl.policy_worker import bound_waits
    torch.set_num_threads(1)
    reader, writer = os.pipe()
    rank = 0 if os.fork() else 1
    os.environ["RANK"] = str(rank)
    if rank == 1:
        os.close(writer)  # so that it ends with rank 0
    bound_waits(WAIT.total_seconds())
    initialize_global_process_group_ray(timeout_second=None, backend="gloo")
    for line in os.fdopen(reader) if rank == 1 else sys.stdin:
        if rank == 0:
            os.write(writer, line.encode())
        name, folder, *words = json.loads(line)
        function = {"go_on": go_on, "update": update, "waits": waits}[name]
        function(Path(folder), *words, rank=rank, workers=2)
        torch.distributed.barrier()  # what rank 0 writes is there
        if rank == 0:
            print(DONE, end="", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    serve()
