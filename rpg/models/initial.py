"""The initial policy of a run, made once per digest and kept under `<home>/cache/warm/<digest>/`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch

from rpg.config.identity import frozen_dump
from rpg.config.model import PretrainedModel
from rpg.config.run import RunSpec
from rpg.config.task import chat_of
from rpg.models.loading import ModelError, bfloat16, build_tiny, load_pretrained, load_tokenizer
from rpg.models.policy import Policy
from rpg.models.tokenizer import build_tokenizer, dress, dresses
from rpg.models.warmstart import WARM_START_VERSION, warm_start
from rpg.tasks import load_problems
from rpg.tasks.demonstrations import around, characters, demonstrations
from rpg.tasks.preparation import data_digest, once


def model_digest(spec: RunSpec) -> str:
    """Identity of a run's initial tiny model: what warm start and tokenizer depend on."""
    value = {
        "version": WARM_START_VERSION,
        "model": frozen_dump(spec.model, f"model.{spec.model.type}"),
        "data": data_digest(spec),
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def warm_folder(spec: RunSpec, home: Path) -> Path:
    """Where the initial tiny model of a run is, or will be."""
    return Path(home) / "cache" / "warm" / model_digest(spec)


def prepare_model(spec: RunSpec, home: Path, say: Callable[[str], None] = print) -> Path | None:
    """Make sure a run's tiny model is in the cache and return its folder; None for a pretrained model.

    Safe to call from several processes at once: one does the warm start, the others wait for it.

    Raises:
        ModelError, DataError, StoreError
    """
    if isinstance(spec.model, PretrainedModel):
        return None
    folder = warm_folder(spec, home)
    with once(folder) as build:
        if build is not None:
            policy = _make(spec, say)
            policy.model.save_pretrained(build)
            policy.tokenizer.save_pretrained(build)
    return folder


def dressed_folder(spec: RunSpec, home: Path, model: Path) -> Path:
    """A pretrained model with the chat template of the run's task, in the cache; the model itself where that is its own.

    Raises:
        ModelError, DataError, StoreError
    """
    if not dresses(chat_of(spec.task)):
        return model
    settings = json.dumps([str(model), _files(model), chat_of(spec.task).model_dump(mode="json")])
    folder = Path(home) / "cache" / "dressed" / hashlib.sha256(settings.encode()).hexdigest()[:16]
    with once(folder) as build:
        if build is not None:
            tokenizer = load_tokenizer(model)
            dress(tokenizer, chat_of(spec.task))
            tokenizer.save_pretrained(build)
            for path in model.iterdir():
                if path.is_file() and not (build / path.name).exists():
                    (build / path.name).symlink_to(path.resolve())
    return folder


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """What tells the contents of a local folder from later ones under the same path."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.is_file()]


def initial_policy(spec: RunSpec, home: Path, say: Callable[[str], None] = print) -> Policy:
    """The policy a run starts from, on its device.

    Raises:
        ModelError, DataError, StoreError
    """
    folder = prepare_model(spec, home, say)
    if folder is None:
        model, tokenizer = load_pretrained(spec.model.path, spec.model.revision)
        dress(tokenizer, chat_of(spec.task))
    else:
        try:
            model, tokenizer = load_pretrained(folder)
        except ModelError as error:
            say(f"warning: the cached warm start is damaged and is made again: {error}")
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                folder.replace(folder.with_name(f".{folder.name}.{os.getpid()}.tmp"))
            model, tokenizer = load_pretrained(prepare_model(spec, home, say))
    return Policy(model.to(spec.backend.device), tokenizer, bfloat16=bfloat16(spec.model))


def _make(spec: RunSpec, say: Callable[[str], None]) -> Policy:
    splits = load_problems(spec.task)
    warm = spec.model.warm_start
    if warm is None:
        tokenizer = build_tokenizer(characters(spec.task, splits))
        dress(tokenizer, chat_of(spec.task))
        return Policy(build_tiny(spec.model, tokenizer, seed=0), tokenizer)
    demos = demonstrations(spec.task, splits)
    tokenizer = build_tokenizer(demos.characters() | around(spec.task))
    dress(tokenizer, chat_of(spec.task))
    policy = Policy(build_tiny(spec.model, tokenizer, warm.seed), tokenizer)
    threads = torch.get_num_threads()
    say("warm start: begins (cached for later runs)")
    try:
        torch.set_num_threads(1)  # at this size more threads only wait for each other
        warm_start(policy, spec.task, demos, warm, say)
    finally:
        torch.set_num_threads(threads)
    return policy
