"""The section `evaluation`: how checkpoints are evaluated, with which engine and where."""

from typing import Annotated, Literal

from pydantic import Field

from rpg.config.section import (
    ADDRESS,
    ADDS,
    EVALUATES,
    GIGABYTES,
    INTERVAL,
    NAME,
    OPERATES,
    PROCESSES,
    ROWS_AT_ONCE,
    SAMPLES_PER_PROBLEM,
    TOKENS_AT_ONCE,
    WORKERS,
    Positive,
    Section,
    default_type,
    kinds_of,
)


class LocalEngineSpec(Section):
    """The trainer's own decoder."""

    type: Literal["local"] = "local"
    rows: Annotated[Positive, OPERATES, ROWS_AT_ONCE] = 512
    """Responses decoded at a time."""


class HuggingFaceEngineSpec(Section):
    """The same as `local`, under an older name that files may still use."""

    type: Literal["huggingface"]
    rows: Annotated[Positive, OPERATES, ROWS_AT_ONCE] = 64
    """Responses decoded at a time."""


class VllmEngineSpec(Section):
    """vLLM, with continuous batching."""

    type: Literal["vllm"]
    tensor_parallel: Annotated[Positive, OPERATES, WORKERS] = 1
    """GPUs that share one copy of the model."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, lt=1), OPERATES] = 0.85
    """Share of each GPU's memory that vLLM may use while it generates."""
    enforce_eager: Annotated[bool, OPERATES] = False
    """Do not capture CUDA graphs: starts faster, decodes more slowly."""


_BY_TYPE = Field(discriminator="type")
_AnyEngine = LocalEngineSpec | HuggingFaceEngineSpec | VllmEngineSpec
EngineSpec = Annotated[_AnyEngine, _BY_TYPE, default_type("local")]
ENGINES: dict[str, type[Section]] = kinds_of(EngineSpec)


class ThisMachine(Section):
    """Separate processes on the training machine, limited so that they do not slow down
    training."""

    type: Literal["here"] = "here"
    processes: Annotated[Positive, PROCESSES] = 1
    """How many evaluate a sweep's checkpoints at a time, each with its own model; the largest
    number of its runs counts."""
    threads: Annotated[Positive, PROCESSES] = 1
    niceness: Annotated[int, Field(ge=0, le=19)] = 5
    """Priority of training when processors are scarce (0: none; 19: evaluation gets only what is
    left)."""
    memory_gib: Annotated[float, Field(gt=0), GIGABYTES] | None = None
    """Memory limit of each process (Linux; GPU memory not included). An evaluation that needs more
    fails."""
    gpu_memory: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of GPU memory for the engine `local`, which the embedded trainer leaves free; null:
    evaluators of a pretrained model take turns with trainings. `vllm` has
    `gpu_memory_utilization`."""


class OnRay(Section):
    """Workers on a Ray cluster. They receive problems; grading and writing files stay in this
    process."""

    type: Literal["ray"]
    address: Annotated[str, ADDRESS, Field(min_length=1)] = "auto"
    """`auto` for the cluster this machine belongs to, `host:port` of its head, `ray://host:port` of
    its client server."""
    workers: Annotated[Positive, WORKERS] = 1
    """Copies of the model."""
    cpus: Annotated[float, Field(ge=0), WORKERS] = 1
    """Processors, and threads, per worker."""
    gpus: Annotated[float, Field(ge=0), WORKERS] = 0
    """GPUs per worker; a value below 1 shares a GPU. 0: on the CPU."""
    memory_gib: Annotated[float, Field(gt=0), GIGABYTES] | None = None
    """Memory per worker that Ray reserves."""


Place = Annotated[ThisMachine | OnRay, _BY_TYPE, default_type("here")]


SPARSE = 4
"""Steps between evaluations from which on the first steps get evaluations of their own."""


class Evaluation(Section):
    """Checkpoints 0, every, 2*every, ... and the last are evaluated on the task's benchmarks as
    they appear, and some of the first steps."""

    every: Annotated[Positive, ADDS, INTERVAL] = 10
    early: Annotated[bool, ADDS] = True
    """Where `every` is 4 or more: evaluate steps 1, 2, 4, ... up to half of it, too. Accuracies
    change most there, and a comparison at equal tokens needs them. A run that began without these
    evaluations does not get them later."""
    samples_per_problem: Annotated[Positive, ADDS, SAMPLES_PER_PROBLEM] = 4
    """The k of mean@k (the paper uses 32)."""
    temperature: Annotated[float, Field(ge=0), EVALUATES] = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1), EVALUATES] = 1.0
    """Nucleus sampling, as in `rollout`. By default evaluation does not use it, even if training
    does."""
    top_k: Annotated[Positive | None, EVALUATES, TOKENS_AT_ONCE] = None
    min_p: Annotated[float, Field(ge=0, lt=1), EVALUATES] = 0.0
    benchmarks: Annotated[tuple[str, ...] | None, ADDS, NAME] = None
    """Names of benchmarks to use; null: all benchmarks of the task."""
    engine: Annotated[EngineSpec, EVALUATES] = LocalEngineSpec()
    """What produces the responses."""
    place: Annotated[Place, OPERATES] = ThisMachine()
    """Where evaluation runs, and its limits. It may change between two calls of the same sweep."""

    def steps(self, last: int) -> tuple[int, ...]:
        """The steps to evaluate of a run of `last` steps. A longer run evaluates the same early
        steps as a shorter one, which it may continue."""
        evaluated = {*range(0, last, self.every), last}
        if self.early and self.every >= SPARSE:
            step = 1
            while 2 * step <= self.every:
                evaluated.add(step)
                step *= 2
        return tuple(sorted(step for step in evaluated if step <= last))

    @property
    def samples(self) -> int:
        """Of each problem: greedy sampling takes one."""
        return self.samples_per_problem if self.temperature else 1
