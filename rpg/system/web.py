"""Access control for every port that `rpg serve` opens: our own host names and origins only, and
the password if one is set.

Listening on loopback does not protect from a page in the user's own browser. A page of the web may
map its own name to our address (DNS rebinding): then the Host header is that name. It may send a
form or open a websocket across origins, which CORS does not stop: then the Origin header is its
own.
"""

import base64
import hashlib
import hmac
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HEALTH = "/_stcore/health"
"""Streamlit's health check; it reveals nothing else, so it needs no password."""
LOGOUT = "/logout"
SESSION_SECONDS = 12 * 3600

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Address:
    """Where a server is reached: at a port of this machine by `names`, and perhaps at the `public`
    URL of a proxy."""

    port: int
    names: tuple[str, ...] = ("127.0.0.1", "localhost")
    public: str = ""

    @property
    def origins(self) -> set[str]:
        public = urlsplit(self.public)
        ours = {f"http://{name}:{self.port}" for name in self.names}
        return ours | ({f"{public.scheme}://{public.netloc}"} if self.public else set())

    @property
    def prefix(self) -> str:
        """The path of the public URL, which all paths of the server begin with; "" for none."""
        return urlsplit(self.public).path.rstrip("/")

    def is_public(self, host: str) -> bool:
        """Whether this Host header is the proxy's."""
        return bool(self.public) and host == urlsplit(self.public).netloc


class AccessControl:
    """ASGI middleware: only requests to `address`, from its own pages, are answered, and no other
    page may frame ours.

    A Host header may have any port (a tunnel changes it). With `secret` (user:password) the browser
    is asked for it (HTTP basic) and then keeps a cookie, because not every browser sends a password
    with a websocket. A browser sends cookies to every port of a host, hence to servers of other
    users: so one counts only if it comes from a program of this user or through the TLS of a proxy,
    and until SESSION_SECONDS or a logout. `open_paths` need no password.
    """

    def __init__(
        self, app: App, address: Address, secret: str | None = None, open_paths: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._address = address
        self._secret = secret
        self._open = {address.prefix + path for path in open_paths}
        # What another server, or this one before, has signed counts for nothing.
        self._key = secrets.token_bytes(32)
        self._headers = _security_headers(address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1").lower(): value.decode("latin-1")
            for key, value in scope["headers"]
        }
        host = headers.get("host", "")
        cookie = "__Host-rpg" if self._address.is_public(host) else f"rpg-{self._address.port}"
        send = _adding(send, self._headers)
        # `[::1]` of `[::1]:4200`, `localhost` of `localhost:4200`
        name = (
            host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0].lower()
        )
        if name not in self._address.names and not self._address.is_public(host):
            await _refuse(scope, send, 400, "this server does not answer to that host name")
        elif "origin" in headers and headers["origin"] not in self._address.origins:
            await _refuse(scope, send, 403, "a page of another origin may not call this server")
        elif self._secret is None or scope["path"] in self._open:
            await self._app(scope, receive, send)
        elif scope["path"] == self._address.prefix + LOGOUT:
            if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
                self._key = secrets.token_bytes(32)
            await _refuse(scope, send, 401, "you are logged out", (b"www-authenticate", _REALM))
        elif self._has_cookie(cookie, headers, scope):
            await self._app(scope, receive, send)
        elif self._has_password(headers):
            value = (
                f"{cookie}={self._token(cookie, int(time.time()) + SESSION_SECONDS)}; "
                f"Max-Age={SESSION_SECONDS}"
            )
            flags = "; Path=/; HttpOnly; SameSite=Strict"
            if cookie.startswith("__Host-"):
                flags += "; Secure"
            await self._app(
                scope, receive, _adding(send, [(b"set-cookie", (value + flags).encode())])
            )
        else:
            await _refuse(scope, send, 401, "a password is needed", (b"www-authenticate", _REALM))

    def _has_password(self, headers: dict[str, str]) -> bool:
        kind, _, encoded = headers.get("authorization", "").partition(" ")
        try:
            credentials = base64.b64decode(encoded, validate=True)
        except ValueError:
            return False
        return kind.lower() == "basic" and hmac.compare_digest(
            credentials, (self._secret or "").encode()
        )

    def _token(self, name: str, expires: int) -> str:
        signed = hmac.new(self._key, f"{name} {expires}".encode(), hashlib.sha256)
        return f"{expires}-{signed.hexdigest()}"

    def _has_cookie(self, name: str, headers: dict[str, str], scope: Scope) -> bool:
        try:
            value = SimpleCookie(headers.get("cookie", ""))[name].value
        except (CookieError, KeyError):
            return False
        expires = value.partition("-")[0]
        if not (expires.isascii() and expires.isdecimal()) or int(expires) < time.time():
            return False
        valid = hmac.compare_digest(value.encode(), self._token(name, int(expires)).encode())
        return valid and (name.startswith("__Host-") or _is_of_this_user(scope))


_REALM = b'Basic realm="rpg"'


def _security_headers(address: Address) -> list[tuple[bytes, bytes]]:
    """Pages load nothing from elsewhere and stand in no frame of others. Streamlit and Vega need
    inline and made scripts."""
    policy = (
        "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' "
        "blob:; object-src 'none'; "
        "style-src 'self' 'unsafe-inline'; connect-src 'self' data: blob: "
        f"{' '.join(sorted(address.origins))}; "
        "base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-frame-options", b"SAMEORIGIN"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"same-origin"),
    ]


def _adding(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    """Add headers to every response."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return sending


def _is_of_this_user(scope: Scope) -> bool:
    """Whether the other end of a connection is a program of our own user on this machine, by the
    kernel's table."""
    try:
        ends = [
            f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}"
            for host, port in (scope["client"], scope["server"])
        ]
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    except (
        KeyError,
        TypeError,
        ValueError,
        OSError,
    ):  # IPv6, a test without a connection, another system
        return False
    connections = (line.split() for line in lines)
    return any(fields[1:3] == ends and int(fields[7]) == os.getuid() for fields in connections)


async def _refuse(
    scope: Scope, send: Send, status: int, why: str, *headers: tuple[bytes, bytes]
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    content_type = (b"content-type", b"text/plain; charset=utf-8")
    await send(
        {"type": "http.response.start", "status": status, "headers": [content_type, *headers]}
    )
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})
