"""The Hugging Face folder a run on verl starts from."""

from __future__ import annotations

from pathlib import Path

from rpg.backends.training_process import Say
from rpg.config.backend import LocalRay, VerlBackend
from rpg.config.errors import ConfigError
from rpg.config.model import PretrainedModel
from rpg.config.run_spec import RunSpec
from rpg.errors import first_line
from rpg.store.checkpoints import link
from rpg.tasks.preparation import once


def initial_model(spec: RunSpec, home: Path, say: Say) -> Path:
    """A tiny model's warm start from the cache (made if it is missing), or a pretrained model's folder.

    Raises:
        ConfigError: model.path is neither a usable folder nor an id the hub knows.
        ModelError, DataError, StoreError: the warm start cannot be made.
    """
    # torch, which the launcher imports only here, after everything else has been checked
    from rpg.models.initial_policy import folder_with_chat_template, prepare_model  # noqa: PLC0415 (as above)
    from rpg.models.model_cache import pretrained_folder  # noqa: PLC0415 (as above)

    if not isinstance(spec.model, PretrainedModel) or spec.model.warm_start is not None:
        model = prepare_model(spec, home, say)
        assert model is not None  # as it is for every run that has a warm start
        return model
    folder = Path(pretrained_folder(spec.model.path, home, say))
    if folder.exists():
        for name in ("config.json", "tokenizer_config.json"):
            if not (folder / name).is_file():
                raise ConfigError(f"model.path: {folder} is no Hugging Face model: {name} is missing")
        return folder_with_chat_template(spec, home, folder.resolve())
    snapshot = _from_hub(spec.model)
    if not (isinstance(spec.backend, VerlBackend) and isinstance(spec.backend.ray, LocalRay)):
        snapshot = _for_all_nodes(snapshot, spec.model.path, home)
    return folder_with_chat_template(spec, home, snapshot)


def _for_all_nodes(snapshot: Path, name: str, home: Path) -> Path:
    """A snapshot in the hub's cache, which only this machine sees, in the data folder, which all nodes of a cluster see."""
    folder = home / "cache" / "hub" / f"{name.replace('/', '--')}-{snapshot.name}"
    with once(folder) as build:
        for path in sorted(snapshot.iterdir()) if build is not None else ():
            if build is not None and path.is_file():
                link(path.resolve(), build / path.name)
    return folder


def _from_hub(model: PretrainedModel) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (few runs need the hub)

    try:
        return Path(
            snapshot_download(
                model.path, revision=model.revision, ignore_patterns=["*.bin", "*.pth", "*.gguf"]
            )
        )
    except Exception as error:  # the hub's client raises many kinds
        raise ConfigError(
            f"model.path: {model.path!r} is neither a local folder nor a model on the hub ({first_line(error)})"
        ) from error
