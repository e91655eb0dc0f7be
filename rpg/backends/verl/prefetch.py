"""Rollouts that are sampled some steps before they are trained on: `rollout.staleness` on verl.

The rollout of step t is sampled as soon as the weights after step t - 1 - staleness exist (for the
first steps: the initial ones), so it comes from the same policy, with the same random numbers, as
in the embedded trainer, and no result depends on how fast anything is. Where the rollout servers
keep their memory during an update, the update on one rollout and the sampling of a later one run at
the same time.

The rollouts that wait are part of a checkpoint; they are smaller than the weights that they were
sampled from:

    ahead.safetensors     verl's tensors of every response, one after the other, and their lengths
    ahead.json            keys, tags and the rest
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from rpg.backends.prompts import PromptOrder
from rpg.backends.verl import rollout
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.responses import prompt_name
from rpg.backends.verl.rollout import Group, Rollout
from rpg.errors import UserError
from rpg.store.atomic_files import atomic_write_json, read_json_object

TENSORS = "ahead.safetensors"
REST = "ahead.json"


class Prefetch:
    """Gives every step of a run its rollout.

    Attributes:
        waiting: rollouts that are not trained on yet, oldest first; between two steps there are
            `staleness` of them.
        sampled: the last step whose rollout was sampled.
        beside: whether the servers work while the policy is updated.
    """

    def __init__(
        self,
        settings: JobSettings,
        problems: int,
        ask: Callable[[int, Sequence[int], Sequence[str]], None],
        collect: Callable[[Sequence[str], int], list[Group]],
        beside: bool,
    ):
        """`ask(step, problem numbers, names)` makes the servers begin; `collect(names, round)`
        waits for the responses."""
        self.settings = settings
        self.problems = problems
        self.ask = ask
        self.collect = collect
        self.beside = beside and settings.staleness > 0
        self.waiting: deque[Rollout] = deque()
        self.sampled = 0
        self._asked = False

    def begin(self, step: int) -> Rollout:
        """The rollout that step `step` (from 1) trains on; the newest is sampled, or begun, with
        the current weights."""
        while self.sampled < step + self.settings.staleness - self.beside:
            self._draw()
        if self.beside:
            order = PromptOrder(self.problems, self.settings.seed)
            numbers = order.first(self.sampled + 1, self.settings.prompts_per_step)
            self.ask(self.sampled + 1, numbers, self._names(self.sampled + 1, numbers, 0))
            self._asked = True
        return self.waiting.popleft()

    def finish(self) -> None:
        """Wait for the rollout that was begun, before the servers get new weights."""
        if self._asked:
            self._draw()

    def save(self, folder: Path) -> None:
        """Make the waiting rollouts part of a checkpoint. Raises StoreError if it cannot be
        written."""
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
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / TENSORS)
        atomic_write_json(folder / REST, {"keys": batch.keys, "tags": batch.tags, "fields": rest})

    def restore(self, folder: Path, step: int) -> None:
        """Restore what :meth:`save` wrote after step `step`. Raises UserError if it is missing,
        StoreError if unreadable."""
        self.sampled = step
        if not self.settings.staleness:
            return
        if not (folder / REST).is_file():
            raise UserError(f"{folder}: the rollouts drawn ahead are not in it: {REST} is missing")
        record = read_json_object(folder / REST)
        flat = load_file(folder / TENSORS)
        keys = record["keys"]
        tags = record["tags"]
        fields = {}
        for name in (name for name in flat if not name.endswith(".lengths")):
            rows = torch.split(flat[name], flat[f"{name}.lengths"].tolist())
            fields[name] = torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
        data: TensorDict = tu.get_tensordict({**fields, **record["fields"]})
        tq.kv_batch_put(keys=keys, partition_id="train", fields=data, tags=tags)
        tag_of = dict(zip(keys, tags, strict=True))

        def restored(step: int, numbers: Sequence[int], round_: int) -> list[Group]:
            return rollout.read_groups(self._names(step, numbers, round_), tag_of)

        for _ in range(self.settings.staleness):
            self._draw(restored)

    def _draw(self, sample: Callable[[int, Sequence[int], int], list[Group]] | None = None) -> None:
        step = self.sampled + 1
        draw = partial(sample or self._sample, step)
        self.waiting.append(rollout.roll(self.settings, self.problems, step, draw))
        self.sampled = step

    def _sample(self, step: int, numbers: Sequence[int], round_: int) -> list[Group]:
        names = self._names(step, numbers, round_)
        if not self._asked:
            self.ask(step, numbers, names)
        self._asked = False
        return self.collect(names, round_)

    def _names(self, step: int, numbers: Sequence[int], round_: int) -> list[str]:
        return [prompt_name(step, round_, place) for place in range(len(numbers))]
