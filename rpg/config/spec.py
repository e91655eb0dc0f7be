"""What a run is: pydantic models whose defaults are the vetted settings of the tiny chain task.

Every union is discriminated by `type`; unknown fields are errors. A resolved `RunSpec` holds every value that can
change a result, so its canonical JSON (plus the digest of its data) is the run's identity.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from rpg.catalogue import Algorithm, algorithm
from rpg.config.backends import Backend, LocalBackend, VerlBackend
from rpg.config.evaluation import Evaluation
from rpg.config.section import Fraction, Positive, Section, default_type

RECIPE_TEMPLATE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{prompt}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
"""How the paper's recipe asks a mathematical problem (App. H)."""

# ---------------------------------------------------------------------------------------------------- task


class ChainTask(Section):
    """Left-to-right arithmetic modulo 10 with labelled operands; problems are made by code, nothing is downloaded.

    Prompt ``a3b+7c-5=``, response ``b+70c-55#5``; the reward checks the digit after the last ``#``.
    """

    type: Literal["chain"] = "chain"
    tiers: dict[
        Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")], Annotated[int, Field(ge=1, le=12)]
    ] = {  # noqa: RUF012 (pydantic copies it)
        "easy": 2,
        "medium": 4,
        "hard": 7,
    }
    """Benchmark name -> number of operations. Each tier is trained on, and held out as the benchmark chain-<tier>."""
    train_problems: Positive = 12_000
    """Distinct training problems, spread evenly over the tiers (fewer where a tier has fewer distinct problems)."""
    benchmark_problems: Positive = 64
    """Held-out problems per tier; none of them is in the training set."""
    data_seed: int = 0
    """Seed of the problems themselves; `seed` of the run never changes the data."""

    @model_validator(mode="after")
    def _not_empty(self) -> ChainTask:
        if not self.tiers:
            raise ValueError("tiers must name at least one tier, e.g. {easy: 2}")
        return self


class MarkerVerifier(Section):
    """The answer is what follows the last `marker` in the response, up to the end of its line."""

    type: Literal["marker"] = "marker"
    marker: Annotated[str, Field(min_length=1)] = "Answer:"
    match: Literal["exact", "number"] = "exact"
    """`exact` compares text without surrounding blanks; `number` compares values (1/2 = 0.5 = 0.50)."""


class MathVerifier(Section):
    """The answer is the last `Answer:` line; it is right when it means the same as the gold answer (docs/grading.md)."""

    type: Literal["math"] = "math"
    fallback: Literal["none", "boxed"] = "none"
    r"""`boxed`: a response without an `Answer:` line is read for its last `\boxed{...}`. The recipe does not do this."""
    relative_tolerance: Annotated[float, Field(ge=0.0, lt=0.1)] = 0.0
    """Numbers that differ by no more than this part of the gold number are right (for answers of physics)."""


Verifier = Annotated[MarkerVerifier | MathVerifier, Field(discriminator="type"), default_type("marker")]


class FileTask(Section):
    """Problems of your own, from JSON-lines or Parquet files with the columns `prompt` and `answer`.

    A column `demonstration` (a full response) is needed only to warm-start a tiny model from scratch.
    """

    type: Literal["file"]
    train: Path
    benchmarks: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")], Path]
    """Benchmark name -> file of held-out problems. Problems that are also in `train` are an error."""
    template: str = "{prompt}"
    """How a problem becomes the user's message; `{prompt}` stands for the problem."""
    verifier: Verifier = MarkerVerifier()

    @model_validator(mode="after")
    def _template_has_prompt(self) -> FileTask:
        if "{prompt}" not in self.template:
            raise ValueError("template must contain {prompt}, the place where the problem goes")
        if not self.benchmarks:
            raise ValueError("benchmarks must name at least one file of held-out problems")
        return self


class MathTask(Section):
    """Mathematics by the paper's recipe: a training file, and benchmarks that ship (AIME, AMC, ...) or one's own.

    Training problems that are also in a benchmark, word for word or nearly so, are left out.
    """

    type: Literal["math"]
    train: str
    """A training set that ships (`dapo-math-17k-en`, `math-train`), a JSON-lines or Parquet file, or a YAML file that
    says where problems are (docs/data.md)."""
    benchmarks: tuple[str, ...] = ("aime24", "aime25", "amc23")
    """Names of benchmarks that ship, or paths of YAML files of one's own."""
    data: Path | None = None
    """Folder of local copies of benchmarks; without it $RPG_DATA, then the Hugging Face hub."""
    template: str = RECIPE_TEMPLATE
    """How a problem becomes the user's message; `{prompt}` stands for the problem."""
    verifier: MathVerifier = MathVerifier()

    @model_validator(mode="after")
    def _usable(self) -> MathTask:
        if "{prompt}" not in self.template:
            raise ValueError("template must contain {prompt}, the place where the problem goes")
        names = self.names()
        if not names or len(set(names)) < len(names):
            raise ValueError("benchmarks must name at least one benchmark, each once")
        return self

    def names(self) -> tuple[str, ...]:
        """Names of the benchmarks: of those given by a YAML file, its name without the ending."""
        return tuple(Path(b).stem if b.endswith((".yaml", ".yml")) else b for b in self.benchmarks)


Task = Annotated[ChainTask | FileTask | MathTask, Field(discriminator="type"), default_type("chain")]


# --------------------------------------------------------------------------------------------------- model


class WarmStart(Section):
    """Supervised start of a model made from its config, so that RL has an ability to sharpen.

    Stage 1 teaches the ability on clean demonstrations until held-out accuracy is reached; stage 2 teaches a
    behaviour that mostly does not use it (bare answers, noisy scratchpads). The result is cached by digest.
    """

    seed: int = 0
    target_accuracy: Fraction = 0.97
    """Stage 1 goes on until greedy accuracy on problems that are in no benchmark reaches this."""
    max_steps: Positive = 2400
    """Stage 1 gives up (an error) after this many steps."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    batch_size: Positive = 32
    consolidation_steps: Annotated[int, Field(ge=0)] = 250
    """Further steps of stage 1, the rate falling to a tenth: an ability that was only just reached does not survive
    stage 2 well, and reinforcement learning then ends 0.1 to 0.2 lower."""
    behaviour_steps: Annotated[int, Field(ge=0)] = 150
    behaviour_learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    scratchpad_fraction: Fraction = 0.2
    """Stage 2: fraction of demonstrations that keep their scratchpad; the rest are a bare answer."""
    corruption: Fraction = 0.1
    """Stage 2: probability that a step of a scratchpad is wrong."""


class TinyModel(Section):
    """A Qwen3 made from its config (about 0.1 M parameters by default) with a tokenizer over the task's characters."""

    type: Literal["tiny"] = "tiny"
    hidden_size: Positive = 64
    layers: Positive = 2
    heads: Positive = 4
    kv_heads: Positive = 2
    intermediate_size: Positive = 192
    max_positions: Positive = 256
    warm_start: WarmStart | None = WarmStart()

    @model_validator(mode="after")
    def _divisible(self) -> TinyModel:
        if self.hidden_size % self.heads or (self.hidden_size // self.heads) % 2:
            raise ValueError(f"hidden_size {self.hidden_size} must be an even multiple of heads {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        return self


class PretrainedModel(Section):
    """Any Hugging Face causal language model: a hub id (with its revision) or a local folder."""

    type: Literal["pretrained"]
    path: Annotated[str, Field(min_length=1)]
    """A folder, or a hub id such as Qwen/Qwen3-0.6B."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"


Model = Annotated[TinyModel | PretrainedModel, Field(discriminator="type"), default_type("tiny")]


# ------------------------------------------------------------------------------------------------ training


class AdamW(Section):
    """AdamW with a linear warm-up, then a constant rate (paper App. H: weight decay 0.1, clip 1.0)."""

    type: Literal["adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """In optimizer steps."""


class ScheduleFreeAdamW(Section):
    """Schedule-free AdamW (Defazio et al., arXiv 2405.15682): the rollout policy is the averaged one."""

    type: Literal["schedule_free"]
    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    warmup_steps: Annotated[int, Field(ge=0)] = 16
    """In optimizer steps."""


Optimizer = Annotated[AdamW | ScheduleFreeAdamW, Field(discriminator="type"), default_type("adamw")]


class Training(Section):
    """How rollouts become updates. A *step* is one rollout; each makes epochs x (prompts / mini-batch) updates."""

    steps: Positive = 40
    """Rollout steps."""
    prompts_per_step: Positive = 32
    mini_batch_prompts: Positive = 8
    """Prompts per optimizer step; must divide prompts_per_step."""
    epochs: Positive = 1
    """Passes over each rollout."""
    micro_batch_rows: Positive = 128
    """Responses per forward and backward pass: memory only, never the gradient."""
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    optimizer: Optimizer = AdamW()
    checkpoint_every: Positive = 1
    """A kill loses at most this many steps. Only the newest ones and those owed to an evaluation are kept."""

    @model_validator(mode="after")
    def _divides(self) -> Training:
        if self.prompts_per_step % self.mini_batch_prompts:
            raise ValueError(
                f"mini_batch_prompts {self.mini_batch_prompts} must divide prompts_per_step {self.prompts_per_step}"
            )
        return self

    @property
    def updates_per_step(self) -> int:
        """Optimizer steps per rollout."""
        return self.epochs * (self.prompts_per_step // self.mini_batch_prompts)


class Rollout(Section):
    """Groups of responses sampled from the current policy."""

    group_size: Annotated[int, Field(ge=2)] = 8
    """Responses per prompt (the paper: 16)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    max_prompt_tokens: Positive = 64
    max_response_tokens: Positive = 42
    max_refills: Annotated[int, Field(ge=0)] = 8
    """Dynamic sampling: extra rounds of prompts that may be drawn to replace groups all right or all wrong."""


# ----------------------------------------------------------------------------------------------------- run


def _algorithm(value: Any) -> Any:
    """`grpo`, `{name: grpo, beta: 0.01}` or an Algorithm -> Algorithm (raises AlgorithmError, a ValueError)."""
    if isinstance(value, str):
        return algorithm(value)
    if isinstance(value, dict):
        if "name" not in value:
            raise ValueError("an algorithm needs a name, e.g. {name: grpo}")
        return algorithm(**value)
    return value


AlgorithmField = Annotated[
    Algorithm, BeforeValidator(_algorithm), PlainSerializer(lambda a: {"name": a.name, **a.settings()})
]


class RunSpec(Section):
    """One training run, completely resolved."""

    task: Task = ChainTask()
    model: Model = TinyModel()
    algorithm: AlgorithmField = Field(default_factory=lambda: algorithm("grpo"))
    training: Training = Training()
    rollout: Rollout = Rollout()
    evaluation: Evaluation = Evaluation()
    backend: Backend = LocalBackend()
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _fits(self) -> RunSpec:
        known = self.task_benchmarks()
        for name in self.evaluation.benchmarks or ():
            if name not in known:
                raise ValueError(f"evaluation.benchmarks: {name!r} is not one of {', '.join(known)}")
        if isinstance(self.model, TinyModel):
            need = self.rollout.max_prompt_tokens + self.rollout.max_response_tokens
            if need > self.model.max_positions:
                raise ValueError(
                    f"rollout.max_prompt_tokens + max_response_tokens = {need} do not fit "
                    f"model.max_positions = {self.model.max_positions}"
                )
        if isinstance(self.backend, VerlBackend):
            longest = self.rollout.max_prompt_tokens + self.rollout.max_response_tokens
            room = self.backend.max_tokens_per_gpu * self.backend.sequence_parallel
            if room < longest:
                raise ValueError(
                    f"backend.max_tokens_per_gpu x sequence_parallel = {room} must hold a sequence of "
                    f"rollout.max_prompt_tokens + max_response_tokens = {longest}"
                )
        return self

    def task_benchmarks(self) -> tuple[str, ...]:
        """Names of all benchmarks the task brings, in order."""
        if isinstance(self.task, ChainTask):
            return tuple(f"chain-{tier}" for tier in self.task.tiers)
        if isinstance(self.task, MathTask):
            return self.task.names()
        return tuple(self.task.benchmarks)

    def benchmarks(self) -> tuple[str, ...]:
        """Names of the benchmarks this run is evaluated on."""
        return self.evaluation.benchmarks or self.task_benchmarks()

    def eval_steps(self) -> tuple[int, ...]:
        """Rollout steps whose checkpoints are owed an evaluation: 0, every, 2*every, ..., and the last."""
        return tuple(sorted({*range(0, self.training.steps, self.evaluation.every), self.training.steps}))
