"""The command `rpg doctor`: is everything here that a sweep needs?"""

from __future__ import annotations

import sys

from rpg.cli.app import Home, app, say


@app.command(epilog="Example: rpg doctor")
def doctor(home: Home = None) -> int:
    """Check that everything a sweep needs is here: Python, packages, cores, a writable data folder."""
    import os
    import shutil
    import tempfile
    from importlib.metadata import PackageNotFoundError, version

    from rpg.cli.extras import install_command
    from rpg.store import Layout

    bad = 0

    def line(good: bool, text: str) -> None:
        nonlocal bad
        bad += not good
        say(f"{'ok ' if good else 'NO '} {text}", None if good else "bold red")

    line((3, 11) <= sys.version_info[:2] <= (3, 13), f"Python {sys.version.split()[0]} (3.11 to 3.13 wanted)")
    for name in (
        "torch",
        "transformers",
        "safetensors",
        "schedulefree",
        "prefect",
        "duckdb",
        "altair",
        "streamlit",
    ):
        try:
            line(True, f"{name} {version(name)}")
        except PackageNotFoundError:
            line(False, f"{name} is not installed; install it with: {install_command(name)}")
    from rpg.cli.execution import cores

    line(True, f"{cores()} cores: that many trainings at a time")
    folder = Layout.at(home).home
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free / 2**30
        line(free > 1, f"data folder {folder} is writable, {free:.0f} GB free")
    except OSError as error:
        line(False, f"data folder {folder}: {error.strerror}; set RPG_HOME or --home to a writable folder")
    url = os.environ.get("PREFECT_API_URL")
    line(
        True, f"Prefect server: {url}" if url else "Prefect server: a private one on loopback for each sweep"
    )
    return 1 if bad else 0
