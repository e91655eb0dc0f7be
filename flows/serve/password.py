"""The password of `rpg serve --auth`: from RPG_AUTH, else from a file of the data folder that only its owner reads."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from rpg.config.errors import ConfigError
from rpg.store import StoreError
from rpg.store.atomic_files import readable

AUTH = "RPG_AUTH"
SERVER_AUTH, CLIENT_AUTH = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"


def secret_file(home: Path) -> Path:
    return home / "serve" / "auth"


def secret_of(home: Path, wanted: bool | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """`user:password`, or None where nobody asked for one: `wanted` is --auth, --no-auth or neither.

    RPG_AUTH (or Prefect's own name for it) alone is asking for one. Where --auth stands alone, a password is made at
    the first time and kept.

    Raises:
        ConfigError: it is not of the form user:password.
        StoreError: the file cannot be written.
    """
    given = environment.get(AUTH) or environment.get(SERVER_AUTH) or environment.get(CLIENT_AUTH)
    if wanted is False or (wanted is None and not given):
        return None
    if not given:
        return _kept(secret_file(home))
    user, colon, password = given.partition(":")
    if not (user and colon and password) or not given.isprintable():
        raise ConfigError(f"{AUTH}: expected user:password in one line")
    return given


def _kept(path: Path) -> str:
    with readable("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return _read(path)
        with os.fdopen(fd, "w") as file:
            file.write(f"rpg:{secrets.token_urlsafe(18)}\n")
    return _read(path)


def _read(path: Path) -> str:
    with readable("read", path):
        if path.stat().st_mode & 0o077:
            raise StoreError(f"{path}: others may read this password; remove the file, or: chmod 600 {path}")
        text = path.read_text(encoding="utf-8").strip()
    if ":" not in text:
        raise StoreError(f"{path}: expected user:password in one line; remove the file and a new one is made")
    return text


def client_environment(secret: str | None) -> dict[str, str]:
    """For whoever calls Prefect's API."""
    return {CLIENT_AUTH: secret} if secret else {}
