"""Talking to a running Ray cluster."""

from __future__ import annotations

import os
from pathlib import Path


def use_token() -> None:
    """Show a cluster our token where there is one: Ray looks for it only when told so. Call before ray is imported."""
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if "RAY_AUTH_TOKEN" in os.environ or token.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
