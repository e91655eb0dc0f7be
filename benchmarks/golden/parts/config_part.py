"""Every shipped configuration: what `rpg show` prints, as JSON.

Of runs and sweeps also what it prints for people.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.golden.commands import Commands, tree


def dump(folder: Path) -> None:
    rpg = Commands()
    configs = tree() / "configs"
    for file in sorted(configs.rglob("*.yaml")):
        name = "-".join(file.relative_to(configs).with_suffix("").parts)
        shown = rpg.run("show", str(file), "--json")
        (folder / f"{name}.json").write_text(shown)
        if file.parent.name in ("runs", "sweeps"):
            (folder / f"{name}.txt").write_text(rpg.run("show", str(file), "--gpu", "h100"))
