"""Packages that are not installed, and the pip command for each. Works if only rpg itself is installed."""

import re
from importlib import metadata
from importlib.util import find_spec

from rpg import __version__
from rpg.errors import UserError

PACKAGE = "rpg-lab"
EVERYTHING = "all"  # the extra that contains all others except verl and vLLM
_DISTRIBUTIONS = {"vl_convert": "vl-convert-python", "yaml": "pyyaml"}


def version() -> str:
    """What `rpg --version` prints."""
    return f"{PACKAGE} {__version__}"


def install_command(module: str) -> str:
    """The command that installs the package of a module, e.g. `pip install 'rpg-lab[dashboard]'`."""
    distribution = _DISTRIBUTIONS.get(module, module).lower().replace("_", "-")
    try:
        requirements = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        requirements = []
    for line in requirements:
        match = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line)
        if match and match[1].lower() == distribution:
            return f"pip install '{PACKAGE}[{match[2]}]'"
    return f"pip install '{PACKAGE}[{EVERYTHING}]'"


def missing(module: str) -> str:
    """A sentence that says what is missing and how to install it."""
    return (
        f"{module} is not installed; install it with: {install_command(module)} "
        f"(or everything for one machine: pip install '{PACKAGE}[{EVERYTHING}]')"
    )


def explain(error: ModuleNotFoundError) -> str | None:
    """That sentence for a failed import; None if a missing package is not the reason."""
    top = (error.name or "").partition(".")[0]
    return missing(top) if top and top != "rpg" and find_spec(top) is None else None


def require(*modules: str) -> None:
    """Raises UserError if one of them is not installed; for modules that only a child process would import."""
    for module in modules:
        if find_spec(module) is None:
            raise UserError(missing(module))
