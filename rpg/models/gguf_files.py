"""GGUF files of the families of lean.py, parsed once (transformers does it several times, which
takes many seconds).

The result is the same to the bit (tests/models/test_gguf_files.py). Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from rpg.system.private_parts import private_part

_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(metadata, tensors as the package reads them) by name. Raises ValueError, IndexError,
    OSError, KeyError: not a GGUF file, or cut off.
    """
    from gguf import GGUFReader  # noqa: PLC0415 (optional)

    content = GGUFReader(file)
    fields = {name: field.contents() for name, field in content.fields.items()}
    return fields, {tensor.name: tensor for tensor in content.tensors}


def load(
    fields: dict[str, Any], tensors: dict[str, Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast] | None:
    """Model (float32) and tokenizer; None if it is of another family or has tensors of another
    kind: transformers may know them. Raises ValueError, KeyError: tensors are missing; what neither
    reads would give another model.
    """
    family = fields["general.architecture"]
    plain = fields.get(f"{family}.rope.scaling.type", "none") == "none"
    if not plain or any(name.startswith("rope_") for name in tensors):
        raise ValueError(
            "its positions are scaled, which is not read; use the model's Hugging Face folder"
        )
    names = {name: _name(name) for name in tensors}
    if family not in ("llama", "qwen2", "qwen3") or None in names.values():
        return None
    values = {
        ours: value
        for theirs, ours in private_part("GGUF_CONFIG_MAPPING")[family].items()
        if ours and (value := fields.get(f"{family}.{theirs}")) is not None
    }
    tied = "output.weight" not in tensors
    values |= {"name_or_path": fields.get("general.name", ""), "tie_word_embeddings": tied}
    values["vocab_size"] = len(fields["tokenizer.ggml.tokens"])
    config = AutoConfig.for_model(family, **values)
    with private_part("no_init_weights")():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for name, to in names.items():
        tensor = _tensor(tensors[name])
        layer = name.split(".")[-2]
        if family == "llama" and layer in heads:  # halves of a head lie interleaved there
            tensor = tensor.unflatten(0, (heads[layer], -1, 2)).transpose(1, 2).flatten(0, 2)
        state[str(to)] = tensor
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    differ = sorted(state.keys() ^ model.state_dict().keys())
    if differ:
        raise ValueError(f"{differ[0]} is missing, or does not belong to a model of type {family}")
    model.load_state_dict(state)
    model.tie_weights()
    parts: dict[str, dict[str, Any]] = {}
    for part, names_of in private_part("GGUF_TOKENIZER_MAPPING").items():
        found = {ours: fields.get(f"tokenizer.{theirs}") for theirs, ours in names_of.items()}
        parts[part] = {name: value for name, value in found.items() if value is not None}
    backend, more = private_part("convert_gguf_tokenizer")(family, parts["tokenizer"])
    return model, PreTrainedTokenizerFast(
        tokenizer_object=backend, **parts["tokenizer_config"] | more
    )


def _name(name: str) -> str | None:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("blk."):
        _, number, layer = stem.split(".", 2)
        return f"model.layers.{number}.{_INSIDE[layer]}.{kind}" if layer in _INSIDE else None
    return f"{_OUTSIDE[stem]}.{kind}" if stem in _OUTSIDE else None


def _tensor(tensor: Any) -> Tensor:
    from gguf.quants import dequantize  # noqa: PLC0415 (optional)

    return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
