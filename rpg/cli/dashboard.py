"""The command `rpg dashboard`: compare variants in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from rpg.cli.app import Home, app, error_console, say


@app.command(epilog="Example: rpg dashboard --port 8600")
def dashboard(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8501,
    address: Annotated[
        str, typer.Option(help="Address to listen on. Anyone who can reach it can read the results.")
    ] = "127.0.0.1",
    home: Home = None,
) -> int:
    """Compare variants in the browser. Listens on loopback by default and sends nothing anywhere."""
    import os
    import socket
    import subprocess

    from rpg.cli.missing_packages import require

    require("streamlit")
    from flows.serve.services import dashboard as command
    from rpg.processes import parent_mark
    from rpg.store import Layout
    from rpg.store.database import build

    layout = Layout.at(home)
    build(layout)
    with socket.socket() as probe:
        if probe.connect_ex((address, port)) == 0:
            error_console.print(
                f"error: port {port} on {address} is in use; choose another: rpg dashboard --port {port + 1}"
            )
            return 2
    say(f"dashboard of {layout.home}: http://{address}:{port}  (Ctrl-C stops it)")
    environment = {**os.environ, "RPG_HOME": str(layout.home), **parent_mark()}
    try:
        return subprocess.run(command(address, port), env=environment).returncode
    except KeyboardInterrupt:
        return 0
