"""Whether two runs are the same run: one digest of all their numbers."""

from __future__ import annotations

import hashlib
import json

from rpg.store import RunFolder
from rpg.store.samples import read_eval

CLOCK = ("time", "attempt", "tokens_per_second")
"""Measured with a clock, so never equal; and so is every seconds_*."""


def digest(folder: RunFolder) -> str:
    """Of the metrics of every step, every graded sample and the last weights.

    Raises:
        StoreError, OSError: something of it is not there.
    """
    out = hashlib.sha256()
    for row in folder.read_metrics():
        kept = {k: v for k, v in row.items() if k not in CLOCK and not k.startswith("seconds_")}
        out.update(json.dumps(kept, sort_keys=True).encode())
    for benchmark in folder.benchmarks():
        for step in folder.eval_steps(benchmark):
            out.update(json.dumps(read_eval(folder, benchmark, step).to_pylist()).encode())
    last = folder.checkpoint(folder.read_manifest()["steps"])
    out.update((last / "model.safetensors").read_bytes())
    return out.hexdigest()[:16]
