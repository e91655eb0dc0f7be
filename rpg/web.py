"""Access control for every port that `rpg serve` opens: our own host names and origins only, and the password if one is set.

Listening on loopback does not protect from a page in the user's own browser. A page of the web may map its own name to
our address (DNS rebinding): then the Host header is that name. It may send a form or open a websocket across origins,
which CORS does not stop: then the Origin header is its own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

HEALTH = "/_stcore/health"
"""Streamlit's health check; it reveals nothing else, so it needs no password."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class AccessControl:
    """ASGI middleware.

    `names` are the accepted host names, with any port in the Host header (a tunnel may change it); a page that calls
    must come from one of `origins`. With `secret` (user:password) the browser is asked for it (HTTP basic) and then
    keeps a cookie, because not every browser sends a password with a websocket. `open_paths` need none.
    """

    def __init__(
        self,
        app: App,
        names: Iterable[str],
        origins: Iterable[str],
        secret: str | None = None,
        open_paths: Iterable[str] = (),
    ) -> None:
        self._app, self._names, self._origins = app, frozenset(names), frozenset(origins)
        self._secret, self._open = secret, frozenset(open_paths)
        self._token = hmac.new((secret or "").encode(), b"rpg dashboard", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        if _name(headers.get("host", "")) not in self._names:
            await _refuse(scope, send, 400, "this server does not answer to that host name")
        elif "origin" in headers and headers["origin"] not in self._origins:
            await _refuse(scope, send, 403, "a page of another origin may not call this server")
        elif self._secret is None or scope["path"] in self._open or self._has_cookie(headers):
            await self._app(scope, receive, send)
        elif self._has_password(headers):
            await self._app(scope, receive, self._with_cookie(send))
        else:
            await _refuse(
                scope, send, 401, "a password is needed", (b"www-authenticate", b'Basic realm="rpg"')
            )

    def _has_password(self, headers: dict[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        try:
            credentials = base64.b64decode(given, validate=True)
        except ValueError:
            return False
        return kind.lower() == "basic" and hmac.compare_digest(credentials, (self._secret or "").encode())

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return "rpg" in cookies and hmac.compare_digest(cookies["rpg"].value.encode(), self._token.encode())

    def _with_cookie(self, send: Send) -> Send:
        cookie = f"rpg={self._token}; Path=/; HttpOnly; SameSite=Strict".encode()

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), (b"set-cookie", cookie)]}
            await send(message)

        return sending


class RetryBusy:
    """ASGI middleware around Prefect's app: a write that SQLite refused is tried again, as Prefect's own client does.

    Prefect answers 503, and has rolled back, when another transaction wrote between its reading and its writing. Its UI
    and most other clients do not ask again. Those that were refused go one after the other.
    """

    TRIES, WAIT = 10, 0.02

    def __init__(self, app: App) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # the client has gone
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if await self._answered(scope, body, receive, send):
            return
        async with self._turn:
            for attempt in range(1, self.TRIES + 1):
                if await self._answered(scope, body, receive, send, last=attempt == self.TRIES):
                    return
                await asyncio.sleep(self.WAIT * 2**attempt)

    async def _answered(
        self, scope: Scope, body: bytes, receive: Receive, send: Send, last: bool = False
    ) -> bool:
        """Pass the request on. False if it was refused, of which the client learns from the `last` refusal only."""
        is_read, refused = False, False

        async def receiving() -> MutableMapping[str, Any]:
            nonlocal is_read
            if is_read:
                return await receive()  # that the client goes
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal refused
            refused = refused or (message["type"] == "http.response.start" and message["status"] == 503)
            if last or not refused:
                await send(message)

        try:
            await self._app(dict(scope), receiving, sending)
        except Exception:
            if last or not refused:  # Starlette raises what it has answered
                raise
        return not refused


def origins_of(names: Iterable[str], port: int) -> list[str]:
    return [f"http://{name}:{port}" for name in names]


def _name(host: str) -> str:
    """`[::1]:4200` -> `[::1]`, `localhost:4200` -> `localhost`."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0].lower()


async def _refuse(scope: Scope, send: Send, status: int, why: str, *headers: tuple[bytes, bytes]) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    content_type = (b"content-type", b"text/plain; charset=utf-8")
    await send({"type": "http.response.start", "status": status, "headers": [content_type, *headers]})
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})
