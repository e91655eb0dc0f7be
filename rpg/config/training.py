"""The sections `training` and `rollout`: how responses are sampled and used for updates."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rpg.config.evaluation import VllmEngineSpec
from rpg.config.section import (
    INTERVAL,
    NAME,
    OPERATES,
    ROUNDS,
    ROWS_AT_ONCE,
    SAMPLES_PER_STEP,
    SECONDS,
    STEPS,
    TOKENS,
    TOKENS_AT_ONCE,
    Fraction,
    Positive,
    Section,
    default_type,
    listed,
)

Step = Annotated[int, Field(ge=0), INTERVAL]


Schedule = Literal["constant", "linear", "cosine"]


class AdamW(Section):
    """AdamW with a linear warm-up, then a constant rate (paper App. H: weight decay 0.1, clip
    1.0)."""

    type: Literal["adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    decay_vectors: bool = True
    """Whether norms and biases decay, too. verl decays all weights (true); transformers' trainer
    and TRL leave these out (false)."""
    moments: Literal["float32", "8bit"] = "float32"
    """How both moments of a weight are kept: `8bit` takes 2 bytes a weight in place of 8, in blocks
    of 256 with a scale each (bitsandbytes; Dettmers et al., arXiv 2110.02861). Embedded trainer
    only."""
    warmup_steps: Annotated[int, Field(ge=0), INTERVAL] = 0
    """In optimizer steps."""
    schedule: Schedule = "constant"
    """After the warm-up: constant, or falling to 0 at the end of `steps`. A run with a falling rate
    cannot continue a shorter one, whose rate fell faster."""


class ScheduleFreeAdamW(Section):
    """Schedule-free AdamW (Defazio et al., arXiv 2405.15682): rollouts use the averaged weights."""

    type: Literal["schedule_free"]
    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    decay_vectors: bool = True
    """Whether norms and biases decay, too. verl decays all weights (true); transformers' trainer
    and TRL leave these out (false)."""
    warmup_steps: Annotated[int, Field(ge=0), INTERVAL] = 16
    """In optimizer steps."""


Optimizer = Annotated[AdamW | ScheduleFreeAdamW, Field(discriminator="type"), default_type("adamw")]


def has_8bit_moments(optimizer: AdamW | ScheduleFreeAdamW) -> bool:
    return isinstance(optimizer, AdamW) and optimizer.moments == "8bit"


class TokenRecords(Section):
    """Which rollouts store, for each of their tokens, what the loss did to it (docs/dashboard.md,
    "Tokens")."""

    every: Annotated[int, Field(ge=0), INTERVAL] = 0
    """Training steps from one record to the next; 0: none."""
    groups: Annotated[Positive, SAMPLES_PER_STEP] = 2
    """Groups of responses per record: of the same prompts in every variant that has them."""
    most_tokens: Annotated[Positive, TOKENS_AT_ONCE] = 20_000
    """A group that would make a record longer is left out."""


class Until(Section):
    """What ends a run before its last step, whichever comes first. Its last checkpoint then stands
    at the last planned step, and reports say where and why it ended."""

    tokens: Annotated[Positive, INTERVAL] | None = None
    """Response tokens sampled in training."""
    seconds: Annotated[float, Field(gt=0), SECONDS] | None = None
    """Seconds of training steps, over all attempts: the only end that depends on the machine."""
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of right responses in the rollouts, as the verifier sees them."""
    over: Annotated[Positive, INTERVAL] = 4
    """Steps over which that share is averaged."""


class Training(Section):
    """How rollouts are used for updates. A *step* is one rollout and its epochs x (prompts /
    mini-batch) optimizer steps."""

    steps: Annotated[int, Field(ge=1, le=10_000_000), STEPS] = 40
    """Rollout steps. A longer run continues from a shorter one that is otherwise the same."""
    until: Until = Until()
    """Embedded trainer only."""
    prompts_per_step: Annotated[Positive, SAMPLES_PER_STEP] = 32
    mini_batch_prompts: Annotated[Positive, SAMPLES_PER_STEP] = 8
    """Prompts per optimizer step; must divide prompts_per_step."""
    epochs: Annotated[Positive, ROUNDS] = 1
    """Passes over each rollout."""
    micro_batch_rows: Annotated[Positive, OPERATES, ROWS_AT_ONCE] = 128
    """Responses per forward and backward pass; affects memory, never the gradient. With verl,
    `backend.max_tokens_per_gpu` takes the place of this and of `micro_batch_tokens`."""
    micro_batch_tokens: Annotated[Positive | None, OPERATES, TOKENS_AT_ONCE] = None
    """Tokens per pass, where a prompt counts once for all its responses. Default: chosen by the
    size of the model."""
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    entropy_coeff: Annotated[float, Field(ge=0)] = 0.0
    """Entropy bonus: this coefficient times the policy's entropy at the response tokens is
    subtracted from the loss, averaged like the loss (`loss_agg_mode`); its gradient is exact."""
    optimizer: Optimizer = AdamW()
    checkpoint_every: Annotated[Positive, OPERATES, INTERVAL] = 1
    """A killed run loses at most this many steps. Only the newest checkpoints and those of
    `keep_checkpoints` are kept."""
    keep_checkpoints: Annotated[Literal["all", "last", "best"] | tuple[Step, ...], OPERATES] = (
        "best"
    )
    """Which checkpoints keep their weights after evaluation: `best` (the last and the best),
    `last`, `all`, or a list of steps (and the last). Checkpoints that are not evaluated yet are
    always kept."""

    fidelity_every: Annotated[int, Field(ge=0), OPERATES, INTERVAL] = 0
    """Every this many steps, an extra backward pass measures how far the gradient of the loss is
    from the exact gradient of its objective (metrics `gradient_cosine` and `gradient_bias`); 0:
    never. Embedded trainer only."""

    token_records: Annotated[TokenRecords, OPERATES] = TokenRecords()

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.prompts_per_step % self.mini_batch_prompts:
            raise ValueError(
                f"mini_batch_prompts {self.mini_batch_prompts} must divide prompts_per_step "
                f"{self.prompts_per_step}"
            )
        return self

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps of the whole run, if every step has groups to learn from."""
        return self.steps * self.updates_per_step

    @property
    def updates_per_step(self) -> int:
        """Optimizer steps per rollout."""
        return self.epochs * (self.prompts_per_step // self.mini_batch_prompts)


class Sampler(Section):
    """The copy of the policy that draws samples, to study the mismatch between a cheap sampler and
    the trainer."""

    dtype: Literal["same", "bfloat16", "float16", "int8"] = "same"
    """Precision of the copy's weights: bfloat16, float16, or int8 with one scale per row. The
    arithmetic is that of the policy, so the copy's log-probabilities are known exactly."""


class TrainersDecoder(Section):
    """The trainer's own decoder."""

    type: Literal["local"] = "local"


_by_name = BeforeValidator(lambda value: {"type": value} if isinstance(value, str) else value)
_AnyEngine = TrainersDecoder | VllmEngineSpec
RolloutEngine = Annotated[_AnyEngine, Field(discriminator="type"), default_type("local"), _by_name]

StopTexts = Annotated[
    tuple[Annotated[str, NAME, Field(min_length=1, max_length=200)], ...],
    Field(max_length=16),
    listed(str),
]


class Rollout(Section):
    """Groups of responses sampled from the current policy, or from an earlier or rounded one."""

    group_size: Annotated[int, Field(ge=2), SAMPLES_PER_STEP] = 8
    """Responses per prompt (the paper: 16)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: sample from the smallest set of most probable tokens whose total
    probability reaches this; 1: all tokens. Log-probabilities are those of the restricted
    distribution (docs/trainer.md). Embedded trainer only, like `top_k`, `min_p` and
    `min_response_tokens`."""
    top_k: Annotated[int, Field(ge=2), TOKENS_AT_ONCE] | None = None
    """Sample from this many most probable tokens; null: all tokens."""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Sample from tokens whose probability is at least this fraction of the most probable token's;
    0: all tokens."""
    stop: StopTexts = ()
    """Stop sequences. They remain part of the response, and are also used in evaluation."""
    max_prompt_tokens: Annotated[Positive, TOKENS] = 64
    max_response_tokens: Annotated[Positive, TOKENS] = 42
    min_response_tokens: Annotated[int, Field(ge=0), TOKENS] = 0
    """The end-of-sequence token cannot be sampled before this many tokens, also in evaluation."""
    rows_at_once: Annotated[Positive | None, OPERATES, ROWS_AT_ONCE] = None
    """Responses drawn at a time, each with its own random numbers: bounds the memory of keys and
    values, and changes results by rounding only. Default: as many as fit, up to all; the run
    records how many (`rpg show FILE --gpu 24GB` says it beforehand). Embedded trainer only."""
    max_refills: Annotated[int, Field(ge=0), ROUNDS] = 8
    """Dynamic sampling: maximum number of extra rounds to replace groups that are all correct or
    all wrong."""
    drop_solved: Annotated[float, Field(gt=0, le=1)] | None = None
    """A problem leaves for good once this share of a group's responses is right: from the next pass
    over the data on, it is not drawn (ScaleRL, arXiv 2510.13786, has 0.9). A run without a problem
    left ends there. null: problems stay. Embedded trainer only."""
    staleness: Annotated[int, Field(ge=0), ROUNDS] = 0
    """Each step uses samples from the policy of this many rollouts before. With verl, rollouts run
    this many steps ahead."""
    sampler: Sampler = Sampler()
    """Embedded trainer only."""
    engine: RolloutEngine = TrainersDecoder()
    """What draws the responses in the embedded trainer; `vllm` for `{type: vllm}`. vLLM gets the
    policy's weights at every step, in memory, and `algorithm.rollout_correction` corrects for its
    own log-probabilities (docs/trainer.md). verl has `backend.rollout`."""

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.min_response_tokens >= self.max_response_tokens:
            raise ValueError(
                f"min_response_tokens {self.min_response_tokens} must be below max_response_tokens "
                f"{self.max_response_tokens}"
            )
        return self
