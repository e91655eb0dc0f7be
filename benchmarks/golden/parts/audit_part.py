"""What each loss optimises: the exact numbers of `rpg audit`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.golden.commands import started, write_json


def dump(folder: Path) -> None:
    write_json(folder / "audit.json", json.loads(started("audit", "--json")))
    (folder / "audit.txt").write_text(started("audit"))
    assert os.environ["OMP_NUM_THREADS"] == "1"
