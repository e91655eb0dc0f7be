"""Packages that are not installed, and the pip command for each. Works if only rpg itself is
installed."""

import re
from importlib.util import find_spec

from rpg import __version__
from rpg.errors import PACKAGE, UserError, install_command, requirements

EVERYTHING = "all"  # the extra that contains all others except verl and vLLM
_DISTRIBUTIONS = {"vl_convert": "vl-convert-python", "yaml": "pyyaml"}


def version() -> str:
    """What `rpg --version` prints."""
    return f"{PACKAGE} {__version__}"


def command_for(module: str) -> str:
    """The command that installs the package of a module, with the others of its extra."""
    distribution = _DISTRIBUTIONS.get(module, module).lower().replace("_", "-")
    for extra, asked in requirements().items():
        if any(re.split(r"[^\w.-]", text)[0].lower() == distribution for text in asked):
            return install_command(extra)
    return install_command(EVERYTHING)


def missing(module: str) -> str:
    """A sentence that says what is missing and how to install it."""
    command = command_for(module)
    everything = install_command("", EVERYTHING)
    also = f" (or everything for one machine: {everything})" if everything != command else ""
    return f"{module} is not installed; install it with: {command}{also}"


def explain(error: ModuleNotFoundError) -> str | None:
    """That sentence for a failed import; None if a missing package is not the reason."""
    top = (error.name or "").partition(".")[0]
    return missing(top) if top and top != "rpg" and find_spec(top) is None else None


def require(*modules: str) -> None:
    """Raises UserError if one of them is not installed; for modules that only a child process would
    import."""
    for module in modules:
        if find_spec(module) is None:
            raise UserError(missing(module))
