"""Evaluating checkpoints: what is owed is read from files, graded samples are written to them.

`owed` needs no torch, so conductors can ask; `evaluate_checkpoint` is imported when first used.
"""

from rpg.evaluation.owed import owed

__all__ = ["evaluate_checkpoint", "owed"]


def __getattr__(name: str):
    if name == "evaluate_checkpoint":
        from rpg.evaluation.evaluate import evaluate_checkpoint

        return evaluate_checkpoint
    raise AttributeError(f"module 'rpg.evaluation' has no attribute {name!r}")
