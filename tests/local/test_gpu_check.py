"""The script for fifteen minutes with a GPU, on a CPU: every check runs, and none fails."""

import pytest

from benchmarks.gpu_check.__main__ import CHECKS
from benchmarks.gpu_check.lines import DRY


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_runs_without_a_gpu(name):
    lines = CHECKS[name](DRY)
    print(*lines, sep="\n")
    assert lines
    assert all(line.held is not False for line in lines)
    assert all(line.figure for line in lines)
