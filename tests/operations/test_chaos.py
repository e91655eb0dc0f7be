"""The short form of benchmarks/chaos: a few kills at random moments and torn files; nothing lost, doubled or left."""

import subprocess
import sys

import pytest

from tests.operations.serving import ROOT

pytestmark = pytest.mark.long


def test_a_few_kills_and_torn_files_lose_nothing():
    options = ["--kills", "2", "--served", "0", "--faults", "torn files", "--seed", "3"]
    command = [sys.executable, "-m", "benchmarks.chaos", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [r for r in done.stdout.splitlines() if r.startswith(("| SIGKILL,", "| torn files ("))]
    assert len(rows) == 2 and all(row.endswith("| 0 | 0 | 0 | 0 |") for row in rows), done.stdout
