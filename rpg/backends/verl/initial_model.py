"""The Hugging Face folder a run on verl starts from."""

from __future__ import annotations

from pathlib import Path

from rpg.backends.training_process import Say
from rpg.config.backend import LocalRay, VerlBackend
from rpg.config.errors import ConfigError
from rpg.config.model import PretrainedModel
from rpg.config.run_spec import RunSpec
from rpg.store.checkpoints import link
from rpg.tasks.preparation import once


def initial_model(spec: RunSpec, home: Path, say: Say) -> Path:
    """A tiny model's warm start from the cache (made where it is missing), or a pretrained model's folder.

    Raises:
        ConfigError: model.path is neither a usable folder nor an id the hub knows.
        ModelError, DataError, StoreError: the warm start cannot be made.
    """
    if not isinstance(spec.model, PretrainedModel) or spec.model.warm_start is not None:
        from rpg.models.initial_policy import prepare_model

        return prepare_model(spec, home, say)
    from rpg.models.model_cache import pretrained_folder

    folder = Path(pretrained_folder(spec.model.path, home, say))
    if not folder.exists():
        found = _from_hub(spec.model)
        here = isinstance(spec.backend, VerlBackend) and isinstance(spec.backend.ray, LocalRay)
        return _dressed(spec, home, found if here else _for_all_nodes(found, spec.model.path, home))
    missing = [name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"model.path: {folder} is no Hugging Face model: {missing[0]} is missing")
    return _dressed(spec, home, folder.resolve())


def _for_all_nodes(snapshot: Path, name: str, home: Path) -> Path:
    """A snapshot of the hub's cache, which is this machine's own, in the data folder, which all nodes of a cluster see."""
    folder = Path(home) / "cache" / "hub" / f"{name.replace('/', '--')}-{snapshot.name}"
    with once(folder) as build:
        for path in sorted(snapshot.iterdir()) if build is not None else ():
            if path.is_file():
                link(path.resolve(), build / path.name)
    return folder


def _dressed(spec: RunSpec, home: Path, folder: Path) -> Path:
    """The model with the task's chat template, where that is not the tokenizer's own."""
    from rpg.models.initial_policy import folder_with_chat_template

    return folder_with_chat_template(spec, home, folder)


def _from_hub(model: PretrainedModel) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                model.path, revision=model.revision, ignore_patterns=["*.bin", "*.pth", "*.gguf"]
            )
        )
    except Exception as error:  # the hub's client raises many kinds
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(
            f"model.path: {model.path!r} is neither a local folder nor a model on the hub ({line})"
        ) from error
