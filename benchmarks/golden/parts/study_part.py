"""The smallest study: its trials, what was registered, and the report."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.golden.commands import clean, started, write_json

HOME = Path("studied")


def dump(folder: Path) -> None:
    started("study", "first-study", "--home", str(HOME), "--workers", "1")
    (folder / "status.txt").write_text(
        started("study", "status", "first-study", "--home", str(HOME))
    )
    for file in sorted(path for path in HOME.glob("studies/**/*") if path.is_file()):
        target = folder / "files" / file.relative_to(HOME)
        if file.suffix == ".json":
            write_json(target, json.loads(file.read_text()))
        elif file.suffix not in (".png", ".pdf", ".lock"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(clean(file.read_text("utf-8")))
