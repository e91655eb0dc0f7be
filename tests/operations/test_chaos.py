"""The short form of benchmarks/chaos: sweeps are killed while they train, and files torn; nothing
is lost or doubled."""

import subprocess
import sys

import pytest

from tests.operations.serving import ROOT

pytestmark = pytest.mark.system


def test_a_kill_and_torn_files_lose_nothing():
    options = ["--kills", "0", "--served", "0", "--faults", "torn files", "--seed", "3"]
    command = [sys.executable, "-m", "benchmarks.chaos", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = [line for line in done.stdout.splitlines() if line.startswith("| torn files (")]
    assert row.endswith("| 0 | 0 | 0 | 0 |"), done.stdout
