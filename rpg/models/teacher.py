"""The teacher of a run whose KL refers to another model (`algorithm.reference: {type: model, path:
...}`)."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedTokenizerBase

from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.models.beside_base import load_model
from rpg.models.model_cache import pretrained_folder
from rpg.models.model_loading import ModelError, load_tokenizer
from rpg.models.policy import Policy

FIELD = "algorithm.reference.path"


def teacher_of(
    spec: RunSpec, student: PreTrainedTokenizerBase, home: Path, say: Callable[[str], None] = print
) -> Policy | None:
    """The teacher on the run's device, in the precision of its arithmetic; None if its loss reads
    none. Raises ModelError: it cannot be loaded, or its tokens are not the student's.
    """
    path = spec.algorithm.teacher_path
    if path is None:
        return None
    model, tokenizer = load_model(pretrained_folder(path, home, say), field=FIELD)
    _check_tokens(path, tokenizer, student, model.get_output_embeddings().weight.shape[0])
    model = model.requires_grad_(False).to(spec.backend.device)
    return Policy(model, tokenizer, bfloat16=bfloat16(spec.model))


def check_teacher(path: str, folder: Path, student: Path) -> None:
    """Raises ModelError: the tokens of the model in `folder` are not those of the one in `student`.
    Loads no weights."""
    size = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config().vocab_size
    _check_tokens(path, load_tokenizer(folder), load_tokenizer(student), size)


def _check_tokens(
    path: str, theirs: PreTrainedTokenizerBase, ours: PreTrainedTokenizerBase, probabilities: int
) -> None:
    """Raises ModelError if a token of the student means something else to the teacher, or nothing.

    The teacher scores the student's tokens, so only what a number stands for has to agree: not how
    text is split, nor chat templates.
    """
    theirs_of = theirs.get_vocab()
    ours_of = ours.get_vocab()
    student = repr(ours.name_or_path or "tiny")
    names = f"{FIELD}: {path!r} and the tokenizer of the model that is trained ({student})"
    if theirs_of != ours_of:
        differ = sorted({token for token, _ in theirs_of.items() ^ ours_of.items()})
        raise ModelError(
            f"{names} differ in {len(differ)} of their {len(theirs_of)} and {len(ours_of)} "
            f"tokens, e.g. {differ[0]!r}; "
            "a teacher needs the same tokens with the same numbers"
        )
    if theirs.eos_token_id != ours.eos_token_id:
        raise ModelError(
            f"{names} end with different tokens: {theirs.eos_token!r} and {ours.eos_token!r}"
        )
    if probabilities <= max(ours_of.values()):
        raise ModelError(f"{names}: the teacher gives probabilities of {probabilities} tokens only")


def weights_digest(model: nn.Module) -> str:
    """The first 16 digits of the SHA-256 of all parameters, with their names, types and shapes."""
    digest = hashlib.sha256()
    for name, value in sorted(model.named_parameters()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
