"""`python -m dashboard ADDRESS PORT`: the dashboard behind its access control, until the parent
process dies.

It asks for a password if RPG_AUTH holds one.
"""

import os
import sys
from pathlib import Path

import uvicorn
from streamlit.starlette import App

from dashboard.options import set_options
from rpg.system.processes import die_with_parent
from rpg.system.web import HEALTH, LOGOUT, AccessControl, Address

PUBLIC = "RPG_PUBLIC_DASHBOARD"
LOGOUT_PATH = "RPG_LOGOUT"


def main(address: str, port: int) -> None:
    die_with_parent()
    ours = Address(port, ("127.0.0.1", "localhost", address), os.environ.get(PUBLIC, ""))
    set_options(address=address, port=port, baseUrlPath=ours.prefix.strip("/"))
    secret = os.environ.pop("RPG_AUTH", None)
    if secret:
        os.environ[LOGOUT_PATH] = ours.prefix + LOGOUT
    page = App(Path(__file__).resolve().parent / "app.py")
    guarded = AccessControl(page, ours, secret, [HEALTH])
    uvicorn.run(
        guarded, host=address, port=port, log_level="warning", lifespan="on", proxy_headers=False
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
