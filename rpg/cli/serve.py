"""The command `rpg serve`: Prefect, worker and dashboard, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, app, say


@app.command(epilog="Example: rpg serve --port 4200 --dashboard-port 8501")
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect UI and API.")] = 4200,
    dashboard_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the dashboard.")] = 8501,
    database: Annotated[
        str | None,
        typer.Option(
            help="postgresql+asyncpg://user:password@host/name. Default: SQLite in the data folder."
        ),
    ] = None,
    nightly: Annotated[
        str, typer.Option(help="Cron schedule of the nightly runs; empty for none.")
    ] = "0 2 * * *",
    auth: Annotated[
        bool | None,
        typer.Option(
            "--auth/--no-auth",
            help="Ask for a password, also in the dashboard: user:password from $RPG_AUTH, else a new one that is "
            "kept in serve/auth of the data folder. Default: when RPG_AUTH is set.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
) -> int:
    """Start the Prefect server and UI, a worker and the dashboard, on loopback, until Ctrl-C."""
    from rpg.cli.missing_packages import require

    require("prefect", "streamlit")
    from flows.serve.services import Plan, secret_of
    from flows.serve.supervisor import serve as run
    from rpg.store import Layout

    layout = Layout.at(home)
    return run(
        layout,
        Plan("rpg.__main__", port, dashboard_port, database, nightly, secret_of(layout.home, auth)),
        say,
    )
