"""Whether a training has come as far as `training.until` asks, or has no prompt left: a function of
the metrics of its steps, so that a killed training ends where it would have ended."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rpg.config.training import Until
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import write_manifest

Row = Mapping[str, Any]


class End(NamedTuple):
    """Where a training ends before its last planned step, and why."""

    step: int
    reason: Literal["tokens", "seconds", "accuracy", "solved"]
    value: float
    """What had been reached by then; of prompts that are solved, how many are left."""

    def described(self) -> str:
        if self.reason == "solved":
            return "all prompts are solved (rollout.drop_solved)"
        return f"{self.reason} {self.value:.6g} reached"


class Watch:
    """Judges a training by `until`, one step after the other."""

    def __init__(self, until: Until):
        self.until = until
        self._seconds = 0.0
        self._accuracies = deque[float](maxlen=until.over)

    def after(self, row: Row) -> End | None:
        """The end, if the step of these metrics reaches it; steps are told in order."""
        step = int(row["step"])
        if row.get("prompts_left") == 0:
            return End(step, "solved", 0)
        until = self.until
        if not (until.tokens or until.seconds or until.accuracy):
            return None
        self._seconds += row["seconds_step"]
        self._accuracies.append(row["accuracy"])
        accuracy = sum(self._accuracies) / len(self._accuracies)
        if until.accuracy and len(self._accuracies) == until.over and accuracy >= until.accuracy:
            return End(step, "accuracy", accuracy)
        if until.tokens and row["tokens"] >= until.tokens:
            return End(step, "tokens", row["tokens"])
        if until.seconds and self._seconds >= until.seconds:
            return End(step, "seconds", self._seconds)
        return None


def end_of(until: Until, rows: Sequence[Row]) -> End | None:
    """The first step that reaches what `until` asks for. `rows` are the metrics of all steps."""
    watch = Watch(until)
    ends = (watch.after(row) for row in rows)
    return next((end for end in ends if end is not None), None)


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
