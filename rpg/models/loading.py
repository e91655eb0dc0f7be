"""The model a run starts from: made from its config and warm-started, or a pretrained one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging as transformers_logging

from rpg.config.model import PretrainedModel, TinyModel
from rpg.errors import UserError

transformers_logging.disable_progress_bar()  # our output is a log file


class ModelError(UserError):
    """A model that cannot be had; `str(error)` is one line that names the field and what it may be."""


def build_tiny(model: TinyModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, the same for the same seed; about 0.1 M parameters with the defaults."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.hidden_size // model.heads,
        max_position_embeddings=model.max_positions,
        tie_word_embeddings=True,
        initializer_range=0.05,  # 0.02 starts so flat at this width that some seeds never take off
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def load_pretrained(
    path: str | Path, revision: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (float32, in eval mode) and tokenizer from a local folder or a hub id.

    Raises:
        ModelError: neither a usable folder nor an id the hub knows.
    """
    local = Path(path).expanduser()
    source = str(local) if local.exists() else str(path)
    if local.exists() and not (local / "config.json").is_file():
        raise ModelError(f"model.path: {source} is no Hugging Face model: config.json is missing")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        model = AutoModelForCausalLM.from_pretrained(source, revision=revision, dtype=torch.float32)
    except Exception as error:  # the hub's client and the loaders raise many kinds
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        what = "cannot be loaded" if local.exists() else "is neither a local folder nor a model on the hub"
        raise ModelError(f"model.path: {source!r} {what} ({line})") from error
    if tokenizer.eos_token_id is None:
        raise ModelError(f"model.path: {source!r} has a tokenizer without an end-of-sequence token")
    return model.eval(), tokenizer


def load_tokenizer(path: str | Path, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id alone.

    Raises:
        ModelError: there is none that can be loaded.
    """
    try:
        local = Path(path).expanduser()
        return AutoTokenizer.from_pretrained(str(local) if local.exists() else str(path), revision=revision)
    except Exception as error:
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"model.path: {str(path)!r} has no tokenizer that can be loaded ({line})") from error


_SHAPE_FILES = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def shape_of(path: str | Path) -> tuple[bytes, ...] | None:
    """What two checkpoints share whose weights can take each other's place; None for what is no local folder."""
    folder = Path(path).expanduser()
    if not (folder / "config.json").is_file():
        return None
    files = [folder / name for name in _SHAPE_FILES]
    return tuple(file.read_bytes() if file.is_file() else b"" for file in files)


def put_weights(model: PreTrainedModel, path: str | Path) -> bool:
    """Copy the weights of a checkpoint of the same shape into a model that is there, tensor by tensor.

    False, with the model untouched, where the files hold other names or shapes than the model.

    Raises:
        ModelError: a file is damaged; the model is then of no use.
    """
    files = sorted(Path(path).expanduser().glob("*.safetensors"))
    own = model.state_dict()
    try:
        with ExitStack() as stack:
            opened = [stack.enter_context(safe_open(file, "pt")) for file in files]
            found = {name: file for file in opened for name in file.keys()}
            fits = all(
                name in own and list(own[name].shape) == file.get_slice(name).get_shape()
                for name, file in found.items()
            )
            if not fits or any(name not in found for name, _ in model.named_parameters()):
                return False
            with torch.no_grad():
                for name, file in found.items():
                    own[name].copy_(file.get_tensor(name))
    except (SafetensorError, OSError) as error:
        raise ModelError(f"model.path: {str(path)!r} cannot be loaded ({error})") from error
    return True


def bfloat16(model: TinyModel | PretrainedModel) -> bool:
    """Whether the arithmetic is bfloat16 (weights and optimizer stay float32)."""
    return isinstance(model, PretrainedModel) and model.dtype == "bfloat16"
