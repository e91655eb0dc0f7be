"""What a run waits for, in its folder: `rpg status` shows it, on other machines too."""

from __future__ import annotations

import time

from rpg.store import RunFolder
from rpg.store.run_writer import clear_waiting, write_waiting

REPEAT_SECONDS = 60.0
"""The note is written again this often: other hosts believe it while it is young."""


class WaitingNote:
    """The note of one run, written when its text changes or has become old."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._written: tuple[str, float] | None = None

    def write(self, why: str) -> None:
        if (
            self._written is None
            or self._written[0] != why
            or time.monotonic() - self._written[1] > REPEAT_SECONDS
        ):
            write_waiting(self._folder, why)
            self._written = (why, time.monotonic())

    def clear(self) -> None:
        if self._written is not None:
            clear_waiting(self._folder)
            self._written = None
