"""How many processes of each kind verl starts, and the CPUs that Ray needs for them. Imports
neither Ray nor verl.

Ray assigns CPUs by number, not by use: a request that cannot be met waits for ever, silently. verl
0.9.1 asks for

    3 for every GPU                   verl/single_controller/ray/base.py:192
    (ResourcePoolManager.max_colocate_count) 1 for every unit of its queue
    transfer_queue/storage/simple_storage.py:722 1 for the queue's controller
    transfer_queue/controller.py:943

and an actor that holds none while it runs (driver, servers, graders) needs one free CPU to start.
With verl's own number of units, 8, that makes 13 for one GPU and 34 for eight.
"""

from collections.abc import Mapping, Sequence

PER_GPU = 3
CONTROLLER = 1
STARTING = 1
MOST_HELPERS = 8
"""verl's own number of storage units, graders and agent workers, for any number of GPUs."""


def helpers(device: str, gpus: int) -> int:
    """Number of storage units, of graders and of agent workers: one for each GPU, at most eight."""
    return 1 if device == "cpu" else min(MOST_HELPERS, gpus)


def cpus_reserved(gpus: int, units: int) -> int:
    """CPUs that Ray needs for a training on this many GPUs (or, on a CPU, processes)."""
    return PER_GPU * gpus + units + CONTROLLER + STARTING


def lacking(
    nodes: Sequence[Mapping[str, float]], wanted: int, gpus_per_node: int, units: int
) -> str | None:
    """Why verl would wait for ever on nodes with these free resources, `{"CPU": .., "GPU": ..}`;
    None if it would not."""
    gpus = wanted * gpus_per_node
    cpus = PER_GPU * gpus_per_node
    have_gpus = [node for node in nodes if node.get("GPU", 0) >= gpus_per_node]
    if len(have_gpus) < wanted:
        free = ", ".join(f"{node.get('GPU', 0):g}" for node in nodes) or "none"
        return (
            f"backend.nodes {wanted} x gpus_per_node {gpus_per_node}: the Ray cluster has "
            f"{len(have_gpus)} nodes with "
            f"{gpus_per_node} free GPUs (free on its nodes: {free})"
        )
    roomy = [node for node in have_gpus if node.get("CPU", 0) >= cpus]
    total = sum(node.get("CPU", 0) for node in nodes)
    need = cpus_reserved(gpus, units)
    if len(roomy) >= wanted and total >= need:
        return None
    lacks = f"{need} CPUs for {gpus} GPUs, and the Ray cluster has {total:g} free"
    if len(roomy) < wanted:
        each = f"{cpus} CPUs on each node ({PER_GPU} for every GPU)"
        lacks = f"{each}, and {len(roomy)} of the {wanted} nodes it needs have as many free"
    advice = (
        "they mostly wait, so more may be claimed than there are: start each node's Ray "
        "with `ray start --num-cpus "
        f"{-(-need // wanted)}`, or lower backend.gpus_per_node"
    )
    return f"backend.gpus_per_node {gpus_per_node}: verl reserves {lacks}; {advice}"
