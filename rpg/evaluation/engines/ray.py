"""Any engine on a Ray cluster: the problems are distributed over workers, each with a copy of the
engine.

Responses come back as they are finished; this process grades them and writes the files, so the
cluster affects only the speed of an evaluation. A worker that ends (its node is removed, memory is
short) is replaced, and what it had not delivered is sampled again: the same samples, because each
has its own key.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from rpg.backends.ray_connection import ClusterError, await_nodes, connect, last_line
from rpg.config.evaluation import OnRay
from rpg.errors import UserError
from rpg.evaluation.engines.protocol import Completion, Engine, EngineError, Request
from rpg.models.decoding import ignore_progress
from rpg.models.device import configure_device
from rpg.models.truncated_sampling import Sampling

_RESTARTS = 3
"""Workers that may end during one evaluation before that is an error."""
_SAY_SECONDS = 30.0
"""The interval of messages while workers wait for resources of the cluster."""
_RESOURCES = (("CPU", "cpus", 1), ("GPU", "gpus", 1), ("memory", "memory_gib", 2**30))
"""Ray's name of each, our field, and its units in ours."""

StartEngine = Callable[[str], Engine]
"""Of a device."""


class RayWorker:
    """An engine in a process of the cluster, which delivers its responses part by part."""

    def __init__(self, start: StartEngine, device: str, threads: int):
        torch.set_num_threads(threads)
        configure_device(device)
        self.engine = start(device)
        self._parts: Iterator[list[tuple[int, Completion]]] = iter(())

    def load(self, model: str, revision: str | None) -> None:
        """Load the model; a folder must exist on this node, too."""
        folder = model.startswith(("/", "~", "."))
        if folder and not Path(model).expanduser().is_dir():
            raise EngineError(
                f"evaluation.place: {model} does not exist on the cluster node "
                f"{socket.gethostname()}; "
                "the data folder must be on storage that all nodes share"
            )
        self.engine.load(model, revision)

    def begin(self, requests: Sequence[Request]) -> None:
        """Start with these requests; drops what is left of earlier ones."""
        self._parts = self.engine.complete(requests)

    def part(self) -> list[tuple[int, Completion]] | None:
        """The responses that are finished next; None when all are."""
        return next(self._parts, None)


class RayEngine:
    """Implements the protocol by workers, which `start` their engines on the cluster."""

    def __init__(
        self, start: StartEngine, sampling: Sampling, place: OnRay, say: Callable[[str], None]
    ):
        self.start = start
        self.sampling = sampling
        self.place = place
        self.say = say
        self.tell: Callable[[int, int], None] = ignore_progress
        self._model: tuple[str, str | None] | None = None
        try:
            self._ray = connect(place.address, "evaluation.place")
            wanted = [
                (kind, unit * (getattr(place, field) or 0)) for kind, field, unit in _RESOURCES
            ]
            bundle = {kind: float(amount) for kind, amount in wanted if amount}
            await_nodes(self._ray, self._lacking, [bundle] * place.workers, say)
        except ClusterError as error:
            raise EngineError(str(error)) from error
        self._workers = [self._start() for _ in range(place.workers)]

    def _lacking(self) -> str | None:
        place = self.place
        total = self._ray.cluster_resources()
        for kind, field, unit in _RESOURCES:
            each = getattr(place, field) or 0
            available = total.get(kind, 0) / unit
            if each * place.workers > available:
                return (
                    f"evaluation.place: {place.workers} workers with {field} {each:g} each, "
                    "but the cluster at "
                    f"{place.address} has {available:g} in all"
                )
        return None

    def _start(self) -> Any:
        place = self.place
        memory = int(place.memory_gib * 2**30) if place.memory_gib else None
        resources = {"num_cpus": place.cpus, "num_gpus": place.gpus, "memory": memory}
        worker = self._ray.remote(RayWorker).options(**resources)
        return worker.remote(self.start, "cuda" if place.gpus else "cpu", max(1, int(place.cpus)))

    def load(self, model: str | Path, revision: str | None = None) -> None:
        local = Path(model).expanduser()
        self._model = (str(local.resolve()) if local.exists() else str(model), revision)
        self._loaded(self._workers)

    def _loaded(self, workers: Sequence[Any]) -> None:
        """Make these workers load the model, and wait until they have."""
        assert self._model is not None
        waiting = [worker.load.remote(*self._model) for worker in workers]
        waited = 0.0
        while waiting:
            ready, waiting = self._ray.wait(waiting, timeout=_SAY_SECONDS)
            for reference in ready:
                try:
                    self._get(reference)
                except self._ray.exceptions.RayActorError as error:
                    why = (
                        "a worker on the Ray cluster ended while loading the model: "
                        f"{last_line(error)}"
                    )
                    raise EngineError(why) from error
            if not ready:
                waited += _SAY_SECONDS
                where = f"the Ray cluster at {self.place.address}"
                self.say(f"{len(waiting)} workers are waiting for {where}: {waited:.0f} s")

    def _get(self, reference: Any) -> Any:
        """A worker's answer; raises its errors here."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise EngineError(f"a worker on the Ray cluster failed: {last_line(error)}") from error

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        shares = [share for share in deal(requests, len(self._workers)) if share]
        asked: dict[Any, tuple[int, list[int]]] = {}  # pending answer -> (worker, its requests)
        left = [set(share) for share in shares]
        ended = 0
        for number, share in enumerate(shares):
            asked[self._ask(number, [requests[i] for i in share])] = number, share
        while asked:
            [reference], _ = self._ray.wait(list(asked), num_returns=1)
            number, share = asked.pop(reference)
            try:
                part = self._get(reference)
            except self._ray.exceptions.RayActorError as error:
                ended += 1
                if ended > _RESTARTS:
                    raise EngineError(
                        f"workers on the Ray cluster ended {ended} times, the last time "
                        f"with: {last_line(error)}"
                    ) from error
                self.say(f"a worker on the Ray cluster ended and is replaced ({last_line(error)})")
                share = sorted(left[number])
                self._ray.kill(
                    self._workers[number]
                )  # if only unreachable, it would keep its resources
                self._workers[number] = self._start()
                self._loaded([self._workers[number]])
                asked[self._ask(number, [requests[i] for i in share])] = number, share
                continue
            if part is None:
                continue
            finished = [(share[i], completion) for i, completion in part]
            left[number].difference_update(i for i, _ in finished)
            asked[self._workers[number].part.remote()] = number, share
            yield finished

    def _ask(self, number: int, requests: list[Request]) -> Any:
        worker = self._workers[number]
        worker.begin.remote(requests)  # a worker does one thing at a time
        return worker.part.remote()

    def close(self) -> None:
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []


def deal(requests: Sequence[Request], workers: int) -> list[list[int]]:
    """Indices of requests for each worker: the problems in turn, the samples of a problem
    together."""
    shares: list[list[int]] = [[] for _ in range(workers)]
    groups = groupby(range(len(requests)), key=lambda i: requests[i].prompt)
    for turn, (_, group) in enumerate(groups):
        shares[turn % workers].extend(group)
    return shares
