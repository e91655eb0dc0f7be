"""A hand-written training loop that goes on after a kill where it was, in the folder of its
recorded run.

with rpg.record("my-sweep", variant="my loop") as run:
    for step in steps(run, 100, model=model, optimizer=optimizer):
        ...
        run.log(step, reward=..., loss=...)
"""

import random
from collections.abc import Iterator
from typing import Any

import torch

from rpg.errors import UserError
from rpg.interop.importing.recording import Recording
from rpg.store.atomic_files import atomic_path


def steps(run: Recording, last: int, *, every: int = 1, **parts: Any) -> Iterator[int]:
    """The steps that are left until `last`, from 1. After each `every`-th, what `parts` hold
    (models, optimizers, schedules: what has state_dict and load_state_dict) is kept, with the state
    of torch's and Python's random numbers; a kill loses the steps since. In a distributed training
    the process with RANK 0 does so; the others load what it kept, but for the random numbers.
    Raises UserError: another loop, with other parts, was kept.
    """
    path = run.folder.path / "plain-loop.pt"
    done = 0
    if path.exists():
        kept = torch.load(path, weights_only=True)
        had = sorted(kept["parts"])
        if had != sorted(parts):
            raise UserError(f"{path}: holds {', '.join(had)}; expected {', '.join(sorted(parts))}")
        for name, part in parts.items():
            part.load_state_dict(kept["parts"][name])
        if not run.idle:
            torch.set_rng_state(kept["torch"])
            torch.cuda.set_rng_state_all(kept["cuda"])
            random.setstate(kept["python"])
        done = kept["step"]
    for step in range(done + 1, last + 1):
        yield step
        if run.idle or (step % every and step < last):
            continue
        with atomic_path(path) as temporary:
            kept = {"torch": torch.get_rng_state(), "python": random.getstate(), "step": step}
            kept |= {"parts": {name: part.state_dict() for name, part in parts.items()}}
            torch.save(kept | {"cuda": torch.cuda.get_rng_state_all()}, temporary)
