"""The command `rpg show`: the resolved form of a file, its runs and their cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rpg.cli.app import File, Home, Set, app, complain, console

if TYPE_CHECKING:
    from rpg.config.sweep_spec import PlannedRun


@app.command(epilog="Example: rpg show quickstart --set training.steps=10")
def show(
    file: File,
    set_: Set = [],
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show the resolved form of a file: every value, the runs it expands to, their expected cost. Downloads nothing."""
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any package of the hub is imported
    import yaml

    from rpg.cli.data_digest import DigestIfPresent, refuse_wrong_paths
    from rpg.cli.print_cost import print_cost
    from rpg.config.load import parse_assignments
    from rpg.config.sweep_spec import load_file
    from rpg.planning.cost import cost
    from rpg.store import Layout

    digest = DigestIfPresent()
    sweep = load_file(file, parse_assignments(set_), digest)
    refuse_wrong_paths([run.spec for run in sweep.runs], file, Layout.at(home))
    if as_json:
        runs = [
            {
                "run": _folder(r, digest.known(r.spec)),
                "run_id": r.run_id if digest.known(r.spec) else None,
                "variant": r.variant,
                "spec": r.spec.model_dump(mode="json"),
            }
            for r in sweep.runs
        ]
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
        table.add_row(
            r.variant,
            str(r.spec.seed),
            f"{c.rollouts:,}",
            f"{c.optimizer_steps:,}",
            _folder(r, digest.known(r.spec)),
        )
    console.print(table, markup=False)
    print_cost(sweep, Layout.at(home))
    for reason in dict.fromkeys(digest.absent.values()):
        complain(f"the data are not here, so identities are unknown (????????): {reason}", "yellow")


def _folder(run: PlannedRun, known: bool) -> str:
    """A run's folder, without the digits of its identity if that is unknown."""
    return run.folder if known else f"{run.folder[:-8]}????????"
