"""Sizes of language models of the Qwen, Llama and Mistral families: from their config.json, in a folder or in the hub's
cache, or from a table of open models by hub id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
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
    tied: bool = False
    """Whether the output layer is the embedding."""
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def block_parameters(self) -> int:
        """The parameters of all blocks, that is, all that a token is multiplied with before the output layer."""
        kv = self.kv_heads * self.head_dim
        attention = self.hidden * (2 * self.attention_width + 2 * kv)
        attention += (self.attention_width + 2 * kv) * self.qkv_bias + 2 * self.head_dim * self.qk_norm
        return self.layers * (attention + 3 * self.hidden * self.intermediate + 2 * self.hidden)

    @property
    def parameters(self) -> int:
        return self.block_parameters + self.hidden + (2 - self.tied) * self.vocabulary * self.hidden

    @property
    def cache_bytes_per_token(self) -> int:
        """Keys and values in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    def adapter_parameters(self, lora: Lora) -> int:
        """Parameters of low-rank adapters on this model."""
        kv, wide = self.kv_heads * self.head_dim, self.attention_width
        maps = {
            "q_proj": self.hidden + wide, "k_proj": self.hidden + kv, "v_proj": self.hidden + kv,
            "o_proj": wide + self.hidden, "gate_proj": self.hidden + self.intermediate,
            "up_proj": self.hidden + self.intermediate, "down_proj": self.intermediate + self.hidden,
        }  # fmt: skip
        chosen = maps if lora.targets == "all-linear" else maps.keys() & set(lora.targets)
        return self.layers * lora.rank * sum(maps[name] for name in chosen)


TINY_VOCABULARY = 24
"""About the number of characters that a tiny model of the chain task has."""
TABLE = "a table of open models (from litgpt/config.py of Lightning-AI/litgpt at 0006c97)"
"""It quotes each model's config.json; whether the output layer is the embedding is from pytorch/torchtune's builders."""
# Layers, hidden size, heads, key-value heads, head size, feed-forward size, vocabulary.
_OPEN = {
    "Qwen/Qwen2.5-0.5B[-Instruct] Qwen/Qwen2.5-Coder-0.5B": (24, 896, 14, 2, 64, 4864, 151936),
    "Qwen/Qwen2.5-1.5B[-Instruct] Qwen/Qwen2.5-Math-1.5B[-Instruct]": (28, 1536, 12, 2, 128, 8960, 151936),
    "Qwen/Qwen2.5-3B[-Instruct]": (36, 2048, 16, 2, 128, 11008, 151936),
    "Qwen/Qwen2.5-7B[-Instruct] Qwen/Qwen2.5-Math-7B[-Instruct]": (28, 3584, 28, 4, 128, 18944, 152064),
    "Qwen/Qwen2.5-14B[-Instruct]": (48, 5120, 40, 8, 128, 13824, 152064),
    "Qwen/Qwen2.5-32B[-Instruct] Qwen/QwQ-32B": (64, 5120, 40, 8, 128, 27648, 152064),
    "Qwen/Qwen3-0.6B[-Base]": (28, 1024, 16, 8, 128, 3072, 151936),
    "Qwen/Qwen3-1.7B[-Base]": (28, 2048, 16, 8, 128, 6144, 151936),
    "Qwen/Qwen3-4B[-Base] Qwen/Qwen3-4B-Instruct-2507": (36, 2560, 32, 8, 128, 9728, 151936),
    "Qwen/Qwen3-8B[-Base]": (36, 4096, 32, 8, 128, 12288, 151936),
    "Qwen/Qwen3-14B[-Base]": (40, 5120, 40, 8, 128, 17408, 151936),
    "Qwen/Qwen3-32B": (64, 5120, 64, 8, 128, 25600, 151936),
    "meta-llama/Llama-3.2-1B[-Instruct]": (16, 2048, 32, 8, 64, 8192, 128256),
    "meta-llama/Llama-3.2-3B[-Instruct]": (28, 3072, 24, 8, 128, 8192, 128256),
    "meta-llama/Meta-Llama-3.1-8B[-Instruct] deepseek-ai/DeepSeek-R1-Distill-Llama-8B": (
        32, 4096, 32, 8, 128, 14336, 128256
    ),
    "meta-llama/Llama-3.3-70B-Instruct": (80, 8192, 64, 8, 128, 28672, 128256),
    "mistralai/Mistral-7B-v0.3 mistralai/Mistral-7B-Instruct-v0.3": (32, 4096, 32, 8, 128, 14336, 32768),
    "HuggingFaceTB/SmolLM2-135M[-Instruct]": (30, 576, 9, 3, 64, 1536, 49152),
    "HuggingFaceTB/SmolLM2-360M[-Instruct]": (32, 960, 15, 5, 64, 2560, 49152),
    "HuggingFaceTB/SmolLM2-1.7B[-Instruct]": (24, 2048, 32, 32, 64, 8192, 49152),
}  # fmt: skip
_TIED = ("Qwen2.5-0.5B", "Qwen2.5-Coder-0.5B", "Qwen2.5-1.5B", "Qwen2.5-Math-1.5B", "Qwen2.5-3B", "Qwen3-0.6B",
         "Qwen3-1.7B", "Qwen3-4B", "Llama-3.2-", "SmolLM2-")  # fmt: skip


def _open_models() -> Iterator[tuple[str, Shape]]:
    for names, sizes in _OPEN.items():
        for name in names.split():
            stem, _, ending = name.removesuffix("]").partition("[")
            model = stem.partition("/")[2]
            shape = Shape(
                *sizes, tied=model.startswith(_TIED), qkv_bias=model.startswith(("Qwen2.5", "QwQ")),
                qk_norm=model.startswith("Qwen3"),
            )  # fmt: skip
            yield from ((each, shape) for each in dict.fromkeys((stem, stem + ending)))


KNOWN = {
    **dict(_open_models()),
    **{name: Shape(*model.shape, tied=model.tied) for name, model in KNOWN_MODELS.items() if model.shape},
}


def tiny_shape(model: TinyModel) -> Shape:
    """Sizes of a model that is created from its configuration."""
    return Shape(
        model.layers, model.hidden_size, model.heads, model.kv_heads, model.hidden_size // model.heads,
        model.intermediate_size, TINY_VOCABULARY, tied=True, qk_norm=True,
    )  # fmt: skip


def shape_of(model: object) -> Shape | None:
    """Sizes of a pretrained model; None if only the hub knows them."""
    if not isinstance(model, PretrainedModel):
        return None
    return shape_at(model.path)


def shape_at(path: str) -> Shape | None:
    """Sizes of the model that a path or a name in a configuration means; None if only the hub knows them."""
    return shape_and_source(path)[0]


def shape_and_source(path: str) -> tuple[Shape | None, str]:
    """Sizes, and where they are from: the folder's config.json, that in the hub's cache, or the table of open models."""
    if shape := _from_config(file := Path(path).expanduser() / "config.json"):
        return shape, str(file)
    cached = _cache() / f"models--{path.replace('/', '--')}" / "snapshots"
    for file in sorted(cached.glob("*/config.json")):
        if shape := _from_config(file):
            return shape, str(file)
    return (
        (KNOWN[path], TABLE if path in dict(_open_models()) else "rpg model") if path in KNOWN else (None, "")
    )


def _cache() -> Path:
    """The hub's folder of downloaded models, as huggingface_hub finds it."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def _from_config(path: Path) -> Shape | None:
    try:
        config = json.loads(path.read_text("utf-8"))
        heads, kind = config["num_attention_heads"], config["model_type"]
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
