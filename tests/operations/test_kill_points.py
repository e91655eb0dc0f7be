"""The short form of benchmarks/chaos/kill_points: a sweep is killed at eight of the moments at
which files change; one rerun gives the same bits and a true table."""

import subprocess
import sys

import pytest

from benchmarks.chaos.kill_points import Point, evenly, points_of
from tests.operations.serving import ROOT
from tests.waiting import free_port

EVENTS = [
    "write runs/s/a/manifest.json",
    "append to runs/s/a/metrics-1.jsonl",
    "append to runs/s/a/metrics-1.jsonl",
    "rename runs/s/a/evals/b/step-000002.parquet",
    "rename runs/s/a/DONE.json",
    "rename analytics/CURRENT",
    "rename reports/s/report.html",
]


def test_all_moments_after_the_last_evaluation_are_points():
    points = points_of(EVENTS, 5)
    assert [str(point) for point in points[-3:]] == [f"1 {event}" for event in EVENTS[3:6]]
    assert len(points) == 5


def test_equal_events_are_told_apart_by_counting():
    assert Point(EVENTS[1], 2) in points_of(EVENTS, 6)


def test_points_are_spread_evenly():
    points = [Point("write x", time) for time in range(1, 101)]
    assert [point.time for point in evenly(points, 4)] == [13, 38, 63, 88]


@pytest.mark.system
@pytest.mark.component
def test_a_sweep_killed_at_any_of_eight_moments_ends_the_same():
    options = ["--points", "8", "--port", str(free_port())]
    command = [sys.executable, "-m", "benchmarks.chaos.kill_points", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 8 kills left something wrong" in done.stdout
