"""The command `rpg worker`: this machine works for the `rpg serve` of another one, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, app, say


@app.command(epilog="Example: rpg worker --home /shared/data")
def worker(
    port: Annotated[
        int,
        typer.Option(
            min=1,
            max=65535,
            help="Where the server of the other machine answers here, on loopback: the tunnel.",
        ),
    ] = 4200,
    dashboard_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of its dashboard, for links.")
    ] = 8501,
    auth: Annotated[
        bool | None,
        typer.Option(
            "--auth/--no-auth",
            help="The server asks for a password: user:password from $RPG_AUTH, else that of serve/auth in the data folder.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
) -> int:
    """Run what is started at the `rpg serve` of another machine here as well; both share the data folder.

    The server listens on loopback of its machine: a tunnel leads there, ssh -N -L 4200:127.0.0.1:4200 that-machine.
    """
    from rpg.cli.missing_packages import require

    require("prefect")
    from flows.serve.services import Plan, secret_of
    from flows.serve.supervisor import join
    from rpg.store import Layout

    layout = Layout.at(home)
    return join(
        layout, Plan("rpg.__main__", port, dashboard_port, None, "", secret_of(layout.home, auth)), say
    )
