"""The parts, and how one of them is dumped by the process that has the revision's packages."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

PARTS = {
    "config": "run ids and the resolved form of every shipped configuration",
    "messages": "what is said about settings that are wrong",
    "losses": "value, slope and metrics of every algorithm on seeded batches, and advantages",
    "printed": "help of every command, algorithms, published tables, data",
    "render": "how runs start on verl and on clusters: overrides, manifests, scripts",
    "lab": "database, report, figures and commands on invented results",
    "grading": "verdicts of the whole exam",
    "training": "metrics, samples and weights of two small sweeps",
    "study": "a small study: trials, record and report",
    "audit": "what each loss optimises, by enumeration",
}


def dump_part(part: str, folder: Path) -> None:
    """Write the files of a part into a new folder."""
    folder.mkdir(parents=True)
    import_module(f"benchmarks.golden.parts.{part}_part").dump(folder.resolve())
