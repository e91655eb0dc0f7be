"""Where a training is within its step, while it is: for the run's folder and its log.

The training only sets a few attributes; a thread looks at them once a second, writes the file and, where a step takes
long, a line of the log. So it costs a fast training nothing, and no number depends on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rpg.store.step_progress import WRITE_SECONDS, clear_progress, progress_line, write_progress

SAY_SECONDS = 9.0
"""A step that takes longer gets a line in the log this often."""


class Progress:
    """What is being done now. Set by the training, read by :class:`Reporter`.

    Attributes:
        done, of, what: e.g. 12 of 64 responses.
        share: how much of the phase is over, in [0, 1], for the time that is left; 0 where nothing is known.
        tokens: sampled or trained on so far in this phase.
        note: what else there is to say about this step, e.g. why it samples further prompts.
    """

    def __init__(self) -> None:
        self.step = self.steps = 0
        self.last_step_seconds: float | None = None
        self._began = time.monotonic()
        self.begin("", 0, "")
        self.note = ""

    def begin_step(self, step: int, steps: int) -> None:
        """A new step; the time of the one before says how long it may take."""
        if self.step == step - 1 and self.step:
            self.last_step_seconds = time.monotonic() - self._began
        self.step, self.steps, self.note = step, steps, ""
        self._began = time.monotonic()
        self.begin("", 0, "")

    def begin(self, phase: str, of: int, what: str) -> None:
        """A new phase of the step."""
        self.phase_began = time.monotonic()
        self.done, self.of, self.what, self.share, self.tokens = 0, of, what, 0.0, 0
        self.phase = phase

    def record(self) -> dict[str, Any] | None:
        """For the file; None between steps."""
        if not self.phase:
            return None
        now = time.monotonic()
        seconds, share = now - self.phase_began, self.share
        left = None if not 0 < share < 1 else seconds * (1 - share) / share
        if self.last_step_seconds is not None:
            left = max(left or 0.0, self.last_step_seconds - (now - self._began))
        return {
            "step": self.step, "steps": self.steps, "phase": self.phase, "done": self.done, "of": self.of,
            "what": self.what, "tokens": self.tokens, "note": self.note, "seconds": now - self._began,
            "tokens_per_second": self.tokens / seconds if seconds > 0 and self.tokens else None, "left": left,
        }  # fmt: skip

    @property
    def step_seconds(self) -> float:
        """How long the step takes already."""
        return time.monotonic() - self._began


class Reporter:
    """Writes a :class:`Progress` down while a block runs, from a thread of its own."""

    def __init__(self, progress: Progress, path: Path, say: Callable[[str], None]) -> None:
        self.progress, self.path, self.say = progress, path, say
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
        said = time.monotonic()
        step = 0
        while not self._over.wait(WRITE_SECONDS):
            record = self.progress.record()
            if record is None or self.progress.step_seconds < WRITE_SECONDS:
                continue
            write_progress(self.path, record)
            if record["step"] != step:  # the line of the step before was the last one in the log
                step, said = record["step"], time.monotonic() - self.progress.step_seconds
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                self.say(f"{time.strftime('%H:%M:%S')} {progress_line(record)}")
