"""GGUF files of the families of lean.py, read with numpy: numbers, texts and arrays, then tensors.

transformers parses such a file several times, value by value. The result is the same to the bit
(tests/models/test_gguf_files.py). Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.initialization import no_init_weights
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING, GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_FAMILIES = ("llama", "qwen2", "qwen3")
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INSIDE = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


class Gguf(NamedTuple):
    """A file: its metadata, and where its tensors lie."""

    fields: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], int, int]]
    """Name -> (shape, type, offset in the file)."""
    data: np.ndarray[Any, np.dtype[np.uint8]]


class _Cursor:
    def __init__(self, data: memoryview):
        self.data, self.at = data, 0

    def numbers(self, code: str, count: int = 1) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{count}{code}")
        return values

    def text(self) -> str:
        (size,) = self.numbers("Q")
        self.at += size
        return str(self.data[self.at - size : self.at], "utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.numbers(_NUMBERS[kind])[0]
        of, count = self.numbers("I")[0], self.numbers("Q")[0]
        return (
            [self.value(of) for _ in range(count)]
            if of in (_TEXT, _ARRAY)
            else [*self.numbers(_NUMBERS[of], count)]
        )


def read(file: Path) -> Gguf:
    """Raises ValueError, struct.error, OSError, KeyError: not a GGUF file of version 2 or 3, or cut off."""
    data = np.memmap(file, np.uint8, "r").view(np.ndarray)
    cursor = _Cursor(data.data)
    magic, version, count, entries = cursor.numbers("s", 4) + cursor.numbers("I") + cursor.numbers("Q", 2)
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError("it does not begin as a GGUF file of version 2 or 3")
    fields = {cursor.text(): cursor.value(cursor.numbers("I")[0]) for _ in range(entries)}
    tensors = {}
    for _ in range(count):
        name, dimensions = cursor.text(), cursor.numbers("I")[0]
        shape = cursor.numbers("Q", dimensions)[::-1]
        tensors[name] = shape, cursor.numbers("I")[0], cursor.numbers("Q")[0]
    step = fields.get("general.alignment", 32)
    start = -(-cursor.at // step) * step
    return Gguf(fields, {name: (*rest, start + at) for name, (*rest, at) in tensors.items()}, data)


def load(file: Gguf) -> tuple[PreTrainedModel, PreTrainedTokenizerFast] | None:
    """Model (float32) and tokenizer; None if it is of another family or has tensors of another kind: transformers may know
    them.
    """
    fields, family = file.fields, file.fields["general.architecture"]
    names = {name: _name(name) for name in file.tensors}
    if family not in _FAMILIES or None in names.values():
        return None
    tokens = fields["tokenizer.ggml.tokens"]
    values = {
        ours: value
        for theirs, ours in GGUF_CONFIG_MAPPING[family].items()
        if ours and (value := fields.get(f"{family}.{theirs}")) is not None
    }
    values |= {
        "name_or_path": fields.get("general.name", ""),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "vocab_size": len(tokens),
    }
    config = AutoConfig.for_model(family, **values)
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for name, to in names.items():
        tensor, layer = _tensor(file, name), name.split(".")[-2]
        if family == "llama" and layer in heads:  # halves of a head lie interleaved there
            tensor = tensor.unflatten(0, (heads[layer], -1, 2)).transpose(1, 2).flatten(0, 2)
        state[str(to)] = tensor
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    return model, _tokenizer(family, fields)


def _name(name: str) -> str | None:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("blk."):
        _, number, layer = stem.split(".", 2)
        return f"model.layers.{number}.{_INSIDE[layer]}.{kind}" if layer in _INSIDE else None
    return f"{_OUTSIDE[stem]}.{kind}" if stem in _OUTSIDE else None


def _tensor(file: Gguf, name: str) -> Tensor:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType  # noqa: PLC0415 (optional)
    from gguf.quants import dequantize  # noqa: PLC0415

    shape, kind, at = file.tensors[name]
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    row = shape[-1] // block * size
    raw = file.data[at : at + row * int(np.prod(shape[:-1]))].reshape(*shape[:-1], row)
    return torch.from_numpy(dequantize(raw, GGMLQuantizationType(kind)).copy())


def _tokenizer(family: str, fields: dict[str, Any]) -> PreTrainedTokenizerFast:
    parts: dict[str, dict[str, Any]] = {}
    for part, names in GGUF_TOKENIZER_MAPPING.items():
        values = {ours: fields.get(f"tokenizer.{theirs}") for theirs, ours in names.items()}
        parts[part] = {name: value for name, value in values.items() if value is not None}
    backend, more = convert_gguf_tokenizer(family, parts["tokenizer"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, **parts["tokenizer_config"] | more)
