"""Estimates of the time, memory and disk space of a training on GPUs, by arithmetic only;
docs/paper.md derives them.

P: parameters, N: GPUs, S: tokens of a sequence. Training takes 6 P FLOP per token, and 2 P more if
activations are recomputed; a pass that only scores takes 2 P. Attention adds 2 x layers x width x S
per token to every 2 P. Decoding is bound by memory bandwidth: each step of B sequences reads the
weights and B key-value caches.
"""

import math
import re
from dataclasses import dataclass

from rpg.config.backend import LocalBackend, VerlBackend, VllmRollout
from rpg.config.errors import ConfigError
from rpg.config.evaluation import HuggingFaceEngineSpec, LocalEngineSpec, VllmEngineSpec
from rpg.config.load import assign, parse_assignments
from rpg.config.model import PretrainedModel, has_packed_base
from rpg.config.run_spec import RunSpec
from rpg.config.task import FileTask, GeneratedTask
from rpg.planning.model_shapes import KNOWN, PUBLISHED, Shape, shape_of
from rpg.planning.space import (
    PACKED,
    PACKED_BLOCK,
    ROOM,
    disk,
    evaluators_share,
    memory,
    teacher_shape,
)
from rpg.tasks.benchmarks import benchmarks

GB = 1e9


@dataclass(frozen=True)
class Machine:
    """One GPU."""

    name: str
    memory: float  # bytes
    flops: float  # dense bfloat16 operations per second
    bandwidth: float  # bytes of memory per second


H100 = Machine("H100 80 GB", 85.9e9, 989e12, 3.35e12)  # NVIDIA's data sheet, SXM; 80 GiB
MACHINES = {
    name: Machine(name, gib * 2**30, teraflops * 1e12, gigabytes * 1e9)
    for name, (gib, teraflops, gigabytes) in PUBLISHED["gpus"].items()
}


def machine_named(text: str) -> Machine:
    """A GPU by name (rtx-4090, h100) or by its memory (24GB). Raises ConfigError: it is neither."""
    name = text.strip().lower()
    if name in MACHINES:
        return MACHINES[name]
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*gb", name)
    if size and float(size[1]) > 0:
        return Machine(f"a GPU with {size[1]} GB", float(size[1]) * 1e9, 0.0, 0.0)
    raise ConfigError(f"--gpu {text}: accepted are a size such as 24GB, and {', '.join(MACHINES)}")


KERNEL_SECONDS = 3e-6  # of a small kernel in a replayed CUDA graph: assumed, not measured
KERNELS = 20  # per layer and token of the embedded trainer (rpg.models.block_decoding)


def hours(spec: RunSpec, machine: Machine) -> float | None:
    """Of a training with the embedded trainer on this GPU, evaluations not counted; None if the
    speed of the GPU or the size of the model is unknown.
    """
    shape = shape_of(spec.model)
    need = memory(spec, machine.memory)
    a = Assumptions()
    if shape is None or need is None or not machine.flops:
        return None
    r = spec.rollout
    rows = spec.rollout_rows()
    response = a.response_share * (r.max_response_tokens + r.min_response_tokens)
    half_way = a.prompt_tokens + response / 2  # tokens of a sequence, on average
    read = _read_bytes(spec, shape) + need.rows_at_once * shape.cache_bytes_per_token * half_way
    token = max(
        read / (machine.bandwidth * a.decoding_efficiency), KERNELS * shape.layers * KERNEL_SECONDS
    )
    sampled = -(-rows // need.rows_at_once) / (
        a.useful_groups if spec.algorithm.dynamic_sampling else 1
    )
    computed = _computed(spec, shape, rows, a.prompt_tokens + response)
    step = sampled * r.max_response_tokens * token + computed / (
        machine.flops * a.training_efficiency
    )
    return spec.training.steps * step * (1 + a.overhead) / 3600


def _read_bytes(spec: RunSpec, shape: Shape) -> float:
    """Of weights, to decode a token: those of 4 bits are read, written in bfloat16, and read."""
    if not has_packed_base(spec.model) or isinstance(spec.rollout.engine, VllmEngineSpec):
        return 2 * shape.parameters
    return 2 * shape.parameters + (PACKED + 2) * shape.packable(PACKED_BLOCK)


def _computed(spec: RunSpec, shape: Shape, rows: int, length: float) -> float:
    """Operations of a step's scoring and updates: of the policy, a critic and a reference."""
    shapes = shape, teacher_shape(spec) or shape
    flops, of_reference = (rows * length * _flops_per_token(each, length) for each in shapes)
    models = 1 + (spec.algorithm.advantage.type == "gae")
    update = spec.training.epochs * (4 if spec.backend.gradient_checkpointing else 3)
    return models * (1 + update) * flops + spec.algorithm.needs_reference * of_reference


def nearest_change(spec: RunSpec, machine: Machine) -> str | None:
    """Options that make a training fit this GPU, none of them in vain: savings of memory, or also
    adapters instead of all weights, or also the largest model of the same publisher that fits; None
    if nothing suffices.
    """
    t = spec.training
    backend = spec.backend
    adaptable = isinstance(spec.model, PretrainedModel) and spec.algorithm.advantage.type != "gae"
    useful = {
        "rollout.rows_at_once=null": spec.rollout.rows_at_once is not None,
        "backend.gradient_checkpointing=true": not backend.gradient_checkpointing,
        "training.micro_batch_tokens=2048": not t.micro_batch_tokens or t.micro_batch_tokens > 2048,
        "backend.offload=true": isinstance(backend, LocalBackend) and not backend.offload,
        "rollout.engine.gpu_memory_utilization=0.4": isinstance(
            spec.rollout.engine, VllmEngineSpec
        ),
        "model.lora.rank=32": adaptable and spec.model.lora is None,
        "model.lora.base=nf4": adaptable
        and isinstance(backend, LocalBackend)
        and spec.rollout.sampler.dtype == "same"
        and not has_packed_base(spec.model),
    }
    savings = [change for change, helps in useful.items() if helps]
    attempts = [savings[: count + 1] for count in range(len(savings))]
    if isinstance(spec.model, PretrainedModel):
        publisher = spec.model.path.partition("/")[0]
        others = [name for name in KNOWN if name.partition("/")[0] == publisher]
        largest_first = sorted(others, key=lambda name: -KNOWN[name].parameters)
        attempts += [[*savings, f"model.path={name}"] for name in largest_first]
    changes = next((each for each in attempts if _fits(spec, each, machine)), None)
    for change in reversed(changes or []):
        if _fits(spec, fewer := [each for each in changes or [] if each != change], machine):
            changes = fewer
    return None if changes is None else " ".join(f"--set {change}" for change in changes)


def _fits(spec: RunSpec, changes: list[str], machine: Machine) -> bool:
    data = spec.model_dump() | {"model": spec.model.model_dump(exclude_none=True)}
    for field, value in parse_assignments(changes).items():
        assign(data, field, value, "--set")
    changed = RunSpec.model_validate(data)
    need = memory(changed, machine.memory)
    room = machine.memory - evaluators_share(changed, machine.memory)
    return need is not None and need.most <= room


@dataclass(frozen=True)
class Assumptions:
    """What a specification leaves open: conservative guesses from common reports, not
    measurements."""

    machine: Machine = H100
    prompt_tokens: int = 150
    response_share: float = 0.5  # mean length of a response, as a fraction of the limit
    useful_groups: float = 0.5
    """Share of groups with both right and wrong answers; dynamic sampling generates 1 / this."""
    training_efficiency: float = 0.35  # fraction of the GPU's FLOP/s
    decoding_efficiency: float = 0.5  # fraction of the memory bandwidth
    sequences_at_once: int = 256  # at most, per vLLM server (verl's max_num_seqs)
    overhead: float = 0.1
    """Moving weights to vLLM, grading, checkpoints, as a fraction of the computing time of a step.
    """
    context_bytes: float = 4e9  # per GPU: CUDA contexts, communication buffers and captured graphs
    packed: bool = True  # sequences follow one another without padding, which takes flash attention
    benchmark_problems: int = 40  # problems of a benchmark whose size is unknown until it is read


@dataclass(frozen=True)
class Estimate:
    """Of one run. Times are wall-clock hours, sizes bytes; memory is that of the fullest GPU.

    `evaluation_hours`: evaluators that need GPUs of this machine (`RunSpec.evaluator_gpus`) run
    after the training, on its GPUs; others run elsewhere.
    """

    gpus: int
    hours: float  # of the whole training
    evaluation_hours: float
    memory_rollout: float
    memory_update: float
    evaluates_here: bool
    disk_bytes: float  # what `training.keep_checkpoints` leaves (rpg.planning.space)

    @property
    def gpu_hours(self) -> float:
        """Of training, and of evaluation if it uses the same GPUs."""
        return (self.hours + self.evaluates_here * self.evaluation_hours) * self.gpus


def estimate(spec: RunSpec, assume: Assumptions | None = None) -> Estimate | None:
    """What a run with verl on GPUs needs; None for other runs and for models of unknown size."""
    backend = spec.backend
    shape = shape_of(spec.model)
    a = assume or Assumptions()
    if not isinstance(backend, VerlBackend) or backend.device != "cuda" or shape is None:
        return None
    t = spec.training
    r = spec.rollout
    gpus = backend.nodes * backend.gpus_per_node
    response = a.response_share * r.max_response_tokens
    length = a.prompt_tokens + response
    trained = t.prompts_per_step * r.group_size
    sampled = trained / (a.useful_groups if spec.algorithm.dynamic_sampling else 1)

    server = _Server(spec, shape, a, backend.rollout)
    evaluator = _Server(spec, shape, a, spec.evaluation.engine)
    generation = t.steps * server.seconds(sampled, gpus // server.tensor_parallel)
    speed = gpus * a.machine.flops * a.training_efficiency
    training = t.steps * _computed(spec, shape, trained, length) / speed
    models = 1 + (spec.algorithm.advantage.type == "gae")  # the policy, and a critic
    each = sum(problems_of(spec, a)) * spec.evaluation.samples  # of a checkpoint
    evaluator_gpus = spec.evaluator_gpus()
    at_once = (
        max(1, gpus // evaluator_gpus) if evaluator_gpus else 1
    )  # evaluators, each with a checkpoint
    evaluation = math.ceil(len(spec.eval_steps()) / at_once) * evaluator.seconds(each, 1)

    lora = spec.model.lora
    updated = shape.adapter_parameters(lora) if lora else shape.parameters
    states = (
        models * (4 * shape.parameters + 8 * updated) / gpus
    )  # weights and two moments in float32
    offloaded = 0.0 if backend.offload else states
    # The reference is kept in host memory, whatever `offload` says
    # (verl/workers/engine/fsdp/transformer_impl.py:460), and an evaluator never shares a GPU with
    # the training.
    left = disk(spec, sum(problems_of(spec, a)))
    assert left is not None, "the size of the model is known"
    return Estimate(
        gpus=gpus,
        hours=(1 + a.overhead) * (generation + training) / 3600,
        evaluation_hours=evaluation / 3600,
        memory_rollout=offloaded + server.utilization * a.machine.memory + a.context_bytes,
        memory_update=states
        + 4 * updated / gpus
        + _working(shape, backend, a.packed)
        + a.context_bytes,
        evaluates_here=evaluator_gpus > 0,
        disk_bytes=left.after,
    )


def _flops_per_token(shape: Shape, length: float) -> float:
    """One forward pass, the output layer included."""
    weights = shape.block_parameters + shape.vocabulary * shape.hidden
    return 2 * weights + 2 * shape.layers * shape.attention_width * length


def _working(shape: Shape, backend: VerlBackend, packed: bool) -> float:
    """Bytes of activations, logits and gathered layers while `max_tokens_per_gpu` tokens are
    processed."""
    tokens = backend.max_tokens_per_gpu / backend.sequence_parallel
    kept = shape.layers * shape.hidden * 2  # the input of every block
    block = (4 * shape.attention_width + 3 * shape.intermediate + 4 * shape.hidden) * 2 * 2
    if not backend.gradient_checkpointing:
        kept = shape.layers * block
        block = 0
    # Packed: in bfloat16, and their gradient in float32; otherwise with and without padding, and
    # the gradients of both.
    bytes_per_logit = 2 + 4 if packed else 4 * 2
    logits = shape.vocabulary * bytes_per_logit
    largest_layers = shape.block_parameters / shape.layers + shape.vocabulary * shape.hidden
    gathered = 2 * 2 * largest_layers
    return tokens * (kept + block + logits) + gathered


class _Server:
    """vLLM for the rollouts or the evaluation of a run; a replica takes `tensor_parallel` GPUs."""

    def __init__(self, spec: RunSpec, shape: Shape, a: Assumptions, server: object):
        self.tensor_parallel = 1
        self.utilization = 0.0
        if isinstance(server, VllmRollout | VllmEngineSpec):
            self.tensor_parallel, self.utilization = (
                server.tensor_parallel,
                server.gpu_memory_utilization,
            )
        elif isinstance(server, LocalEngineSpec | HuggingFaceEngineSpec):
            self.utilization = getattr(spec.evaluation.place, "gpu_memory", None) or ROOM
        self.a, self.shape, self.response = (
            a,
            shape,
            a.response_share * spec.rollout.max_response_tokens,
        )
        self.longest = spec.rollout.max_response_tokens
        self.weights = 2 * shape.parameters
        self.cache = max(
            0.0, self.utilization * a.machine.memory * self.tensor_parallel - self.weights
        )
        half_way = a.prompt_tokens + self.response / 2  # tokens of a sequence, on average
        self.bytes_per_sequence = shape.cache_bytes_per_token * half_way
        most = getattr(server, "rows", a.sequences_at_once)
        self.at_once = max(1.0, min(most, self.cache / self.bytes_per_sequence))

    def _step(self, sequences: float) -> float:
        """Seconds to decode one token of each of these sequences."""
        machine = self.a.machine
        gpus = self.tensor_parallel
        bandwidth = machine.bandwidth * self.a.decoding_efficiency * gpus
        read = (self.weights + sequences * self.bytes_per_sequence) / bandwidth
        flops = sequences * _flops_per_token(self.shape, self.response)
        return max(read, flops / (machine.flops * self.a.training_efficiency * gpus))

    def seconds(self, responses: float, replicas: int) -> float:
        """Wall-clock seconds for these responses: rounds of full batches, then the longest response
        alone."""
        tokens = responses * self.response / max(1, replicas)
        return tokens / self.at_once * self._step(self.at_once) + self.longest * self._step(1)


def problems_of(spec: RunSpec, a: Assumptions) -> list[int]:
    """Problems of each of a run's benchmarks."""
    if isinstance(spec.task, GeneratedTask):
        return [spec.task.benchmark_problems] * len(spec.benchmarks())
    sizes = {name: benchmark.problems for name, benchmark in benchmarks().items()}
    if isinstance(spec.task, FileTask):  # of JSON lines, the lines
        sizes = {
            name: len(path.read_bytes().splitlines()[: source.limit])
            if (path := source.path) and path.suffix == ".jsonl" and path.exists()
            else source.limit or 0
            for name, source in spec.task.benchmarks.items()
        }
    counts = [sizes.get(name) or a.benchmark_problems for name in spec.benchmarks()]
    return [max(count) if isinstance(count, tuple) else count for count in counts]
