"""Sizes of language models of the Qwen, Llama and Mistral families: from their config.json, in a
folder or in the hub's cache, or from a table of open models by hub id.
"""

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from rpg.config.model import KNOWN_MODELS, Lora, PretrainedModel, TinyModel


@dataclass(frozen=True)
class Shape:
    """A decoder with grouped-query attention and gated feed-forward layers."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool = False  # whether the output layer is the embedding
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def block_parameters(self) -> int:
        """The parameters of all blocks, that is, all that a token is multiplied with before the
        output layer."""
        kv = self.kv_heads * self.head_dim
        attention = self.hidden * (2 * self.attention_width + 2 * kv)
        attention += (
            self.attention_width + 2 * kv
        ) * self.qkv_bias + 2 * self.head_dim * self.qk_norm
        return self.layers * (attention + 3 * self.hidden * self.intermediate + 2 * self.hidden)

    @property
    def parameters(self) -> int:
        return self.block_parameters + self.hidden + (2 - self.tied) * self.vocabulary * self.hidden

    @property
    def cache_bytes_per_token(self) -> int:
        """Keys and values in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    def packable(self, block: int) -> int:
        """Weights of the linear layers of all blocks whose rows are whole blocks of this size."""
        kv = self.kv_heads * self.head_dim
        wide = self.attention_width
        matrices = [
            (self.hidden, wide + 2 * kv),
            (wide, self.hidden),
            (self.hidden, 2 * self.intermediate),
            (self.intermediate, self.hidden),
        ]
        packed = sum(inputs * outputs for inputs, outputs in matrices if inputs % block == 0)
        return self.layers * packed

    def adapter_parameters(self, lora: Lora) -> int:
        """Parameters of low-rank adapters on this model."""
        kv = self.kv_heads * self.head_dim
        wide = self.attention_width
        maps = {
            "q_proj": self.hidden + wide,
            "k_proj": self.hidden + kv,
            "v_proj": self.hidden + kv,
            "o_proj": wide + self.hidden,
            "gate_proj": self.hidden + self.intermediate,
            "up_proj": self.hidden + self.intermediate,
            "down_proj": self.intermediate + self.hidden,
        }
        chosen = maps if lora.targets == "all-linear" else maps.keys() & set(lora.targets)
        return self.layers * lora.rank * sum(maps[name] for name in chosen)


TINY_VOCABULARY = 24  # about the number of characters that a tiny model of the chain task has
TABLE = "a table of open models (from litgpt/config.py of Lightning-AI/litgpt at 0006c97)"
PUBLISHED = tomllib.loads((files("rpg.planning") / "published.toml").read_text(encoding="utf-8"))


def _open_models() -> Iterator[tuple[str, Shape]]:
    for names, sizes in PUBLISHED["models"].items():
        for name in names.split():
            stem, _, ending = name.removesuffix("]").partition("[")
            model = stem.partition("/")[2]
            tied = model.startswith(tuple(PUBLISHED["output-is-embedding"]["names"]))
            qkv_bias = model.startswith(("Qwen2.5", "QwQ"))
            qk_norm = model.startswith("Qwen3")
            shape = replace(Shape(*sizes), tied=tied, qkv_bias=qkv_bias, qk_norm=qk_norm)
            yield from ((each, shape) for each in dict.fromkeys((stem, stem + ending)))


OPEN = dict(_open_models())
STORED = {
    name: Shape(*model.shape, tied=model.tied)
    for name, model in KNOWN_MODELS.items()
    if model.shape
}
KNOWN = OPEN | STORED


def tiny_shape(model: TinyModel) -> Shape:
    """Sizes of a model that is created from its configuration."""
    return Shape(
        model.layers,
        model.hidden_size,
        model.heads,
        model.kv_heads,
        model.hidden_size // model.heads,
        model.intermediate_size,
        TINY_VOCABULARY,
        tied=True,
        qk_norm=True,
    )


def shape_of(model: object) -> Shape | None:
    """Sizes of a pretrained model; None if only the hub knows them."""
    return shape_and_source(model.path)[0] if isinstance(model, PretrainedModel) else None


def shape_and_source(path: str) -> tuple[Shape | None, str]:
    """Sizes (None if only the hub knows them) of the model that a path or a name in a configuration
    means, and where they are from: the folder's config.json, that in the hub's cache, or the table
    of open models.
    """
    file = Path(path).expanduser() / "config.json"
    shape = _from_config(file)
    if shape:
        return shape, str(file)
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")  # as huggingface_hub finds it
    cached = hub / f"models--{path.replace('/', '--')}" / "snapshots"
    for file in sorted(cached.glob("*/config.json")):
        shape = _from_config(file)
        if shape:
            return shape, str(file)
    if path in OPEN:
        return KNOWN.get(path), TABLE
    return KNOWN.get(path), "rpg model" if path in KNOWN else ""


def _from_config(path: Path) -> Shape | None:
    try:
        config = json.loads(path.read_text("utf-8"))
        heads = config["num_attention_heads"]
        kind = config["model_type"]
        return Shape(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            tied=config.get("tie_word_embeddings", False),
            qkv_bias=kind == "qwen2" or bool(config.get("attention_bias")),
            qk_norm=kind == "qwen3",
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
