"""Where the warm-started model of a run is cached, by digest. Imports no torch, so that asking for
it is cheap."""

import hashlib
import json
from pathlib import Path

from rpg.config.identity import frozen_dump
from rpg.config.model import KNOWN_MODELS, PretrainedModel, located
from rpg.config.run_spec import RunSpec
from rpg.tasks.preparation import data_digest, older_data_digests

WARM_START_VERSION = 1
"""Part of the digest: increment it when the same settings would give another model."""


def model_digest(spec: RunSpec) -> str:
    """Identity of a run's warm-started model: everything that the warm start and the tokenizer
    depend on."""
    return _digest(spec, data_digest(spec))


def older_model_digests(spec: RunSpec) -> list[str]:
    """What older versions called the same model."""
    return [_digest(spec, data) for data in older_data_digests(spec)]


def _digest(spec: RunSpec, data: str) -> str:
    model = frozen_dump(spec.model, f"model.{spec.model.type}")
    model.pop("lora", None)  # adapters are added afterwards
    value = {"version": WARM_START_VERSION, "model": model, "data": data}
    if isinstance(spec.model, PretrainedModel):
        value["files"] = local_files(Path(spec.model.path).expanduser())
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def local_files(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the files in a local folder, to notice when it changes; [] for the
    name of a model."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.is_file()]


def warm_folder(spec: RunSpec, home: Path) -> Path:
    """Where the warm-started model of a run is, or will be."""
    return Path(home) / "cache" / "warm" / model_digest(spec)


def lengths_checked(spec: RunSpec, home: Path) -> Path:
    """The file whose existence says that a run's prompts fit their limit; its name depends on all
    that this depends on."""
    limits = spec.rollout.max_prompt_tokens, spec.rollout.max_response_tokens
    parts = [data_digest(spec), spec.model.model_dump_json(), limits]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return Path(home) / "cache" / "lengths" / digest


def is_prepared(spec: RunSpec, home: Path) -> bool:
    """Whether a run's initial model needs no preparation; the cache of the Hugging Face hub is left
    to its client."""
    if isinstance(spec.model, PretrainedModel) and spec.model.warm_start is None:
        return spec.model.path not in KNOWN_MODELS or located(spec.model.path, home) is not None
    return warm_folder(spec, home).is_dir()
