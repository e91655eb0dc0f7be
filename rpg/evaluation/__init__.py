"""Evaluating checkpoints: from weights to graded samples.

In: run folders with checkpoints, or a model's folder. Out: one Parquet file per checkpoint and
benchmark, one row per sample. What is owed is derived from the files, never from memory.
`evaluate`, for a model outside of a sweep, is imported when it is first used. Read first:
evaluator.py.
"""

from typing import Any

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        from rpg.evaluation.standalone import evaluate  # noqa: PLC0415 (needs torch)

        return evaluate
    raise AttributeError(f"module 'rpg.evaluation' has no attribute {name!r}")
