"""The files of the published benchmarks, in the folder that RPG_DATA names."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("RPG_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
skipped_without_data = pytest.mark.skipif(
    not (DATA / "aime-2024.parquet").is_file(),
    reason=f"the benchmarks' files are not in {DATA} (set RPG_DATA to their folder)",
)


def needs_data(test):
    """Mark a test that reads these files: a component test, since it takes seconds the first
    time."""
    return pytest.mark.component(skipped_without_data(test))
