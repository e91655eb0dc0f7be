"""Pin the identities of configurations that ship and are not pinned yet: python -m
tests.config.pin_identities."""

import json
from pathlib import Path

from rpg.config.sweep_spec import load_file

CONFIGS = (Path(__file__).parents[2] / "configs").resolve()
PINNED = Path(__file__).with_name("identities.json")


def shipped_sweeps() -> list[Path]:
    """All sweeps and runs that ship; studies have no identities of their own."""
    return sorted(path for path in CONFIGS.rglob("*.yaml") if "\ntune:" not in path.read_text())


def main() -> None:
    pinned = json.loads(PINNED.read_text()) if PINNED.exists() else {}
    for path in shipped_sweeps():
        ids = [run.run_id for run in load_file(path, {}, lambda spec: "d").runs]
        pinned.setdefault(str(path.relative_to(CONFIGS)), ids)
    PINNED.write_text(json.dumps(pinned, indent=0) + "\n")


if __name__ == "__main__":
    main()
