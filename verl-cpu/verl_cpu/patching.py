"""Attributes of modules replaced for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def replaced(module: ModuleType, **attributes: Any) -> Iterator[None]:
    """With these attributes instead of the module's own.

    Raises:
        KeyError: the module has no attribute of that name.
    """
    originals = {name: vars(module)[name] for name in attributes}
    vars(module).update(attributes)
    try:
        yield
    finally:
        vars(module).update(originals)
