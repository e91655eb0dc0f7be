"""rpg-lab: declarative experiments with KL-regularised policy gradients for language models.

`import rpg` is light: torch is imported when a function that needs it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rpg import errors as _errors

if (
    TYPE_CHECKING
):  # what users' type checkers see; at run time __getattr__ imports what is asked for
    from rpg import testing as testing
    from rpg.auditing import audit as audit
    from rpg.catalogue import Algorithm as Algorithm
    from rpg.catalogue import AlgorithmError as AlgorithmError
    from rpg.catalogue import algorithm as algorithm
    from rpg.catalogue import algorithms as algorithms
    from rpg.interop.importing.recording import record as record
    from rpg.losses.advantages import advantages as advantages
    from rpg.losses.aggregation import Counts as Counts
    from rpg.losses.distribution_kl import distribution_kl as distribution_kl
    from rpg.losses.policy_loss import LossOutput as LossOutput
    from rpg.losses.policy_loss import policy_loss as policy_loss

__version__ = "0.3.0"

_HOMES = dict.fromkeys(
    ("algorithms", "algorithm", "Algorithm", "AlgorithmError"), "rpg.catalogue"
) | {
    "policy_loss": "rpg.losses.policy_loss",
    "LossOutput": "rpg.losses.policy_loss",
    "Counts": "rpg.losses.aggregation",
    "advantages": "rpg.losses.advantages",
    "distribution_kl": "rpg.losses.distribution_kl",
    "audit": "rpg.auditing",
    "record": "rpg.interop.importing.recording",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name == "testing":
        return _module("rpg.testing")
    if name in _HOMES:
        return getattr(_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rpg' has no attribute {name!r}")


def _module(name: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        why = f"rpg needs torch here; install it with: {_errors.install_command('losses')}"
        raise ModuleNotFoundError(why, name="torch") from None


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
