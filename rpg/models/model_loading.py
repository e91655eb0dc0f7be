"""Loading models and tokenizers: tiny ones from a config, pretrained ones from folders, the hub and
GGUF files."""

import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging as transformers_logging

from rpg.config.model import TinyModel
from rpg.errors import UserError, first_line, install_command
from rpg.models import gguf_files
from rpg.system.private_parts import MissingPartError

transformers_logging.disable_progress_bar()  # our output is a log file


class ModelError(UserError):
    """A model that cannot be loaded; `str(error)` is one line that names the field and what it
    accepts."""


def build_tiny(model: TinyModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, the same for the same seed; about 0.1 M parameters with the
    defaults."""
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
    path: str | Path, revision: str | None = None, field: str = "model.path"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (float32, in eval mode) and tokenizer from a local folder or a hub id. Raises
    ModelError: neither a usable folder nor an id the hub knows; it names `field`.
    """
    local = Path(path).expanduser()
    source = str(local) if local.exists() else str(path)
    if local.exists() and not (local / "config.json").is_file():
        raise ModelError(f"{field}: {source} is not a Hugging Face model: config.json is missing")
    try:
        how = {"revision": revision, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(source, **how)
        model = complete(AutoModelForCausalLM, source, **how)
    except Exception as error:  # the hub's client and the loaders raise many kinds
        there = local.exists() or isinstance(error, ModelError)
        problem = (
            "cannot be loaded" if there else "is neither a local folder nor a model on the hub"
        )
        raise ModelError(f"{field}: {source!r} {problem} ({first_line(error)})") from error
    # Without any file of a tokenizer, transformers invents one of special tokens only.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        why = (
            f"{field}: {source!r} has no tokenizer; save one there: tokenizer.save_pretrained(...)"
        )
        raise ModelError(why)
    if tokenizer.eos_token_id is None:
        raise ModelError(f"{field}: {source!r} has a tokenizer without an end-of-sequence token")
    try:
        model.generation_config.validate(strict=True)
    except ValueError:  # transformers reads such settings, and refuses to save them
        model.generation_config = GenerationConfig(
            eos_token_id=model.generation_config.eos_token_id
        )
    return model.eval(), tokenizer


def complete(kind: Any, source: str | Path, **how: Any) -> Any:
    """A model (float32) of an Auto class of transformers. Raises ModelError: some of its weights
    are in none of its files, for which transformers would draw random ones.
    """
    model, report = kind.from_pretrained(
        source, dtype=torch.float32, output_loading_info=True, **how
    )
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(f"{len(missing)} of its weights are missing, e.g. {missing[0]}")
    return model


def load_tokenizer(
    path: str | Path, revision: str | None = None, offline: bool = False
) -> PreTrainedTokenizerBase:
    """Only the tokenizer of a folder or hub id; `offline`: of the hub, what is in its local cache.
    Raises ModelError: it cannot be loaded.
    """
    try:
        local = Path(path).expanduser()
        source = str(local) if local.exists() else str(path)
        how = {"revision": revision, "local_files_only": offline, "trust_remote_code": False}
        return AutoTokenizer.from_pretrained(source, **how)
    except Exception as error:
        why = f"model.path: the tokenizer of {str(path)!r} cannot be loaded ({first_line(error)})"
        raise ModelError(why) from error


def load_gguf(
    file: Path, pad_token: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (float32, de-quantized) and tokenizer from a GGUF file, with the special tokens that
    the file declares.

    transformers guesses these from the texts of tokens and takes `<|im_start|>` for an end token;
    the file declares them by number. `pad_token` replaces the one of the file. Raises ModelError:
    not a GGUF file, an architecture that transformers cannot read, or the package `gguf` is
    missing.
    """
    if importlib.util.find_spec("gguf") is None:
        why = (
            "reading a GGUF file needs the package gguf; install it with: "
            f"{install_command('models')}"
        )
        raise ModelError(why)
    try:
        fields, tensors = gguf_files.read(file)
        model, tokenizer = gguf_files.load(fields, tensors) or _by_transformers(file)
    except MissingPartError:
        raise
    except Exception as error:  # the readers raise many kinds
        raise ModelError(f"{file}: cannot be read as a GGUF file ({first_line(error)})") from error
    special = {
        name: fields[key]
        for name in ("bos", "eos", "padding")
        if (key := f"tokenizer.ggml.{name}_token_id") in fields
    }
    if "eos" not in special:
        raise ModelError(f"{file}: declares no end-of-sequence token (tokenizer.ggml.eos_token_id)")
    pad = special.get("padding", special["eos"])
    if pad_token is not None:
        pad = tokenizer.convert_tokens_to_ids(pad_token)
    bos = special.get("bos")
    tokenizer.eos_token, tokenizer.pad_token = tokenizer.convert_ids_to_tokens(
        [special["eos"], pad]
    )
    if bos is not None:
        tokenizer.bos_token = tokenizer.convert_ids_to_tokens(bos)
    tokenizer.padding_side = "left"
    tokenizer.clean_up_tokenization_spaces = False
    for config in (model.config, model.generation_config or GenerationConfig()):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = bos, special["eos"], pad
    return model.eval(), tokenizer


def _by_transformers(file: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    how = {"gguf_file": file.name, "trust_remote_code": False}
    model = complete(AutoModelForCausalLM, file.parent, **how)
    return model, AutoTokenizer.from_pretrained(file.parent, **how)


def shape_of(path: str | Path) -> tuple[bytes, ...] | None:
    """The config and tokenizer files of a checkpoint, and how its base is kept: if they are equal,
    its weights can replace those of another one. None if `path` is not a local folder.
    """
    folder = Path(path).expanduser()
    if not (folder / "config.json").is_file():
        return None
    names = (
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "adapters/adapter_config.json",
        "adapters/base.json",
    )
    files = [folder / name for name in names]
    return tuple(file.read_bytes() if file.is_file() else b"" for file in files)


def put_weights(model: PreTrainedModel, path: str | Path) -> bool:
    """Copy the weights of a checkpoint with the same shapes into a loaded model, tensor by tensor.

    Returns False, and leaves the model alone, if names or shapes differ. Raises ModelError: a file
    is damaged; the model is then unusable.
    """
    files = sorted(Path(path).expanduser().glob("*.safetensors"))
    state = {
        name.replace(".base_layer.", "."): value
        for name, value in model.state_dict().items()
        if ".lora_" not in name
    }
    needed = {name.replace(".base_layer.", ".") for name, _ in model.named_parameters()} & set(
        state
    )
    try:
        with ExitStack() as stack:
            opened = [stack.enter_context(safe_open(file, "pt")) for file in files]
            files_of = {name: file for file in opened for name in file.keys()}  # noqa: SIM118 (not iterable)
            fits = all(
                name in state and list(state[name].shape) == file.get_slice(name).get_shape()
                for name, file in files_of.items()
            )
            if not fits or not needed <= files_of.keys():
                return False
            with torch.no_grad():
                for name, file in files_of.items():
                    state[name].copy_(file.get_tensor(name))
    except (SafetensorError, OSError) as error:
        raise ModelError(f"model.path: {str(path)!r} cannot be loaded ({error})") from error
    return True


def halve(folder: Path) -> None:
    """Convert the weights in a checkpoint's folder, and the type in its config, to bfloat16.

    Files are replaced, never written in place: they may be links. Raises OSError, SafetensorError:
    a file cannot be read or written.
    """
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: half(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 (as above)
        aside = path.with_name(f"{path.name}.half")
        save_file(tensors, aside, metadata=metadata)
        aside.replace(path)
    set_dtype(folder, "bfloat16")


def set_dtype(folder: Path, dtype: str) -> None:
    """Write the type of a checkpoint's weights into its config, which is replaced, never written in
    place. Raises OSError."""
    config = json.loads((folder / "config.json").read_text())
    aside = folder / "config.json.new"
    name = "torch_dtype" if "torch_dtype" in config else "dtype"
    aside.write_text(json.dumps(config | {name: dtype}, indent=2) + "\n")
    aside.replace(folder / "config.json")


def half(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in bfloat16, if it is a floating-point tensor."""
    return tensor.bfloat16() if tensor.is_floating_point() else tensor
