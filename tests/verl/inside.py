"""verl's worker and its data in this very process (one rank on gloo, no Ray), and whole jobs in
processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from tensordict import TensorDict

from rpg.backends.verl.main import compose, derive
from rpg.backends.verl.overrides import Paths, plan
from rpg.config.run_spec import RunSpec
from rpg.system.processes import LOST, parent_mark
from tests import tiny
from tests.waiting import HANG, free_port

ROOT = Path(__file__).resolve().parents[2]
BASE = {**tiny.BASE, "training": {"steps": 3, "prompts_per_step": 8, "mini_batch_prompts": 2}}


def make_spec(backend=None, **changes):
    """A run of a tiny model that answers at random; `changes` replace whole sections."""
    sections = {
        name: {**BASE.get(name, {}), **value}
        if isinstance(value, dict) and name != "algorithm"
        else value
        for name, value in changes.items()
    }
    return RunSpec.model_validate({**BASE, **sections, "backend": backend or {"type": "local"}})


def verl_config(spec, model, tmp, *extra, **backend):
    """verl's composed and derived config of a run, as every process of a job sees it."""
    backend = {"type": "verl", "gradient_checkpointing": False, **backend}
    spec = spec.model_copy(update={"backend": make_spec(backend).backend})
    paths = Paths(str(model), tmp / "train.parquet", (), tmp / "state", tmp / "metrics.jsonl")
    config = compose([*plan(spec, paths).arguments(), *extra])
    derive(config)
    return config


def one_rank():
    """The environment of the only worker of a process group."""
    return {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }


def one_process_group():
    """A process group of this process alone; verl's worker finds it and makes none."""
    if torch.distributed.is_initialized():
        return
    os.environ.update(LOCAL_RANK="0", **one_rank())
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)


def make_worker(config, role="actor"):
    """The worker of a job, initialised."""
    from rpg.backends.verl.policy_worker import PolicyWorker

    one_process_group()
    worker = PolicyWorker(config.actor_rollout_ref, role)
    worker.init_model()
    return worker


def nested(rows):
    return torch.nested.as_nested_tensor(
        [torch.as_tensor(row) for row in rows], layout=torch.jagged
    )


def as_verl(batch, temperature=1.0):
    """Responses of the embedded trainer as verl's queue hands them to its workers."""
    lengths = batch.lengths.tolist()
    prompts = [batch.prompts[i] for i in batch.prompt_of.tolist()]
    responses = [row[:n].tolist() for row, n in zip(batch.tokens, lengths, strict=True)]
    whole = [list(p) + r for p, r in zip(prompts, responses, strict=True)]
    mask = nested([[1] * n for n in lengths])
    data = TensorDict(
        {
            "prompts": nested([list(p) for p in prompts]),
            "responses": nested(responses),
            "input_ids": nested(whole),
            "position_ids": nested([list(range(len(row))) for row in whole]),
            "response_mask": mask,
            "loss_mask": mask,
        },
        batch_size=len(lengths),
    )
    from verl.utils import tensordict_utils as tu

    tu.assign_non_tensor(data, temperature=temperature)
    return data


def unpadded(values, batch):
    """(N, T) as the nested tensor of each row's own length."""
    return nested([row[:n] for row, n in zip(values, batch.lengths.tolist(), strict=True)])


def verl_update(
    worker, batch, old, advantages, step=1, rank=0, workers=1, renew_reference=False, **more
):
    """The worker's update on its part of a rollout of the embedded trainer, in the driver's
    order."""
    from verl.utils import tensordict_utils as tu

    from rpg.backends.verl.experience import arrange
    from rpg.backends.verl.update import UpdatePlan, update

    settings = worker.settings
    data = as_verl(batch, settings.temperature)
    for name, values in {"old_log_probs": old, "advantages": advantages, **more}.items():
        data[name] = unpadded(values, batch)
    groups = len(batch.lengths) // settings.group_size
    order, sizes = arrange(settings, step, groups, batch.total_lengths().tolist(), workers)
    share = torch.tensor(order).chunk(workers)[rank]
    data = tu.index_select_tensor_dict(data, share)
    plan = UpdatePlan(sizes, [list(range(len(sizes)))], 0, renew_reference, [])
    return update(worker.actor, data, plan, settings)


def an_experience(trainer):
    """What the embedded trainer's first update trains on."""
    return trainer._experience(trainer.roller.roll(trainer.policy, 1).kept, trainer.policy)


def weights(module):
    """All parameters in one row, whole also where they are sharded."""
    parameters = dict(module.named_parameters())
    full = lambda p: p.full_tensor() if hasattr(p, "full_tensor") else p  # noqa: E731
    return torch.cat([full(parameters[name]).detach().flatten() for name in sorted(parameters)])


def job(spec, model, data, folder, attempt, resume=None, timeout=3 * HANG):
    """Run one verl job to its end; its lines by step."""
    state = folder / "state"
    metrics = folder / f"metrics-{attempt}.jsonl"
    paths = Paths(str(model), data.train, tuple(data.benchmarks.values()), state, metrics, resume)
    launch = plan(spec, paths)
    environment = {**os.environ, **launch.environment, "PYTHONPATH": str(ROOT), **parent_mark()}
    command = [sys.executable, "-m", "rpg.backends.verl.main", *launch.arguments()]
    pipes = {"capture_output": True, "text": True}
    # As the launcher does where Ray does not come up in the 30 seconds that it gives itself.
    for _ in range(3):
        ran = subprocess.run(command, cwd=folder, env=environment, timeout=timeout, **pipes)
        if ran.returncode != LOST:
            break
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
    return {line["step"]: line["data"] for line in lines}


def ours(rows):
    """The metrics under the project's names."""

    def named(data):
        return {k.removeprefix("rpg/"): v for k, v in data.items() if k.startswith("rpg/")}

    return {step: named(data) for step, data in rows.items()}
