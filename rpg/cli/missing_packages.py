"""What is not installed, and the pip command that brings it. Works where nothing but rpg itself is installed."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec

from rpg import __version__
from rpg.errors import UserError

PACKAGE = "rpg-lab"
EVERYTHING = "all"
"""The extra that has the others in it, but verl and vLLM."""
_DISTRIBUTIONS = {"math_verify": "math-verify", "vl_convert": "vl-convert-python", "yaml": "pyyaml"}


def version() -> str:
    """What `rpg --version` prints."""
    return f"{PACKAGE} {__version__}"


def install_command(module: str) -> str:
    """How to install what a module of somebody else's comes from, e.g. `pip install 'rpg-lab[dashboard]'`."""
    wanted = _DISTRIBUTIONS.get(module, module).lower()
    try:
        requirements = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        requirements = []
    for line in requirements:
        found = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line)
        if found and found[1].lower() == wanted:
            return f"pip install '{PACKAGE}[{found[2]}]'"
    return f"pip install '{PACKAGE}[{EVERYTHING}]'"


def missing(module: str) -> str:
    """One sentence: what is missing, and what to do."""
    return (
        f"{module} is not installed; install it with: {install_command(module)} "
        f"(or everything for one machine: pip install '{PACKAGE}[{EVERYTHING}]')"
    )


def explain(error: ModuleNotFoundError) -> str | None:
    """The sentence for an import that failed because a package is not installed; None when that is not why."""
    top = (error.name or "").partition(".")[0]
    return missing(top) if top and top != "rpg" and find_spec(top) is None else None


def require(*modules: str) -> None:
    """Raises: UserError: one of them is not installed; for what only a child process would import."""
    for module in modules:
        if find_spec(module) is None:
            raise UserError(missing(module))
