"""Runs that were trained elsewhere, taken over as files: their numbers stand in the same pages and
tables.

`read(kind, path, ...)` makes steps and scores of a log, `take_over(...)` a run folder of those.
What such a run lacks (its samples, its settings) stays missing, and is said.
rpg.interop.importing.recording writes the same folder while another trainer runs (`rpg.record`),
rpg.interop.importing.merge takes over the runs of another data folder.
"""

from rpg.interop.importing.imported_runs import Training, own_benchmarks, take_over
from rpg.interop.importing.trainer_logs import LOG_FORMATS, Log, read

__all__ = ["LOG_FORMATS", "Log", "Training", "own_benchmarks", "read", "take_over"]
