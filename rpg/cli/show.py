"""The command `rpg show`: what a file means, which runs it has and what they will cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rpg.cli.app import File, Home, Set, app, complain, console

if TYPE_CHECKING:
    from rpg.config.run import RunSpec


@app.command(epilog="Example: rpg show quickstart --set training.steps=10")
def show(
    file: File,
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a file means: every value, the runs it expands to, their expected cost. Downloads nothing."""
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything of the hub's is imported
    import yaml

    from rpg.cli.cost import print_cost
    from rpg.config.errors import ConfigError
    from rpg.config.load import parse_assignments
    from rpg.config.sweep import load_file
    from rpg.planning.cost import cost
    from rpg.store import Layout
    from rpg.tasks import DataError
    from rpg.tasks.preparation import data_digest

    absent: dict[str, str] = {}

    def digest(spec: RunSpec) -> str:
        task = spec.task.model_dump_json()
        if task in absent:
            return ""
        try:
            return data_digest(spec)
        except DataError as error:  # what a file means can be looked at before its data is here
            if isinstance(error.__cause__, ConfigError):
                raise
            absent[task] = str(error)
            return ""

    sweep = load_file(file, parse_assignments(set_), digest)
    if as_json:
        runs = [{"run": r.folder, "run_id": r.run_id, "variant": r.variant, "spec": r.spec.model_dump(mode="json")}
                for r in sweep.runs]  # fmt: skip
        print(json.dumps({"name": sweep.spec.name, "baseline": sweep.baseline, "runs": runs}, indent=1))
        return
    first = sweep.runs[0].spec
    console.rule(f"first run, resolved ({sweep.runs[0].variant}, seed {first.seed})", align="left")
    print(yaml.safe_dump(first.model_dump(mode="json"), sort_keys=False), end="")
    console.rule(f"{len(sweep.runs)} runs", align="left")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("variant", "seed", "rollouts", "updates", "folder"):
        table.add_column(name, justify="right" if name in ("seed", "rollouts", "updates") else "left")
    for r in sweep.runs:
        c = cost(r.spec)
        table.add_row(r.variant, str(r.spec.seed), f"{c.rollouts:,}", f"{c.optimizer_steps:,}", r.folder)
    console.print(table, markup=False)
    print_cost(sweep, Layout.at(home))
    for reason in dict.fromkeys(absent.values()):
        complain(f"the data is not here, so folder names are not final: {reason}", "yellow")
