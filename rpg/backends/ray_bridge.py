"""`python -m rpg.backends.ray_bridge ADDRESS`: runs trainings on a Ray cluster for a conductor,
over two pipes.

It is a separate process because Ray ends a process that has lost its cluster. Orders arrive on
standard input as lines of JSON ({"key": ..., ...} with the fields of rpg.backends.ray_task.Order).
Answers go to standard output: {"ready": true} or {"error": ...} first, then one of these for each
order:

    {"key", "node", "code", "newest"}   the training process has ended
    {"key", "lost"}                     the node or its worker is gone; the run may be started again
    elsewhere {"key", "refused"}                  why it cannot run on this cluster {"key", "waits"}
    each minute: no node is large enough yet

However this process ends, Ray then ends everything that it started.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rpg.backends.ray_connection import SAID_SECONDS, ClusterError, connect, last_line, promised
from rpg.backends.ray_task import Order, train_here
from rpg.errors import UserError
from rpg.system.processes import die_with_parent

POLL_SECONDS = 0.2
NODES_SECONDS = 5.0


@dataclass
class Asked:
    """A training that was asked for. `hope`: when a node that is large enough was last there or
    promised; it is refused when that is `patience` seconds ago: nodes restart, and people add some.
    """

    key: str
    needs: dict[str, float]
    patience: float
    hope: float
    said: float


def main(address: str) -> int:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints goes to the log

    try:
        ray = connect(address, "backend.place")
    except ClusterError as error:
        _tell(answers, error=str(error))
        return 1
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    _tell(answers, ready=True)
    return _serve(ray, orders, answers)


def _listen(orders: queue.Queue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)  # the conductor has hung up


def _serve(ray: Any, orders: queue.Queue[dict[str, Any]], answers: IO[str]) -> int:
    task = ray.remote(train_here)
    running: dict[Any, Asked] = {}  # by Ray's reference
    checked = 0.0
    while True:
        with contextlib.suppress(queue.Empty):
            fields = orders.get(timeout=0 if running else None)
            key = fields.pop("key")
            order = Order(**fields)
            now = time.monotonic()
            reference = task.options(max_retries=0, **order.needs).remote(order)
            running[reference] = Asked(
                key, order.needs, 60 * order.wait_minutes, hope=now, said=now
            )
            continue
        ready, _ = ray.wait(list(running), timeout=POLL_SECONDS)
        if time.monotonic() - checked > NODES_SECONDS:
            checked = time.monotonic()
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            too_large = {
                r: a for r, a in running.items() if not fits(nodes, a.needs) and r not in ready
            }
            coming = promised(ray) if too_large else 0
            for reference, asked in list(running.items()):
                if coming or reference not in too_large:
                    asked.hope = checked
                if reference not in too_large:
                    asked.said = checked
                elif checked - asked.hope > asked.patience:
                    ray.cancel(reference, force=True)
                    _tell(answers, key=asked.key, refused=too_much(nodes, asked.needs))
                    del running[reference]
                elif checked - asked.said >= SAID_SECONDS:
                    asked.said, left = checked, (asked.patience - checked + asked.hope) / 60
                    why = (
                        f"the autoscaler promises {coming}"
                        if coming
                        else f"refused in {left:.1f} minutes"
                    )
                    _tell(
                        answers,
                        key=asked.key,
                        waits=f"waits: {too_much(nodes, asked.needs)}; {why}",
                    )
        for reference in ready:
            _tell(answers, key=running.pop(reference).key, **_outcome(ray, reference))


def _outcome(ray: Any, reference: Any) -> dict[str, Any]:
    try:
        return dict(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        is_ours = isinstance(error.cause, UserError)
        return {"refused": str(error.cause) if is_ours else f"backend.place: {last_line(error)}"}
    except ray.exceptions.RuntimeEnvSetupError as error:
        why = f"this version cannot be sent to the cluster: {last_line(error)}"
        return {"refused": f"backend.place: {why}"}
    except ray.exceptions.OutOfMemoryError:
        return {"lost": "Ray ended it because its node was short of memory"}
    except ray.exceptions.RayError as error:
        return {"lost": _LOSSES.get(type(error).__name__, last_line(error))}


_LOSSES = {"WorkerCrashedError": "its worker on the node was killed"}
_LOSSES |= dict.fromkeys(("NodeDiedError", "LocalRayletDiedError"), "its node is gone")
_RESOURCES = {
    "num_cpus": ("CPU", "cpus", 1),
    "num_gpus": ("GPU", "gpus", 1),
    "memory": ("memory", "memory_gib", 2**30),
}
"""Option of a Ray task -> the nodes' name for it, our field, and the unit of that field."""


def fits(nodes: Sequence[Mapping[str, float]], needs: Mapping[str, float]) -> bool:
    """Whether any node could ever take such a run; if none can, Ray waits silently."""
    return any(
        all(node.get(_RESOURCES[n][0], 0) >= value for n, value in needs.items()) for node in nodes
    )


def too_much(nodes: Sequence[Mapping[str, float]], needs: Mapping[str, float]) -> str:
    """What it asks for that no node has, in one line."""
    asked = {name: _RESOURCES[name] for name, value in needs.items() if value}
    needed = ", ".join(
        f"{field} {needs[name] / unit:g}" for name, (_, field, unit) in asked.items()
    )
    most = ", ".join(
        f"{field} {max((node.get(kind, 0) for node in nodes), default=0) / unit:g}"
        for kind, field, unit in asked.values()
    )
    return (
        f"backend.place: a run needs {needed} on one node, and no node of the cluster has that "
        f"(at most {most})"
    )


def _tell(answers: IO[str], **answer: Any) -> None:
    try:
        answers.write(json.dumps(answer) + "\n")
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
