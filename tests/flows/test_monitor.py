"""What a sweep prints where there is no terminal: lines that a person can read later."""

import io
from collections import Counter

import pytest
from rich.console import Console

from benchmarks.synthetic import Shape, write_sweep
from flows import monitor
from flows.monitor import Progress, Watch
from rpg.store import run_folder


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
    for phase in ("preparing data and models", "training and evaluating"):
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


def test_each_file_of_a_finished_run_is_read_once(tmp_path, monkeypatch):
    shape = Shape(steps=4, eval_every=2, problems=2, samples=1, benchmarks=("a", "b", "c"))
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo"), seeds=(0,), shape=shape)
    folders = layout.run_folders("demo")
    folders[1].eval_path("b", 2).write_bytes(b"PAR1")
    read = Counter()
    read_json_object = run_folder.read_json_object

    def count(path):
        read[path] += 1
        return read_json_object(path)

    monkeypatch.setattr(run_folder, "read_json_object", count)

    watch = Watch(folders)
    [whole, damaged] = watch.views()

    expected = [path for folder in folders for path in (folder.manifest_path, folder.done_path)]
    assert read == Counter(expected)
    assert (whole.evals, damaged.evals) == (9, 8)
    [line] = watch.damage()
    assert line.startswith(f"damaged: {folders[1].name}/evals/b/step-000002.parquet has 4 bytes")
