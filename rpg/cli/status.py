"""The command `rpg status`: the state of every run."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, app, complain, console, require_sweep, say


@app.command(epilog="Example: rpg status quickstart")
def status(
    sweep: Annotated[str | None, typer.Argument(help="Name of the sweep; all sweeps if omitted.")] = None,
    home: Home = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update until Ctrl-C.")] = False,
) -> int:
    """Show the state of every run, read from its files."""
    import time

    from flows.monitor import Watch, headline, table
    from rpg.store import Layout
    from rpg.store.current import current_runs, is_imported, superseded
    from rpg.store.run_provenance import provenance_notes
    from rpg.store.serve_health import read_problems

    layout = Layout.at(home)
    for problem in read_problems(layout.home):
        complain(f"rpg serve: {problem}")
    sweeps = layout.sweeps()
    if sweep:
        require_sweep(sweep, layout)
    if not sweeps:
        console.print(f"no sweeps in {layout.home} yet; start one with: rpg sweep quickstart")
        return 0
    watches = {name: Watch(current_runs(layout, name)) for name in ([sweep] if sweep else sweeps)}
    computed = {
        name: provenance_notes(folder for folder in current_runs(layout, name) if not is_imported(folder))
        for name in watches
    }
    while True:
        for name, watch_ in watches.items():
            views = watch_.views()
            console.print(headline(name, views, "", None))
            console.print(table(views))
            for line in computed[name]:
                say(f"  ! {line}", "yellow")
            for run, why in superseded(layout, name).items():
                say(f"  superseded: {run}: {why}", "dim")
        if not watch:
            return 0
        time.sleep(2)
