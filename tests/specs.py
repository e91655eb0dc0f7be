"""A run file as the specification of its run."""

from pathlib import Path
from typing import Any

from rpg.config.run_spec import RunSpec
from rpg.config.sweep_spec import single_run


def load_run(path: Path, overrides: dict[str, Any] | None = None) -> RunSpec:
    return single_run(path, overrides or {}, lambda spec: "data").runs[0].spec
