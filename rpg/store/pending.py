"""The evaluations that a run still needs, derived from its files."""

from __future__ import annotations

from rpg.store.run import RunFolder


def pending_evaluations(folder: RunFolder) -> list[tuple[str, int]]:
    """(benchmark, step) pairs that the manifest promises and whose samples are not there, steps ascending.

    Raises:
        StoreError: no readable manifest.
    """
    manifest = folder.read_manifest()
    present = {benchmark: set(folder.eval_steps(benchmark)) for benchmark in manifest["benchmarks"]}
    return [
        (b, step) for step in manifest["eval_steps"] for b in manifest["benchmarks"] if step not in present[b]
    ]
