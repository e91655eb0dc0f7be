"""A night of `python -m benchmarks.nights` that is stopped leaves nothing running."""

import os
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import nights
from benchmarks.mutants.__main__ import forked
from tests.waiting import HANG


@pytest.mark.component
def test_a_night_ends_with_the_night_that_has_started_it(tmp_path, monkeypatch):
    marks = tmp_path / "process"

    def endless(home, sets, again):
        Path(marks).write_text(str(os.getpid()))
        time.sleep(HANG)

    monkeypatch.setattr(nights, "enter", lambda source: None)
    monkeypatch.setattr(nights, "nights_here", endless)

    def outer():
        nights.night_in(tmp_path, tmp_path / "data", tmp_path)
        return 0

    forked(outer, timeout=3.0)

    inner = int(marks.read_text())
    psutil.wait_procs([psutil.Process(inner)] if psutil.pid_exists(inner) else [], timeout=5)
    assert not psutil.pid_exists(inner)
