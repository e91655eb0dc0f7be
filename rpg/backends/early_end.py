"""Whether a training has come as far as `training.until` asks: a function of the metrics of its
steps, so that a killed training ends where it would have ended."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rpg.config.training import Until
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import write_manifest

Row = Mapping[str, Any]


class End(NamedTuple):
    """Where a training ends before its last planned step, and why."""

    step: int
    reason: Literal["tokens", "seconds", "accuracy"]
    value: float
    """What had been reached by then."""


def end_of(until: Until, rows: Sequence[Row]) -> End | None:
    """The first step that reaches what `until` asks for. `rows` are the metrics of all steps."""
    if not (until.tokens or until.seconds or until.accuracy):
        return None
    seconds = 0.0
    accuracies: list[float] = []
    for row in rows:
        step = int(row["step"])
        seconds += row["seconds_step"]
        accuracies = [*accuracies, row["accuracy"]][-until.over :]
        accuracy = sum(accuracies) / len(accuracies)
        if until.accuracy and len(accuracies) == until.over and accuracy >= until.accuracy:
            return End(step, "accuracy", accuracy)
        if until.tokens and row["tokens"] >= until.tokens:
            return End(step, "tokens", row["tokens"])
        if until.seconds and seconds >= until.seconds:
            return End(step, "seconds", seconds)
    return None


def recorded_end(folder: RunFolder, until: Until) -> End | None:
    """The end that the run's files already tell of: it stands, even if its last steps have to be
    done again and take another time."""
    record = folder.read_manifest().get("ended")
    return End(**record) if record else end_of(until, folder.read_metrics())


def record_end(folder: RunFolder, end: End) -> None:
    """Write into the manifest why the run ends here. Its last checkpoint stands at the last planned
    step, where all runs are compared; evaluations in between are not owed."""
    manifest = folder.read_manifest()
    last = manifest["steps"]
    owed = [step for step in manifest["eval_steps"] if step <= end.step or step == last]
    write_manifest(folder, {**manifest, "eval_steps": owed, "ended": end._asdict()})
