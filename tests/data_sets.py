"""The files of the published benchmarks, in the folder that RPG_DATA names."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("RPG_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
needs_data = pytest.mark.skipif(
    not (DATA / "aime-2024.parquet").is_file(),
    reason=f"the benchmarks' files are not in {DATA} (set RPG_DATA to their folder)",
)
