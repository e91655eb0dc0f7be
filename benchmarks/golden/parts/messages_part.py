"""What is said about files and settings that are wrong.

The tables of mistakes are those of the tests, and `settings.yaml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import rpg
from benchmarks.golden.commands import Commands, clean

TABLES = Path(__file__).resolve().parents[3] / "tests"
SETTINGS = Path(__file__).with_name("settings.yaml")
STUDY = {
    "name": "made-up",
    "base": "chain",
    "run": {
        "task": {
            "tiers": {"easy": 2, "hard": 3},
            "train_problems": 60,
            "benchmark_problems": 12,
            "tuning_problems": 4,
        },
        "model": {"warm_start": None},
        "training": {"steps": 2},
        "evaluation": {"every": 2},
    },
    "variants": {"one": {"algorithm": "grpo"}, "two": {"algorithm": "rpg-urkl"}},
    "tune": {
        "space": {"training.optimizer.learning_rate": {"log": [1e-4, 1e-2]}},
        "trials": 4,
        "batch": 2,
        "searches": 1,
        "seeds": [100, 101],
        "prune": "successive-halving",
    },
    "report": {"seeds": [0, 1, 2], "matters": 0.05},
}


def dump(folder: Path) -> None:
    commands = Commands()
    for file, *settings in yaml.safe_load(SETTINGS.read_text("utf-8")):
        options = [option for setting in settings for option in ("--set", setting)]
        _append(folder / "settings.txt", _head(commands.run("show", file, *options)))
    for mistake in _table("config/mistakes.yaml"):
        Path("sweep.yaml").write_text(mistake["file"])
        _append(folder / "sweeps.txt", mistake["file"] + _head(commands.run("show", "sweep.yaml")))
    for mistake in _table("study/mistakes.yaml"):
        Path("study.yaml").write_text(
            yaml.safe_dump(_merged(STUDY, mistake["changes"]), sort_keys=False)
        )
        said = commands.run("study", "study.yaml", "--only", "register")
        _append(folder / "studies.txt", f"{mistake['changes']}\n{said}")
    for mistake in _table("catalogue/mistakes.yaml"):
        _append(folder / "algorithms.txt", _refusal(mistake["name"], mistake["overrides"]))


def _refusal(name: str, overrides: dict[str, Any]) -> str:
    try:
        algorithm = rpg.algorithm(name, **overrides)
    except rpg.AlgorithmError as error:
        return f"{name} {overrides}\n{error.field}: {error.accepted}: {clean(str(error))}"
    return f"{name} {overrides}\n{algorithm!r}\n"


def _head(said: str) -> str:
    """What is said, without the whole run where there was nothing to complain about."""
    return "\n".join(said.splitlines()[:4] + said.splitlines()[-1:]) + "\n"


def _table(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load((TABLES / name).read_text("utf-8")))


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The base with changes; null takes a key out, as in the table's test."""
    merged = dict(base)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


def _append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text + "\n")
