"""Checkpoints of adapters that were trained beside a base of 4 bits: the adapters alone, and what
their base is.

    step-000040/
        config.json, tokenizer.json, ...   no weights
        adapters/                          as peft writes them
        adapters/base.json                 the base: where it is, how it was packed, its digest

What is trained, sampled, saved and evaluated is one base in 4 bits with these adapters. So a
checkpoint has no merged weights: they would be as large as the whole model in float32.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rpg.models.four_bit import BLOCK, four_bit_layers, pack_base
from rpg.models.lora import FOLDER, adapt_as, merge, put_adapters
from rpg.models.model_loading import ModelError, load_pretrained, load_tokenizer

RECORD = "base.json"


def write_base(model: PreTrainedModel, folder: Path) -> None:
    """Record the packed base of a model beside its adapters, which are in `folder`."""
    record = {
        "model": base_of(model),
        "revision": getattr(model.config, "_commit_hash", None),
        "quantized": "nf4",
        "block": BLOCK,
        "sha256": packed_digest(model),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")


def base_of(model: PreTrainedModel) -> str:
    """Where the model was loaded from: a folder, as an absolute path, or its name on the hub."""
    name = str(model.name_or_path)
    folder = Path(name).expanduser()
    return str(folder.resolve()) if folder.is_dir() else name


def packed_digest(model: nn.Module) -> str:
    """SHA-256 of the packed weights, with their names."""
    digest = hashlib.sha256()
    for name, layer in four_bit_layers(model):
        digest.update(name.encode())
        for part in layer.packed:
            digest.update(part.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def is_beside_base(checkpoint: str | Path) -> bool:
    """Whether a folder is a checkpoint of adapters alone, whose base was packed in 4 bits."""
    folder = Path(checkpoint).expanduser()
    has_weights = any(folder.glob("*.safetensors"))  # as some older ones have, merged
    return (folder / FOLDER / RECORD).is_file() and not has_weights


def load_beside_base(
    checkpoint: str | Path,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A checkpoint's adapters beside their base in 4 bits, as in training (in eval mode, without
    gradients), and its tokenizer. Raises ModelError: the base is not there, or is not the one
    beside which they were trained.
    """
    folder = Path(checkpoint).expanduser()
    file = folder / FOLDER / RECORD
    record: dict[str, Any] = json.loads(file.read_text())
    model, _ = load_pretrained(record["model"], record["revision"], field=f"{file}: model")
    adapt_as(model, folder)
    pack_base(model)
    if packed_digest(model) != record["sha256"]:
        raise ModelError(
            f"{file}: {record['model']} has other weights than when these adapters were trained "
            f"beside it (SHA-256 {record['sha256'][:16]}... once they are packed)"
        )
    put_adapters(model, folder)
    return model.requires_grad_(False).eval(), load_tokenizer(folder)


def load_model(
    path: str | Path, revision: str | None = None, field: str = "model.path"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """As :func:`load_pretrained`, and also a checkpoint of adapters alone: merged, in float32.
    Raises ModelError."""
    if not is_beside_base(path):
        return load_pretrained(path, revision, field)
    model, tokenizer = load_beside_base(path)
    merge(model)
    return model, tokenizer
