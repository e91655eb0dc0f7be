"""The command `rpg reconcile`: repair what a crash left behind."""

from __future__ import annotations

from rpg.cli.app import Home, app, console, say


@app.command(epilog="Example: rpg reconcile")
def reconcile(home: Home = None) -> int:
    """Repair what a crash left behind: orphaned processes, stale leases, flow runs without a process."""
    from flows.prefect.reconcile import reconcile
    from rpg.store import Layout

    done = reconcile(Layout.at(home))
    for line in done:
        say(line)
    console.print(f"{len(done)} repaired" if done else "nothing to repair")
    return 0
