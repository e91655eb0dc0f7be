"""What commands print that read no results: help, algorithms, published tables, data."""

from __future__ import annotations

import re
from pathlib import Path

import rpg
from benchmarks.golden.commands import Commands


def dump(folder: Path) -> None:
    commands = Commands()
    overview = commands.run("--help")
    (folder / "help.txt").write_text(overview)
    for name in re.findall(r"^│ ([a-z]+)  ", overview, re.MULTILINE):
        (folder / f"help-{name}.txt").write_text(commands.run(name, "--help"))
    commands.write(folder / "algorithms.txt", [["list"], ["list", "--preset", "released"]])
    commands.write(folder / "algorithm.txt", (["list", name] for name in rpg.algorithms()))
    commands.write(folder / "paper.txt", [["paper"], ["paper", "lint"]])
    commands.write(
        folder / "absent.txt", [["report", "nothing"], ["status", "nothing"], ["list", "nothing"]]
    )
    commands.write(
        folder / "data.txt",
        [["data", "chain"], ["data", "chain", "--json"], ["data", "chain", "--look"]],
    )
