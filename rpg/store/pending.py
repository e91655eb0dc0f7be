"""The evaluations that a run still needs, derived from its files."""

from __future__ import annotations

from rpg.store.run import RunFolder


def pending_evaluations(folder: RunFolder) -> list[tuple[str, int]]:
    """(benchmark, step) pairs that the manifest promises and whose samples are not there, steps ascending.

    Of checkpoints that were removed on purpose, after they were evaluated, nothing more is owed.

    Raises:
        StoreError: no readable manifest.
    """
    manifest = folder.read_manifest()
    present = {benchmark: set(folder.eval_steps(benchmark)) for benchmark in manifest["benchmarks"]}
    removed = folder.removed_steps() - set(folder.checkpoint_steps())
    steps = [step for step in manifest["eval_steps"] if step not in removed]
    return [(b, step) for step in steps for b in manifest["benchmarks"] if step not in present[b]]
