"""Evaluating checkpoints: pending evaluations are derived from files, graded samples are written to
them.

`evaluate`, for a model outside of a sweep, is imported when it is first used.
"""

from typing import Any

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        from rpg.evaluation.standalone import evaluate  # noqa: PLC0415 (needs torch)

        return evaluate
    raise AttributeError(f"module 'rpg.evaluation' has no attribute {name!r}")
