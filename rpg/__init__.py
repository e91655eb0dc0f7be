"""rpg-lab: declarative experiments with KL-regularised policy gradients for language models.

`import rpg` is light: torch is imported when a function that needs it is first used.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "algorithms": "rpg.catalogue",
    "algorithm": "rpg.catalogue",
    "Algorithm": "rpg.catalogue",
    "AlgorithmError": "rpg.catalogue",
    "policy_loss": "rpg.losses.policy_loss",
    "LossOutput": "rpg.losses.policy_loss",
    "Counts": "rpg.losses.aggregation",
    "advantages": "rpg.losses.advantages",
    "audit": "rpg.auditing",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rpg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
