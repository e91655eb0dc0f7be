"""Evaluating checkpoints: what is owed is read from files, graded samples are written to them.

`owed` needs no torch, so conductors can ask; `evaluate` (a model by hand) is imported when first used.
"""

from rpg.evaluation.owed import owed

__all__ = ["evaluate", "owed"]


def __getattr__(name: str):
    if name == "evaluate":
        from rpg.evaluation.by_hand import evaluate

        return evaluate
    raise AttributeError(f"module 'rpg.evaluation' has no attribute {name!r}")
