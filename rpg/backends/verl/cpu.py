"""The one place that loads what verl lacks on a machine without a GPU: a separate distribution, in
the folder verl-cpu.

Its parts are entry points, so that no module here names one of its modules; nothing of it is loaded
on a GPU.
"""

import os
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from rpg.errors import UserError

DISTRIBUTION = "rpg-lab-verl-cpu"
INSTALL = "pip install ./verl-cpu, in a checkout of rpg-lab"


def part(name: str) -> Any:
    """What the distribution offers as `name`: `job`, `install`, `engine` or `in_driver`
    (verl-cpu/pyproject.toml). Raises UserError: it is not installed.
    """
    try:
        entry_points = distribution(DISTRIBUTION).entry_points
    except PackageNotFoundError as error:
        raise UserError(
            f"backend.device: verl on a CPU needs {DISTRIBUTION}, which is not installed; "
            f"install it with: {INSTALL}"
        ) from error
    return entry_points.select(group="rpg.verl.cpu")[name].load()


def is_chosen() -> bool:
    """Whether this process of a verl job is to run on a CPU."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
