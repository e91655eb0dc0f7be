"""The command `rpg train`."""

from __future__ import annotations

from rpg.cli.app import Home, RunFile, Set, app
from rpg.cli.execution import Fresh, Name, execute


@app.command(epilog="Example: rpg train chain --set algorithm=rpg-reinforce-urkl --set seed=3")
def train(
    file: RunFile,
    set_: Set = [],
    name: Name = None,
    home: Home = None,
    fresh: Fresh = False,
) -> int:
    """Train one run. It is evaluated and reported like a sweep of one run."""
    from rpg.config.load import parse_assignments
    from rpg.config.sweep_spec import single_run
    from rpg.tasks.preparation import data_digest

    return execute(single_run(file, parse_assignments(set_), data_digest, name=name), home, 1, fresh)
