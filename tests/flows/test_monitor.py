"""What a sweep prints where there is no terminal: lines that a person can read later."""

import io

import pytest
from rich.console import Console

from flows import monitor
from flows.monitor import Progress


@pytest.fixture
def progress(monkeypatch):
    """(progress of a sweep without runs, what it prints, a function that moves the clock)"""
    now = [100.0]
    monkeypatch.setattr(monitor.time, "monotonic", lambda: now[0])
    out = io.StringIO()

    def later(seconds):
        now[0] += seconds

    return Progress(Console(file=out, width=60), "a-sweep", []), out, later


def test_a_line_for_each_phase_and_then_one_a_minute(progress):
    live, out, later = progress
    for phase in ("preparing data and warm start", "training and evaluating"):
        live.phase = phase
        for _ in range(100):
            live.lines()
            later(1.0)

    lines = out.getvalue().splitlines()

    assert len(lines) == 4
    assert [line.count("preparing data") for line in lines] == [1, 1, 0, 0]


def test_a_line_is_whole_however_long(progress):
    live, out, later = progress
    live.phase = "evaluating the last checkpoints"
    live.tell("grpo-seed0: step 40 on a benchmark with a long name, from stored samples")
    later(75.0)

    live.lines()

    [line] = out.getvalue().splitlines()
    assert "from stored samples, 1:15" in line
