"""Where a run trains: the embedded trainer, or verl on Ray."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from rpg.config.evaluation import VllmEngineSpec
from rpg.config.section import (
    ADDRESS,
    CODE,
    GIGABYTES,
    NAME,
    OPERATES,
    PROCESSES,
    ROUNDS,
    SAMPLES_PER_PROBLEM,
    TOKENS_AT_ONCE,
    WORKERS,
    Positive,
    Section,
    default_type,
    kinds_of,
)
from rpg.config.verl_keys import refused

VERL_CPUS_PER_GPU = 3
VERL_CPUS = 10
"""Processors that verl reserves on a node: so many for every GPU, and up to so many for its
queue."""


@dataclass(frozen=True)
class Node:
    """The nodes of a run, all alike; processors and GPUs are those of each."""

    count: int
    cpus: int
    gpus: int


class BackendSection(Section):
    """Base of every back end: what sweeps, slots and the command line need to know about it.

    Back end `x` is the module that is started as `python -m rpg.backends.x RUN_DIR`;
    docs/extending.md adds one.
    """

    type: str
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Annotated[Positive, OPERATES, PROCESSES] = 1
    """Threads of each process on a CPU."""
    attempts: Annotated[Positive, OPERATES, ROUNDS] = 4
    """How often a run is started without reaching a new checkpoint, if the cause is outside of it:
    a node that is lost or preempted, a time limit, a driver that is killed, Ray that does not
    start. A new checkpoint starts the count again. An error of the run itself ends it at once."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Packages that must be installed on this machine before a run can start; empty if the back end
    checks this itself."""

    is_embedded: ClassVar[bool] = False
    """It compares whole distributions, averages a reference, and draws from a rounded policy or
    part of the vocabulary with the log-probabilities of that distribution."""

    def workers_here(self) -> int | None:
        """GPUs (or, on a CPU, processes) of this machine that a run occupies; None if its workers
        are elsewhere."""
        return 1

    def shares_machine(self) -> bool:
        """Whether the runs of a sweep start beside each other by default: not where each uses all
        processors it is given."""
        return True

    def node(self) -> "Node":
        """What a run occupies as a job of its own."""
        return Node(count=1, cpus=self.threads, gpus=int(self.device == "cuda"))

    def check_longest(self, tokens: int) -> None:
        """Raises ValueError if a sequence (prompt and response) of this many tokens does not
        fit."""

    def check_mini_batch(self, prompts: int, group_size: int) -> None:
        """Raises ValueError if a mini-batch of this many prompts does not divide evenly among the
        workers."""

    def less_memory(self, phase: str | None = None) -> str:  # noqa: ARG002 - for the back ends that override this
        """Advice for a training that ran out of memory in this phase of a step; "" if there is
        none."""
        return ""


class OnThisMachine(Section):
    """Processes on the machine that runs the sweep."""

    type: Literal["here"] = "here"


class OnNodes(Section):
    """One process per run, on whichever node of a Ray cluster has room; all nodes share the data
    folder."""

    type: Literal["ray"]
    address: Annotated[str, ADDRESS, Field(min_length=1)] = "auto"
    """`auto` for the cluster this machine belongs to, `host:port` of its head, `ray://host:port` of
    its client server."""
    cpus: Annotated[float, Field(ge=0), WORKERS] | None = None
    """Processors to reserve per run; null: as many as `threads`."""
    gpus: Annotated[float, Field(ge=0), WORKERS] = 0
    """GPUs per run; a value below 1 shares a GPU. Above 0 with `device: cuda`, and 0 with `device:
    cpu`."""
    memory_gib: Annotated[float, Field(gt=0), GIGABYTES] | None = None
    """Memory per run that Ray reserves."""
    wait_minutes: Annotated[float, Field(gt=0)] = 1.0
    """How long to wait for a node that is large enough, where Ray's autoscaler promises none."""


_AS_TEXT = BeforeValidator(lambda value: str(value) if type(value) is int else value)
SlurmName = Annotated[str, NAME, Field(pattern=r"^[\w.,:=+@&|*-]+$")]


class OnSlurm(Section):
    """One Slurm job per run; those of a sweep are submitted as arrays. All nodes share the data
    folder, and Slurm may requeue a job, which goes on from its last checkpoint. GPUs, processors
    and memory are those of each node."""

    type: Literal["slurm"]
    partition: SlurmName | None = None
    account: SlurmName | None = None
    qos: SlurmName | None = None
    constraint: SlurmName | None = None
    """Features that the nodes must have, e.g. `h100`."""
    gpus: Annotated[int, Field(ge=0), WORKERS] | None = None
    """GPUs per run; null: 1 with `device: cuda`, on verl `gpus_per_node`; 0 with `device: cpu`."""
    gpu_type: SlurmName | None = None
    """Slurm's name of a kind of GPU, e.g. `a100`."""
    cpus: Annotated[Positive, WORKERS] | None = None
    """Processors per run; null: as many as `threads`, with verl on GPUs as many as it reserves."""
    memory_gib: Annotated[float, Field(gt=0), GIGABYTES] | None = None
    """Memory per run; null: the partition's default."""
    time: Annotated[str, NAME, Field(pattern=r"^(\d+-)?\d+(:\d{1,2}){0,2}$"), _AS_TEXT] | None = (
        None
    )
    """Time limit of one job: minutes, `hours:minutes:seconds` or `days-hours`. A run that needs
    more continues in another job."""
    at_once: Annotated[Positive, WORKERS] | None = None
    """Jobs of one array that Slurm may run at the same time."""
    options: tuple[Annotated[str, CODE], ...] = ()
    """Further options of sbatch, e.g. `["--reservation=lab"]`."""
    script: Annotated[str, CODE] | None = None
    """A batch script of your own in place of ours; `rpg render FILE --slurm` prints ours."""

    def sbatch_options(self, nodes: int, cpus: int, gpus: int) -> list[str]:
        """For a job of that many nodes, with these GPUs and (if `cpus` is null) these processors
        per node."""
        kind = f"{self.gpu_type}:" if self.gpu_type else ""
        values = {
            "nodes": nodes,
            "ntasks-per-node": 1,
            "cpus-per-task": self.cpus or cpus,
            "gpus-per-node": f"{kind}{gpus}" if gpus else None,
            "mem": f"{round(self.memory_gib * 1024)}M" if self.memory_gib else None,
            **{
                name: getattr(self, name)
                for name in ("time", "partition", "account", "qos", "constraint")
            },
        }
        named = (f"--{name}={value}" for name, value in values.items() if value is not None)
        return [*named, *self.options]


_BY_TYPE = Field(discriminator="type")
TrainingPlace = Annotated[OnThisMachine | OnNodes | OnSlurm, _BY_TYPE, default_type("here")]


class LocalBackend(BackendSection):
    """The embedded trainer: one process on the CPU or on one GPU."""

    type: Literal["local"] = "local"
    threads: Annotated[Positive, OPERATES, PROCESSES] = 1
    """Threads per process. On a CPU, several runs with one thread each are faster than one run with
    several threads."""
    gradient_checkpointing: Annotated[bool, OPERATES] = False
    """Recompute activations in the backward pass instead of storing them: less memory, more time,
    bit-identical results on a CPU. For Llama, Mistral, Qwen2 and Qwen3."""
    offload: Annotated[bool, OPERATES] = False
    """On a GPU: store the activations for the backward pass in host memory, which is slower."""
    place: Annotated[TrainingPlace, OPERATES] = OnThisMachine()
    """Where runs train. It may change between two calls of the same sweep; a run resumes from its
    last checkpoint."""

    needs: ClassVar[tuple[str, ...]] = ("transformers", "tokenizers", "safetensors", "schedulefree")
    is_embedded: ClassVar[bool] = True

    def workers_here(self) -> int | None:
        return 1 if isinstance(self.place, OnThisMachine) else None

    @model_validator(mode="after")
    def _has_its_device(self) -> Self:
        if self.offload and self.device == "cpu":
            raise ValueError(
                "offload: activations wait in host memory, where a CPU has them anyway; "
                "accepted: false"
            )
        if isinstance(self.place, OnNodes) and (self.device == "cuda") != (self.place.gpus > 0):
            raise ValueError(
                f"device {self.device!r} with place.gpus {self.place.gpus:g}; on a Ray "
                "cluster, device cuda needs "
                "place.gpus above 0 (1, or less to share a GPU), and device cpu needs 0"
            )
        if isinstance(self.place, OnSlurm) and self.place.gpus not in (None, self.node().gpus):
            raise ValueError(
                f"device {self.device!r} with place.gpus {self.place.gpus}; on Slurm, a run "
                "uses one GPU with "
                "device cuda and none with device cpu; accepted: null"
            )
        return self

    def less_memory(self, phase: str | None = None) -> str:
        if phase == "rollout":
            return (
                "a rollout holds the keys and values of all responses of a step; fewer "
                "(training.prompts_per_step, "
                "rollout.group_size) or shorter responses (rollout.max_response_tokens) "
                "need less, but make a different run"
            )
        passes = (
            "smaller passes (training.micro_batch_tokens, training.micro_batch_rows) also "
            "help, but results are then no "
            "longer bit-identical, because sums are grouped differently"
        )
        settings = [] if phase == "log-probabilities" else ["gradient_checkpointing"]
        settings += ["offload"] if settings and self.device == "cuda" else []
        same_results = [f"backend.{name}" for name in settings if not getattr(self, name)]
        if not same_results:
            return f"{passes}: set one of them and run the same command again"
        first, *more = same_results
        also = f"; if that is not enough, {more[0]}=true as well" if more else ""
        # On a GPU some kernels add in no fixed order, with and without this.
        same = ", with bit-identical results" if self.device == "cpu" else ""
        return (
            f"run the same command again with --set {first}=true: it resumes from the last "
            f"checkpoint{same}{also}; "
            f"{passes}"
        )


class HuggingFaceRollout(Section):
    """Our own rollout server, based on transformers, for machines without a GPU."""

    type: Literal["huggingface"] = "huggingface"


class VllmRollout(VllmEngineSpec):
    """vLLM; verl keeps its weights up to date."""

    max_batched_tokens: Annotated[Positive, OPERATES, TOKENS_AT_ONCE] = 8192
    """Tokens that vLLM processes in one step, prompts and responses together."""


RolloutServer = Annotated[HuggingFaceRollout | VllmRollout, _BY_TYPE, default_type("huggingface")]


class LocalRay(Section):
    """A separate Ray instance on this machine that ends with the run."""

    type: Literal["local"] = "local"


class RayAddress(Section):
    """The driver runs on this machine, the workers on a running Ray cluster."""

    type: Literal["address"]
    address: Annotated[str, ADDRESS, Field(min_length=1)]
    """`host:port` of the cluster's head, or `auto` for the one this machine belongs to."""


VerlPlace = Annotated[OnThisMachine | OnSlurm, _BY_TYPE, default_type("here")]
RayPlace = Annotated[LocalRay | RayAddress, Field(discriminator="type"), default_type("local")]


class VerlBackend(BackendSection):
    """verl's trainer on Ray with FSDP: one CPU for a test, one GPU, or many nodes."""

    type: Literal["verl"]
    threads: Annotated[Positive, OPERATES, PROCESSES] = 1
    """Threads of each worker on a CPU."""
    nodes: Annotated[Positive, OPERATES, WORKERS] = 1
    gpus_per_node: Annotated[Positive, OPERATES, WORKERS] = 1
    """Workers per node (on a CPU, processes)."""
    strategy: Literal["fsdp2"] = "fsdp2"
    """How verl shards the model."""
    sequence_parallel: Annotated[Positive, OPERATES, WORKERS] = 1
    """Ulysses: GPUs that share one sequence."""
    offload: Annotated[bool, OPERATES] = False
    """Keep parameters and optimizer state in host memory between uses: slower, for models that
    would not fit otherwise."""
    gradient_checkpointing: Annotated[bool, OPERATES] = True
    max_tokens_per_gpu: Annotated[Positive, OPERATES, TOKENS_AT_ONCE] = 16384
    """Dynamic batching: tokens per forward and backward pass on each GPU; affects memory, never the
    gradient."""
    rollout: RolloutServer = HuggingFaceRollout()
    """What generates the responses."""
    ray: Annotated[RayPlace, OPERATES] = LocalRay()
    """Where the workers run."""
    place: Annotated[VerlPlace, OPERATES] = OnThisMachine()
    """Where the driver runs: here, or as a Slurm job of `nodes` nodes, which brings its own Ray
    along. It may change between two calls of the same sweep."""
    validation_samples: Annotated[int, Field(ge=0), OPERATES, SAMPLES_PER_PROBLEM] = 0
    """Samples per problem of verl's own validation, every `evaluation.every` steps; 0 for none. It
    gives a first impression during training (metric `validation_accuracy`); reports use the
    evaluated checkpoints."""
    hang_minutes: Annotated[float, Field(gt=0), OPERATES] = 60.0
    """A run that makes no progress for this long is stopped and counts as failed; also the longest
    time one worker waits for another. Progress is a finished phase of a step, or a prompt that got
    its responses; a whole step may take longer."""

    verl: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Settings of verl that have no field here, by their dotted names, e.g.
    `{actor_rollout_ref.rollout.max_num_seqs: 128}` (table in docs/verl.md). A leading `+` marks a
    name that verl's own configuration lacks."""

    def shares_machine(self) -> bool:
        return isinstance(self.place, OnSlurm)

    def node(self) -> Node:
        gpus = self.gpus_per_node
        if self.device == "cpu":
            return Node(count=self.nodes, cpus=self.threads * gpus, gpus=0)
        return Node(count=self.nodes, cpus=VERL_CPUS_PER_GPU * gpus + VERL_CPUS, gpus=gpus)

    def with_ray_of_its_job(self, address: str | None) -> Self:
        """The same, with the Ray at this address where the run is a job of several nodes. Raises
        ValueError: there is no address, as in a batch script that starts no Ray."""
        if not isinstance(self.place, OnSlurm) or self.nodes == 1:
            return self
        if not address:
            raise ValueError(
                "backend.place.script: it has to start Ray on all nodes and to export RAY_ADDRESS, "
                "as the one that `rpg render FILE --slurm` prints"
            )
        return self.model_copy(update={"ray": RayAddress(type="address", address=address)})

    def workers_here(self) -> int | None:
        if isinstance(self.place, OnSlurm):
            return None
        address = self.ray.address if isinstance(self.ray, RayAddress) else "auto"
        host = address.rpartition(":")[0] or address
        return self.gpus_per_node if host in ("auto", "127.0.0.1", "localhost") else None

    def check_longest(self, tokens: int) -> None:
        room = self.max_tokens_per_gpu * self.sequence_parallel
        if room < tokens:
            raise ValueError(
                f"backend.max_tokens_per_gpu x sequence_parallel = {room} must hold a sequence of "
                f"rollout.max_prompt_tokens + max_response_tokens = {tokens}"
            )

    def check_mini_batch(self, prompts: int, group_size: int) -> None:
        workers = self.nodes * self.gpus_per_node
        shards = workers // self.sequence_parallel
        if prompts * group_size % shards == 0:
            return
        fewer = (
            max(n for n in range(1, shards) if prompts * group_size % n == 0)
            * self.sequence_parallel
        )
        step = shards // math.gcd(shards, group_size)
        near = sorted({max(step, prompts // step * step), (prompts // step + 1) * step})
        raise ValueError(
            f"a mini-batch of training.mini_batch_prompts {prompts} x rollout.group_size "
            f"{group_size} = "
            f"{prompts * group_size} responses does not divide evenly among the {shards} "
            "data-parallel workers of "
            f"backend.nodes {self.nodes} x gpus_per_node {self.gpus_per_node}"
            + (
                f" / sequence_parallel {self.sequence_parallel}"
                if self.sequence_parallel > 1
                else ""
            )
            + f"; possible: {fewer} GPUs in total, or training.mini_batch_prompts "
            f"{' or '.join(map(str, near))}"
        )

    @field_validator("verl")
    @classmethod
    def _ours_stay_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        why = refused(value)
        if why:
            raise ValueError(why)
        return value

    def _check_job(self) -> None:
        """That a Slurm job can hold the run."""
        place = self.place
        if not isinstance(place, OnSlurm):
            return
        if isinstance(self.ray, RayAddress):
            raise ValueError(
                "a job of Slurm brings its own Ray along; accepted: ray: {type: local}"
            )
        if self.nodes > 1 and self.device == "cpu":
            raise ValueError(f"nodes {self.nodes} as a job of Slurm need device cuda; accepted: 1")
        if place.gpus not in (None, self.node().gpus):
            raise ValueError(
                f"place.gpus {place.gpus}: a node of the run has {self.node().gpus} GPUs "
                "(device, gpus_per_node); accepted: null"
            )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._check_job()
        is_job = isinstance(self.place, OnSlurm)
        if self.nodes > 1 and isinstance(self.ray, LocalRay) and not is_job:
            why = (
                f"nodes {self.nodes} need a Ray cluster; say which: ray: {{type: address, "
                f"address: ...}}"
            )
            raise ValueError(why)
        if self.device == "cuda" and isinstance(self.rollout, HuggingFaceRollout):
            raise ValueError(
                "rollout.type huggingface is for device cpu; on a GPU use {type: vllm}"
            )
        workers = self.nodes * self.gpus_per_node
        shared = {"sequence_parallel": self.sequence_parallel}
        if isinstance(self.rollout, VllmRollout):
            shared["rollout.tensor_parallel"] = self.rollout.tensor_parallel
        for field, share in shared.items():
            if workers % share:
                raise ValueError(
                    f"{field} {share} must divide the {workers} GPUs of nodes x gpus_per_node"
                )
        return self


Backend = Annotated[LocalBackend | VerlBackend, Field(discriminator="type"), default_type("local")]
BACKENDS: dict[str, type[BackendSection]] = kinds_of(Backend)
