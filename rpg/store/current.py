"""What a sweep's current runs are."""

from __future__ import annotations

from rpg.store.layout import Layout
from rpg.store.run import RunFolder


def sweep_folders(layout: Layout, sweep: str) -> list[RunFolder]:
    """The run folders of the sweep as it stands in sweep.json (older runs of the same name are left out)."""
    return [layout.run(sweep, name) for name in layout.read_sweep(sweep)["runs"]]
