"""The programs that a sweep starts: the one place where the flows name rooms that they do not
import."""

import os
from pathlib import Path

from rpg.system.fork_server import Program

PREPARE = "rpg.backends.local.prepare"
TRAINER = "rpg.backends.{}"
"""By the type of a run's back end."""
EVALUATOR = "rpg.evaluation"
TRACKING = "rpg.interop.tracking"
RAY_BRIDGE = "rpg.backends.ray_bridge"

# pyarrow imports pandas when it writes a table.
FORKED = {
    PREPARE: Program(PREPARE, "rpg-prepare"),
    "rpg.backends.local": Program(
        "rpg.backends.local.__main__",
        "rpg-training",
        ("rpg.backends.local.training_loop", "pyarrow.parquet"),
    ),
    "rpg.backends.verl": Program("rpg.backends.verl.__main__", "rpg-training"),
    EVALUATOR: Program(
        "rpg.evaluation.__main__",
        "rpg-evaluation",
        ("rpg.evaluation.evaluator", "rpg.evaluation.engines.local", "pyarrow.parquet", "pandas"),
    ),
}
"""Those that a fork server forks (one thread, on a CPU), with what they import late."""
_TAIL_BYTES = 8192


def last_line(log: Path) -> str:
    """The last line with text in a log, "" while there is none: a child's last word is its one-line
    error."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
