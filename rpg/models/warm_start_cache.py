"""Which warm-started model a run begins with, by digest; without torch, so that asking whether it is there costs nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from rpg.config.identity import frozen_dump
from rpg.config.model import PretrainedModel
from rpg.config.pretrained import KNOWN_MODELS, located
from rpg.config.run_spec import RunSpec
from rpg.tasks.preparation import data_digest

WARM_START_VERSION = 1
"""Part of the cache's digest: raise it when the same settings would give another model."""


def model_digest(spec: RunSpec) -> str:
    """Identity of a run's warm-started model: what warm start and tokenizer depend on."""
    model = frozen_dump(spec.model, f"model.{spec.model.type}")
    model.pop("lora", None)  # adapters come after it
    value = {
        "version": WARM_START_VERSION,
        "model": model,
        "data": data_digest(spec),
    }
    if isinstance(spec.model, PretrainedModel):
        value["files"] = local_files(Path(spec.model.path).expanduser())
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def local_files(folder: Path) -> list[tuple[str, int, int]]:
    """What tells the contents of a local folder from later ones under the same path; [] for the name of a model."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.is_file()]


def warm_folder(spec: RunSpec, home: Path) -> Path:
    """Where the warm-started model of a run is, or will be."""
    return Path(home) / "cache" / "warm" / model_digest(spec)


def lengths_checked(spec: RunSpec, home: Path) -> Path:
    """The mark that a run's prompts are known to fit its limit; they are counted again when any of these changes."""
    parts = [data_digest(spec), spec.model.model_dump_json(), spec.rollout.max_prompt_tokens]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return Path(home) / "cache" / "lengths" / digest


def is_prepared(spec: RunSpec, home: Path) -> bool:
    """Whether nothing has to be made or fetched for a run's initial model; a model of the hub is its client's matter."""
    if isinstance(spec.model, PretrainedModel) and spec.model.warm_start is None:
        return spec.model.path not in KNOWN_MODELS or located(spec.model.path, home) is not None
    return warm_folder(spec, home).is_dir()
