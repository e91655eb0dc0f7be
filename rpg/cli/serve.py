"""The commands `rpg serve`, `rpg worker`, `rpg notify`, `rpg dashboard` and `rpg reconcile`: what
keeps running, and its repair."""

from typing import Annotated

import typer

from rpg.cli.app import Home, app, console, error_console, layout_at, refuse, say
from rpg.cli.missing_packages import require
from rpg.cli.recorded import result

_PORT = typer.Option(
    min=1, max=65535, help="Port of the Prefect UI and API, or of the tunnel to them."
)
Port = Annotated[int, _PORT]
DashboardPort = Annotated[int, typer.Option(min=1, max=65535, help="Port of the dashboard.")]
_PASSWORD = (
    "Ask for a password, also in the dashboard: user:password from $RPG_AUTH, otherwise a "
    "new one, stored in "
    "serve/auth of the data folder, where a worker finds it. Default: if RPG_AUTH is set."
)
Auth = Annotated[bool | None, typer.Option("--auth/--no-auth", help=_PASSWORD, show_default=False)]


@app.command()
def dashboard(port: DashboardPort = 8501, address: str = "127.0.0.1", home: Home = None) -> int:
    """Compare variants in the browser. Listens on loopback by default and sends nothing anywhere.

    Args:
        address: Address to listen on. Anyone who can reach it can read the results.
    """
    import socket
    import subprocess

    require("streamlit")
    from flows.serve.services import dashboard as command
    from rpg import next_steps
    from rpg.cli.archive import fetch_results
    from rpg.store.database import build
    from rpg.system.processes import child_environment, parent_mark

    fetch_results(layout := layout_at(home))
    build(layout)
    try:
        with socket.socket() as probe:
            is_used = probe.connect_ex((address, port)) == 0
    except OSError as error:
        refuse(f"--address {address}: {error.strerror}; expected an IPv4 address or a host name")
    if is_used:
        free = str(port + 1)
        another = next_steps.command(
            "dashboard", "--port", free, "--address", address, layout=layout
        )
        error_console.print(f"error: port {port} on {address} is in use; choose another: {another}")
        return 2
    say(f"dashboard of {layout.home}: http://{address}:{port}  (Ctrl-C stops it)")
    environment = {**child_environment(), "RPG_HOME": str(layout.home), **parent_mark()}
    try:
        return subprocess.run(command(address, port), env=environment).returncode
    except KeyboardInterrupt:
        return 0


@app.command()
def serve(
    port: Port = 4200,
    dashboard_port: DashboardPort = 8501,
    database: str | None = None,
    nightly: str = "0 2 * * *",
    auth: Auth = None,
    public_url: Annotated[str, typer.Option(show_default=False)] = "",
    home: Home = None,
) -> int:
    """Start the Prefect server and UI, a worker and the dashboard, on loopback, until Ctrl-C.

    Args:
        database: postgresql+asyncpg://user:password@host/name. Default: SQLite in the data folder.
        nightly: Cron schedule of the nightly runs, in UTC; empty for none.
        public_url: Address at which a TLS proxy serves both, e.g. https://lab.example.org/rpg
            (docs/operations.md). Asks for a password unless --no-auth is given.
    """
    require("prefect", "streamlit")
    from flows.serve.services import Plan, secret_of
    from flows.serve.supervisor import serve as run

    layout = layout_at(home)
    secret = secret_of(layout.home, auth)
    return run(
        layout,
        Plan("rpg.__main__", port, dashboard_port, database, nightly, secret, public_url),
        say,
    )


@app.command()
def worker(
    port: Port = 4200, dashboard_port: DashboardPort = 8501, auth: Auth = None, home: Home = None
) -> int:
    """Run here what is started at the `rpg serve` of another machine; both share the data folder.

    The server listens on its own machine's loopback. Reach it through a tunnel: ssh -N -L
    4200:127.0.0.1:4200 that-machine.
    """
    require("prefect")
    from flows.serve.services import Plan, secret_of
    from flows.serve.supervisor import join

    layout = layout_at(home)
    plan = Plan("rpg.__main__", port, dashboard_port, None, "", secret_of(layout.home, auth))
    return join(layout, plan, say)


@app.command()
def notify(target: str, auth: Auth = None, home: Home = None) -> None:
    """Send a message when a night is red, or has not ended.

    It creates automations of the Prefect server that runs here. Run it again with another target
    to change where they send.

    Args:
        target: Web address that is called with {"text": ...}, as Slack, Mattermost and others
            take it; or a notification block of the server, TYPE/NAME (mail, Teams, PagerDuty).
    """
    require("prefect")
    from flows.serve.notifications import notify as create
    from flows.serve.services import secret_of

    layout = layout_at(home)
    names = create(layout, target, secret_of(layout.home, auth))
    result(automations=names)
    say(f"Prefect tells {target} when: {', '.join(names)}")


@app.command()
def reconcile(home: Home = None) -> None:
    """Repair what a crash left behind: orphaned processes, stale leases, flow runs without a
    process."""
    from flows.prefect.reconcile import reconcile

    layout = layout_at(home)
    if not layout.home.is_dir():
        refuse(f"--home {layout.home}: no such folder; expected a data folder")
    done = reconcile(layout)
    result(repaired=done)
    for line in done:
        say(line)
    console.print(f"{len(done)} repaired" if done else "nothing to repair")
