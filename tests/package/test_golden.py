"""Two dumps of the same are equal, and a planted difference is named with its file and line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.golden.differences import describe

ROOT = Path(__file__).parents[2]


@pytest.fixture
def dumps(tmp_path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.txt").write_text("grpo 0.676\ndapo 0.678\n")
    return tmp_path / "before", tmp_path / "after"


def test_equal_dumps_have_no_differences(dumps):
    assert describe(*dumps, most_lines=5) == []


def test_a_changed_digit_is_shown_with_both_lines(dumps):
    before, after = dumps
    (after / "table.txt").write_text("grpo 0.676\ndapo 0.679\n")
    assert describe(before, after, most_lines=5) == [
        "  table.txt:",
        "    - dapo 0.678",
        "    + dapo 0.679",
    ]


def test_another_order_is_a_difference(dumps):
    before, after = dumps
    (after / "table.txt").write_text("dapo 0.678\ngrpo 0.676\n")
    assert describe(before, after, most_lines=5) == [
        "  table.txt:",
        "    the same lines in another order",
    ]


def test_files_that_came_or_went_are_named(dumps):
    before, after = dumps
    (before / "old.txt").write_text("x\n")
    (after / "new.txt").write_text("x\n")
    assert describe(before, after, most_lines=5) == ["  old.txt: is gone", "  new.txt: is new"]


@pytest.mark.system
def test_two_dumps_of_invented_results_are_equal(tmp_path):
    """Times, and digests of files that hold times, are left out."""
    folders = [tmp_path / name / "dump" for name in ("first", "second")]
    for folder in folders:
        folder.parent.mkdir()
        command = [sys.executable, "-m", "benchmarks.golden", "dump", str(folder), "--only", "lab"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run(command, check=True, cwd=folder.parent, env=environment, capture_output=True)
    assert describe(*folders, most_lines=5) == []
    assert list(folders[0].rglob("made-of.json")), "reports and what they were made of"
