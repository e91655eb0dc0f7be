"""The section `model`: a tiny one made from its config, or a pretrained one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rpg.config.section import Fraction, Positive, Section, default_type


class WarmStart(Section):
    """Supervised start of a model made from its config, so that RL has an ability to improve.

    Stage 1 teaches the ability on clean demonstrations until held-out accuracy is reached; stage 2 teaches a
    behaviour that mostly does not use it (bare answers, noisy scratchpads). The result is cached by digest.
    """

    seed: int | None = None
    """null: the run's own `seed`, so that a comparison over seeds is one over initial models, too. A number gives all runs the
    same initial model."""
    target_accuracy: Fraction = 0.97
    """Stage 1 continues until greedy accuracy on problems outside the benchmarks reaches this."""
    max_steps: Positive = 2400
    """Stage 1 fails after this many steps."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    batch_size: Positive = 32
    consolidation_steps: Annotated[int, Field(ge=0)] = 250
    """Further steps of stage 1, with the rate falling to a tenth. Without them the ability does not survive stage 2
    well, and reinforcement learning ends 0.1 to 0.2 lower."""
    behaviour_steps: Annotated[int, Field(ge=0)] = 150
    behaviour_learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    scratchpad_fraction: Fraction = 0.2
    """Stage 2: fraction of demonstrations that keep their scratchpad; the rest are a bare answer."""
    corruption: Fraction = 0.1
    """Stage 2: probability that a step of a scratchpad is wrong."""


class SupervisedStart(Section):
    """Supervised fine-tuning of a pretrained model on the task's demonstrations, before reinforcement learning.

    The loss counts the tokens of responses only. Made once and cached by the digest of model, data and these settings.
    """

    seed: int | None = None
    """null: the run's own `seed`, as in `WarmStart`."""
    steps: Positive = 50
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    """It rises over the first fifth of the steps (20 at most), then falls linearly to a tenth."""
    batch_size: Positive = 16
    """Demonstrations per step."""
    scratchpad_fraction: Fraction = 1.0
    """Fraction of demonstrations that are full responses; the rest are a bare answer, which leaves reinforcement
    learning something to choose."""
    corruption: Fraction = 0.0
    """Probability that a step of a scratchpad is wrong, where the task can say what a step is."""


class Lora(Section):
    """Low-rank adapters (Hu et al., 2021; by peft): the model's weights stay, of each target a product of two narrow
    matrices is trained, which begins at zero. Checkpoints that are evaluated and exported have it merged into the weights.
    """

    rank: Positive = 16
    """Width of the two matrices."""
    alpha: Positive = 32
    """What is added to a target's output is the product times alpha / rank."""
    targets: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = "all-linear"
    """Modules that are adapted: `all-linear` (all linear maps but the output layer), or names such as
    `[q_proj, v_proj]`."""


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
    lora: Lora | None = None
    """As of a pretrained model, for trying it out."""

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
    """A folder, a hub id such as Qwen/Qwen3-0.6B, or the name of a model that `rpg model` lists or keeps."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the arithmetic and of exported checkpoints. What the optimizer updates stays float32; with `bfloat16` on a GPU
    the model holds rounded weights beside it."""
    warm_start: SupervisedStart | None = None
    lora: Lora | None = None
    """Train low-rank adapters instead of all weights; null: all weights. A `fixed` reference is then the model without
    them."""


def lora_of(model: TinyModel | PretrainedModel) -> Lora | None:
    """The adapters that are trained instead of the weights; None where it is the weights."""
    return model.lora


def bfloat16(model: TinyModel | PretrainedModel) -> bool:
    """Whether the arithmetic is bfloat16, and the exported weights are; what the optimizer updates stays float32."""
    return isinstance(model, PretrainedModel) and model.dtype == "bfloat16"


Model = Annotated[TinyModel | PretrainedModel, Field(discriminator="type"), default_type("tiny")]
