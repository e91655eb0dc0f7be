"""Evaluating checkpoints: pending evaluations are derived from files, graded samples are written to them.

`evaluate` (a model by hand) is imported when first used: it needs torch.
"""

__all__ = ["evaluate"]


def __getattr__(name: str):
    if name == "evaluate":
        from rpg.evaluation.standalone import evaluate

        return evaluate
    raise AttributeError(f"module 'rpg.evaluation' has no attribute {name!r}")
