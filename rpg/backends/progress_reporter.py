"""Progress within a training step, for the run's folder and its log.

The training only sets a few attributes. Once a second a thread reads them, writes the file and,
when a step takes long, a line to the log. So it costs a fast training nothing, and no number
depends on it.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rpg.store.live_status import WRITE_SECONDS, clear_progress, progress_line, write_progress

SAY_SECONDS = 9.0
"""How often a step that takes longer than this gets a line in the log."""

_SHOWN = {
    "reward": "reward {:+.3f}",
    "accuracy": "accuracy {:.3f}",
    "entropy": "entropy {:.3f}",
    "grad_norm": "grad {:.2f}",
    "response_length": "tokens {:.1f}",
    "validation_accuracy": "validation {:.3f}",
    "seconds_step": "{:.2f} s",
}


def step_line(step: int, steps: int, metrics: Mapping[str, float]) -> str:
    """What a run's log says of a finished step."""
    parts = [text.format(metrics[name]) for name, text in _SHOWN.items() if name in metrics]
    idle = "critic only" if "value_loss" in metrics else "no group to learn from"
    parts += [] if "grad_norm" in metrics else [idle]
    return "  ".join([f"{time.strftime('%H:%M:%S')} step {step}/{steps}", *parts])


class Progress:
    """What the training is doing now. Set by the training, read by :class:`Reporter`.

    Attributes:
        done, of, what: e.g. 12 of 64 responses.
        share: finished part of the phase in [0, 1], from which the remaining time is estimated; 0
            if unknown.
        tokens: sampled or trained on so far in this phase.
        note: a remark about this step, e.g. why it samples further prompts.
    """

    def __init__(self) -> None:
        self.step = self.steps = 0
        self.last_step_seconds: float | None = None
        self._began = time.monotonic()
        self.begin("", 0, "")
        self.note = ""

    def begin_step(self, step: int, steps: int) -> None:
        """A new step; the duration of the previous one predicts its own."""
        if self.step == step - 1 and self.step:
            self.last_step_seconds = time.monotonic() - self._began
        self.step = step
        self.steps = steps
        self.note = ""
        self._began = time.monotonic()
        self.begin("", 0, "")

    def begin(self, phase: str, of: int, what: str) -> None:
        """A new phase of the step."""
        self.phase_began = time.monotonic()
        self.done = 0
        self.of = of
        self.what = what
        self.share = 0.0
        self.tokens = 0
        self.phase = phase

    def record(self) -> dict[str, Any] | None:
        """The progress as it stands in the file; None between steps."""
        if not self.phase:
            return None
        now = time.monotonic()
        seconds = now - self.phase_began
        share = self.share
        left = None if not 0 < share < 1 else seconds * (1 - share) / share
        if self.last_step_seconds is not None:
            left = max(left or 0.0, self.last_step_seconds - (now - self._began))
        return {
            "step": self.step,
            "steps": self.steps,
            "phase": self.phase,
            "done": self.done,
            "of": self.of,
            "what": self.what,
            "tokens": self.tokens,
            "note": self.note,
            "seconds": now - self._began,
            "tokens_per_second": self.tokens / seconds if seconds > 0 and self.tokens else None,
            "left": left,
        }


class Reporter:
    """Writes a :class:`Progress` to its file and the log from a separate thread, while a block
    runs."""

    def __init__(self, progress: Progress, path: Path, say: Callable[[str], None]) -> None:
        self.progress = progress
        self.path = path
        self.say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self.progress

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        clear_progress(self.path)

    def _work(self) -> None:
        logged = time.monotonic()
        step = 0
        while not self._over.wait(WRITE_SECONDS):
            record = self.progress.record()
            if record is None or record["seconds"] < WRITE_SECONDS:
                continue
            write_progress(self.path, record)
            if record["step"] != step:  # the line of the step before was the last one in the log
                step = record["step"]
                logged = time.monotonic() - record["seconds"]
            if time.monotonic() - logged > SAY_SECONDS:
                logged = time.monotonic()
                self.say(f"{time.strftime('%H:%M:%S')} {progress_line(record)}")
