"""`python -m dashboard ADDRESS PORT`: the dashboard behind its access control, until the parent process dies.

It asks for a password if RPG_AUTH holds one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvicorn
from streamlit import config
from streamlit.starlette import App

from rpg.processes import die_with_parent
from rpg.web import HEALTH, AccessControl, origins_of

OPTIONS = {
    "server.headless": True,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
}


def main(address: str, port: int) -> None:
    die_with_parent()
    for name, value in {**OPTIONS, "server.address": address, "server.port": port}.items():
        config.set_option(name, value)
    names = ["127.0.0.1", "localhost", address]
    page = App(Path(__file__).resolve().parent / "app.py")
    guarded = AccessControl(page, names, origins_of(names, port), os.environ.pop("RPG_AUTH", None), [HEALTH])
    uvicorn.run(guarded, host=address, port=port, log_level="warning", lifespan="on")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
