"""How checkpoints are evaluated: what produces the responses, and where."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rpg.config.section import ADDS, EVALUATES, OPERATES, Positive, Section, default_type, kinds_of


class LocalEngineSpec(Section):
    """The trainer's own decoder."""

    type: Literal["local"] = "local"
    rows: Annotated[Positive, OPERATES] = 512
    """Responses decoded at a time."""


class HuggingFaceEngineSpec(Section):
    """Hugging Face `generate`."""

    type: Literal["huggingface"]
    rows: Annotated[Positive, OPERATES] = 64
    """Responses decoded at a time."""


class VllmEngineSpec(Section):
    """vLLM, with continuous batching."""

    type: Literal["vllm"]
    tensor_parallel: Annotated[Positive, OPERATES] = 1
    """GPUs that share the model."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, lt=1), OPERATES] = 0.85
    enforce_eager: Annotated[bool, OPERATES] = False
    """Do not capture CUDA graphs: starts sooner, decodes slower."""


EngineSpec = Annotated[
    LocalEngineSpec | HuggingFaceEngineSpec | VllmEngineSpec,
    Field(discriminator="type"),
    default_type("local"),
]
ENGINES: dict[str, type[Section]] = kinds_of(EngineSpec)


class ThisMachine(Section):
    """A process of its own on the machine that trains, limited so that it does not slow the trainings down."""

    type: Literal["here"] = "here"
    threads: Positive = 1
    niceness: Annotated[int, Field(ge=0, le=19)] = 5
    """How far trainings go first where processors are short (0: not at all; 19: evaluation gets what is left)."""
    memory_gib: Annotated[float, Field(gt=0)] | None = None
    """Memory of the process (Linux; not what lies on a GPU); an evaluation that needs more fails, and says so."""
    gpu_memory: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the GPU's memory for the engines local and huggingface; vllm has `gpu_memory_utilization`."""


class OnRay(Section):
    """Workers on a Ray cluster; problems are dealt out to them, grading and files stay with this process."""

    type: Literal["ray"]
    address: Annotated[str, Field(min_length=1)] = "auto"
    """`auto` for the cluster this machine belongs to, `host:port` of its head, `ray://host:port` of its client server."""
    workers: Positive = 1
    """Copies of the model."""
    cpus: Annotated[float, Field(ge=0)] = 1
    """Processors that each worker takes, and its threads."""
    gpus: Annotated[float, Field(ge=0)] = 0
    """GPUs that each worker takes; below 1 it shares one. With 0 it computes on processors."""
    memory_gib: Annotated[float, Field(gt=0)] | None = None
    """Memory that each worker takes in Ray's accounts."""


Place = Annotated[ThisMachine | OnRay, Field(discriminator="type"), default_type("here")]


class Evaluation(Section):
    """Checkpoints 0, every, 2*every, ... and the last are evaluated on the task's benchmarks as they appear."""

    every: Annotated[Positive, ADDS] = 10
    samples_per_problem: Annotated[Positive, ADDS] = 4
    """k of mean@k (the paper: 32)."""
    temperature: Annotated[float, Field(ge=0), EVALUATES] = 1.0
    """0 is greedy."""
    benchmarks: Annotated[tuple[str, ...] | None, ADDS] = None
    """Names to keep; all of the task's when null."""
    engine: Annotated[EngineSpec, EVALUATES] = LocalEngineSpec()
    """What produces the responses."""
    place: Annotated[Place, OPERATES] = ThisMachine()
    """Where, and within which limits; may change between two calls of the same sweep."""
