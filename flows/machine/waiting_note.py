"""What a run waits for, as a note in its folder."""

from __future__ import annotations

import time
from contextlib import suppress

from rpg.store import RunFolder, StoreError
from rpg.store.run_writer import write_waiting

REPEAT_SECONDS = 60.0
"""How often a waiting note is written again: other hosts believe it while it is young."""


class WaitingNote:
    """What a run waits for, in its folder: `rpg status` shows it, on other machines too. Its training removes it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._text, self._written = "", 0.0

    def write(self, why: str) -> None:
        """Written when the text has changed or become old."""
        if self._text != why or time.monotonic() - self._written > REPEAT_SECONDS:
            with suppress(StoreError):  # what it waits for may be space on this disk
                write_waiting(self._folder, why)
            self._text, self._written = why, time.monotonic()
