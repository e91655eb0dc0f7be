"""What we use of other packages that these do not promise to keep: each part, and where it was
found in the releases that were tested.

A release may move or drop one. So a part is imported where it is used, by `private_part`, and its
absence is one sentence.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rpg.errors import UserError


@dataclass(frozen=True)
class PrivatePart:
    """A name in a package, the modules that have had it (newest first), and what needs it."""

    package: str
    modules: tuple[str, ...]
    needed_for: str


_GGUF = "reading a GGUF file"
_SERVER = "a Prefect server of our own"

PRIVATE_PARTS = {
    "GGUF_CONFIG_MAPPING": PrivatePart("transformers", ("transformers.integrations.ggml",), _GGUF),
    "GGUF_TOKENIZER_MAPPING": PrivatePart(
        "transformers", ("transformers.integrations.gguf", "transformers.integrations.ggml"), _GGUF
    ),
    "convert_gguf_tokenizer": PrivatePart(
        "transformers", ("transformers.integrations.gguf", "transformers.integrations.ggml"), _GGUF
    ),
    "no_init_weights": PrivatePart("transformers", ("transformers.initialization",), _GGUF),
    "LinearAttentionCacheLayerMixin": PrivatePart(
        "transformers", ("transformers.cache_utils",), "sampling with a model of another family"
    ),
    "APILogWorker": PrivatePart("prefect", ("prefect.logging.handlers",), _SERVER),
    "create_app": PrivatePart("prefect", ("prefect.server.api.server",), _SERVER),
    "provide_database_interface": PrivatePart("prefect", ("prefect.server.database",), _SERVER),
    "run_block_auto_registration": PrivatePart(
        "prefect", ("prefect.server.models.block_registration",), _SERVER
    ),
    "disable_debug_mode": PrivatePart("altair", ("altair.utils.schemapi",), "quick charts"),
    "get_script_run_ctx": PrivatePart(
        "streamlit", ("streamlit.runtime.scriptrunner",), "the dashboard's pages"
    ),
}


class MissingPartError(UserError):
    """The installed release of a package has no longer what we use of it."""


def private_part(name: str) -> Any:
    """The part of this name. Raises MissingPartError: it is in none of the places that are
    known."""
    part = PRIVATE_PARTS[name]
    for module in part.modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise MissingPartError(
        f"{part.package} {_version(part.package)} has no {name} in {' or '.join(part.modules)}, "
        f"which {part.needed_for} needs; `rpg doctor` names the releases that were tested"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
