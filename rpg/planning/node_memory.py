"""The host memory of a cluster's nodes, by arithmetic: what a container has to request.

Whatever the runs are, Ray keeps the objects that its processes exchange in up to 30 % of a node's
memory (its default), so the rest has to hold the processes.
"""

import math

from rpg.config.backend import VerlBackend, VllmRollout
from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.planning.model_shapes import Shape
from rpg.planning.space import FLOAT, HALF, MOMENTS, PROCESS, disk, memory, run_shape

OBJECTS = 0.3
"""Share of a node's memory that Ray may fill with objects."""
HELPERS = 24
"""Processes of verl besides workers and servers: storage units, graders and agents, eight each."""
CUDA_HOST = 2e9
"""Host memory of a process with a context of CUDA: libraries and pinned buffers. Assumed."""
HEAD_GIB = 16
"""Of a head that only conducts."""


def worker_gib(spec: RunSpec) -> int | None:
    """GiB that a node which trains this run has to have; None if the size of the model is
    unknown."""
    shape = run_shape(spec)
    if shape is None:
        return None
    if isinstance(spec.backend, VerlBackend):
        return _whole(_verl_node(spec, spec.backend, shape))
    if spec.backend.device == "cpu":
        need = memory(spec)
        return None if need is None else _whole(need.most)
    # A checkpoint is gathered in host memory before it is written.
    files = disk(spec, problems=0)
    written = 0.0 if files is None else files.newest
    return _whole(PROCESS + CUDA_HOST + max(FLOAT * shape.parameters, written))


def head_gib(spec: RunSpec) -> int:
    """GiB of the head, which evaluates the runs on verl beside conducting them."""
    shape = run_shape(spec)
    if not isinstance(spec.backend, VerlBackend) or shape is None:
        return HEAD_GIB
    return max(HEAD_GIB, _whole(2 * PROCESS + CUDA_HOST + FLOAT * shape.parameters))


def _verl_node(spec: RunSpec, backend: VerlBackend, shape: Shape) -> float:
    """Bytes of a node's processes: their code, the whole model that one of them loads and gathers,
    and this node's share of what waits in host memory."""
    workers = backend.gpus_per_node
    servers = 0
    if isinstance(backend.rollout, VllmRollout):
        servers = max(1, workers // backend.rollout.tensor_parallel)
    processes = PROCESS * (workers + servers + HELPERS)
    if backend.device == "cuda":
        processes += CUDA_HOST * (workers + servers)
    number = HALF if bfloat16(spec.model) else FLOAT
    asleep = servers * number * shape.parameters  # vLLM's weights while the policy updates
    waiting = 0.0
    if backend.offload or backend.device == "cpu":
        waiting += FLOAT * (1 + MOMENTS) * shape.parameters
    if spec.algorithm.needs_reference:
        waiting += FLOAT * shape.parameters
    models = 1 + (spec.algorithm.advantage.type == "gae")
    return processes + FLOAT * shape.parameters + asleep + models * waiting / backend.nodes


def _whole(used: float) -> int:
    return math.ceil(used / (1 - OBJECTS) / 2**30)
