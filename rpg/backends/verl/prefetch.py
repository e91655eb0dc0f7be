"""Rollouts that are drawn some steps before they are trained on: `rollout.staleness` on verl.

The rollout of step t is drawn as soon as the weights after step t - 1 - staleness are there (the initial ones for the
first steps), so it is sampled from the same policy, with the same randomness, as the embedded trainer samples it from.
Nothing depends on how fast anything is. Where the rollout servers keep their memory while the policy is updated, the
update of one rollout and the sampling of a later one run at the same time.

The rollouts that wait are part of a checkpoint, which is smaller than the weights that they were drawn from:

    ahead.safetensors     verl's tensors of every response, one after the other, and their lengths
    ahead.json            keys, tags and the rest
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from verl.utils.tensordict_utils import get_tensordict

from rpg.backends.verl import rollout
from rpg.backends.verl.agent_loops import prompt_name
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.rollout import Group, Rollout
from rpg.errors import UserError
from rpg.store.atomic_files import atomic_write_json, read_json_object

TENSORS, REST = "ahead.safetensors", "ahead.json"


class Prefetch:
    """The rollouts of a run, each when its step comes.

    Attributes:
        waiting: those that were drawn and not yet trained on, oldest first; between two steps `staleness` of them.
        drawn: the last step whose rollout was drawn.
    """

    def __init__(
        self,
        settings: JobSettings,
        problems: int,
        ask: Callable[[int, Sequence[int], Sequence[str]], None],
        collect: Callable[[Sequence[str], int], list[Group]],
        beside: bool,
    ):
        """`ask(step, problem numbers, names)` has the servers begin; `collect(names, round)` waits for the responses;
        `beside`: the servers work while the policy is updated."""
        self.settings, self.problems = settings, problems
        self.ask, self.collect = ask, collect
        self.beside = beside and settings.staleness > 0
        self.waiting: deque[Rollout] = deque()
        self.drawn = 0
        self._asked = False

    def begin(self, step: int) -> Rollout:
        """The rollout that step `step` (from 1) trains on; the newest is drawn, or begun, with the weights of now."""
        while self.drawn < step + self.settings.staleness - self.beside:
            self._draw()
        if self.beside:
            numbers = rollout.first_round(self.settings, self.problems, self.drawn + 1)
            self.ask(self.drawn + 1, numbers, self._names(self.drawn + 1, numbers, 0))
            self._asked = True
        return self.waiting.popleft()

    def finish(self) -> None:
        """Wait for what was begun; before the servers get other weights."""
        if self._asked:
            self._draw()

    def save(self, folder: Path) -> None:
        """What waits becomes part of a checkpoint.

        Raises:
            StoreError: it cannot be written.
        """
        batch = rollout.as_batch([group for rolled in self.waiting for group in rolled.sampled])
        if not batch.keys:
            return
        fields = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id)
        tensors: dict[str, torch.Tensor] = {}
        rest: dict[str, list[Any]] = {}
        for name in fields.keys():  # noqa: SIM118 (iterating over a TensorDict gives its rows)
            value = fields.get(name)
            if isinstance(value, torch.Tensor):
                rows = list(value.unbind())
                tensors[name] = torch.cat([row.flatten() for row in rows]).contiguous()
                tensors[f"{name}.lengths"] = torch.tensor([row.numel() for row in rows])
            else:
                rest[name] = value.tolist()
        Path(folder).mkdir(parents=True, exist_ok=True)
        save_file(tensors, Path(folder) / TENSORS)
        atomic_write_json(Path(folder) / REST, {"keys": batch.keys, "tags": batch.tags, "fields": rest})

    def restore(self, folder: Path, step: int) -> None:
        """Back to what :meth:`save` wrote after step `step`.

        Raises:
            UserError: it is not there, though the run's sampler is to be stale; StoreError: it cannot be read.
        """
        self.drawn = step
        if not self.settings.staleness:
            return
        if not (Path(folder) / REST).is_file():
            raise UserError(f"{folder}: the rollouts that were drawn ahead are not in it: {REST} is missing")
        known = read_json_object(Path(folder) / REST)
        keys, tags = known["keys"], known["tags"]
        flat = load_file(Path(folder) / TENSORS)
        fields = {
            name: torch.nested.as_nested_tensor(
                list(value.split(flat[f"{name}.lengths"].tolist())), layout=torch.jagged
            )
            for name, value in flat.items()
            if not name.endswith(".lengths")
        }
        data: TensorDict = get_tensordict({**fields, **known["fields"]})
        tq.kv_batch_put(keys=keys, partition_id="train", fields=data, tags=tags)
        there = dict(zip(keys, tags, strict=True))
        for later in range(step + 1, step + self.settings.staleness + 1):
            found = partial(self._found, there, later)
            self.waiting.append(rollout.roll(self.settings, self.problems, later, found))
            self.drawn = later

    def _draw(self) -> None:
        step = self.drawn + 1
        sample = partial(self._sample, step)
        self.waiting.append(rollout.roll(self.settings, self.problems, step, sample))
        self.drawn = step

    def _sample(self, step: int, numbers: Sequence[int], round_: int) -> list[Group]:
        names = self._names(step, numbers, round_)
        if not self._asked:
            self.ask(step, numbers, names)
        self._asked = False
        return self.collect(names, round_)

    def _found(self, there: dict[str, dict], step: int, numbers: Sequence[int], round_: int) -> list[Group]:
        return rollout.read_groups(self._names(step, numbers, round_), there)

    def _names(self, step: int, numbers: Sequence[int], round_: int) -> list[str]:
        return [prompt_name(step, round_, place) for place in range(len(numbers))]
