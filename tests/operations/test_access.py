"""Who may call what: host names, origins, methods, the password; and that the password is nowhere
to be read."""

import asyncio
import base64
import os
import subprocess
import sys
import threading
import time

import httpx
import pytest
import uvicorn

from flows.serve.services import secret_of
from rpg.config.errors import ConfigError
from rpg.store import StoreError
from rpg.system import web
from rpg.system.web import LOGOUT, SESSION_SECONDS, AccessControl, Address
from tests.waiting import free_port, until

PUBLIC = "https://lab.example/rpg"
SECRET = "anna:correct horse"


async def inner(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"in"})


def ask(guard, method="GET", path="/", **headers):
    async def one():
        transport = httpx.ASGITransport(guard)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:4200"
        ) as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(one())


def socket(guard, **headers):
    """What the guard says to a websocket."""
    said = []

    async def send(message):
        said.append(message["type"])

    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(
        guard({"type": "websocket", "path": "/_stcore/stream", "headers": pairs}, None, send)
    )
    return said


def basic(secret):
    return "Basic " + base64.b64encode(secret.encode()).decode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_names_and_other_origins_are_refused_on_every_method(method):
    guard = AccessControl(inner, Address(4200))
    assert ask(guard, method).status_code == 200
    assert ask(guard, method, host="localhost:9999").status_code == 200, "through a tunnel"
    for name in (
        "rebound.example:4200",
        "127.0.0.1.example",
        "localhost.example:4200",
        "",
        "[::1]:4200",
    ):
        assert ask(guard, method, host=name).status_code == 400, name
    assert ask(guard, method, origin="http://localhost:4200").status_code == 200
    others = ("null", "http://127.0.0.1:8501", "http://localhost:4200.evil.example")
    for origin in ("https://evil.example", *others):
        assert ask(guard, method, origin=origin).status_code == 403, origin


def test_no_other_page_may_frame_it_or_add_what_it_loads():
    for guard in (AccessControl(inner, Address(4200)), AccessControl(inner, Address(4200), SECRET)):
        headers = ask(guard).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["frame-ancestors"] == "'self'"
        assert headers["x-frame-options"] == "SAMEORIGIN"
        assert not any("*" in sources or "https:" in sources for sources in policy.values())


def test_a_websocket_needs_the_password_and_our_host_and_origin():
    guard = AccessControl(inner, Address(8501), SECRET)
    ours = {"host": "127.0.0.1:8501", "origin": "http://127.0.0.1:8501"}
    assert socket(guard, **ours, authorization=basic(SECRET)) == ["websocket.accept"]
    assert socket(guard, **ours) == ["websocket.close"]
    for other in ({"origin": "https://evil.example"}, {"host": "rebound.example"}):
        assert socket(guard, **ours | other, authorization=basic(SECRET)) == ["websocket.close"]


def cookie_of(response):
    made = response.headers["set-cookie"]
    assert "HttpOnly" in made
    assert "SameSite=Strict" in made
    assert f"Max-Age={SESSION_SECONDS}" in made
    assert "horse" not in made
    return made.partition(";")[0]


def test_a_cookie_ends_and_counts_for_one_server_only(monkeypatch):
    """Behind a proxy with TLS, where the other end of the connection is the proxy."""
    guard, other = (AccessControl(inner, Address(8501, public=PUBLIC), SECRET) for _ in range(2))
    there = {"host": "lab.example", "origin": "https://lab.example"}
    login = ask(guard, authorization=basic(SECRET), **there)
    cookie = cookie_of(login)
    assert cookie.startswith("__Host-rpg=")
    assert "; Secure" in login.headers["set-cookie"]
    assert socket(guard, **there, cookie=cookie) == ["websocket.accept"]
    assert ask(guard, path="/rpg/", **there, cookie=cookie).status_code == 200
    assert ask(other, path="/rpg/", **there, cookie=cookie).status_code == 401, (
        "another server signed it"
    )
    assert ask(guard, path="/rpg/", cookie=cookie).status_code == 401, "not at the port itself"
    expires, _, signature = cookie.partition("=")[2].partition("-")
    later = f"__Host-rpg={int(expires) + 1}-{signature}"
    assert ask(guard, path="/rpg/", **there, cookie=later).status_code == 401
    now = time.time()
    monkeypatch.setattr(web.time, "time", lambda: now + SESSION_SECONDS + 1)
    assert ask(guard, path="/rpg/", **there, cookie=cookie).status_code == 401
    monkeypatch.undo()
    forged = {"sec-fetch-site": "cross-site"}
    assert ask(guard, path=f"/rpg{LOGOUT}", **there, **forged).status_code == 401
    assert ask(guard, path="/rpg/", **there, cookie=cookie).status_code == 200, (
        "no other page logs one out"
    )
    assert "logged out" in ask(guard, path=f"/rpg{LOGOUT}", **there).text
    assert ask(guard, path="/rpg/", **there, cookie=cookie).status_code == 401


@pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="needs two users of a Linux machine"
)
def test_a_cookie_that_another_user_has_got_opens_nothing():
    """A browser sends the cookies of 127.0.0.1 to every port there, hence to servers of other
    users."""
    port = free_port()
    guard = AccessControl(inner, Address(port), SECRET)
    server = uvicorn.Server(uvicorn.Config(guard, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server")
        page = f"http://127.0.0.1:{port}/"
        cookie = cookie_of(httpx.get(page, auth=tuple(SECRET.split(":"))))
        assert cookie.startswith(f"rpg-{port}=")
        assert httpx.get(page, headers={"cookie": cookie}).status_code == 200
        asks = (
            f"import urllib.request as u; u.urlopen(u.Request({page!r}, headers={{'cookie': "
            f"{cookie!r}}}))"
        )
        thief = subprocess.run(
            ["/usr/bin/env", "python3", "-c", asks],
            user=65534,
            capture_output=True,
            text=True,
            cwd="/",
        )
        assert "HTTP Error 401" in thief.stderr
    finally:
        server.should_exit = True
        thread.join()


def test_the_password_is_asked_for_and_nothing_else_opens():
    guard = AccessControl(inner, Address(8501), SECRET, ["/health"])
    refused = ask(guard)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic")
    assert ask(guard, path="/health").status_code == 200
    assert ask(guard, authorization=basic(SECRET)).text == "in"
    digest = basic(SECRET).replace("Basic", "Digest")
    for wrong in (basic("anna:wrong"), basic(""), "Basic !!!", "Bearer x", digest):
        assert ask(guard, authorization=wrong).status_code == 401, wrong
    for cookie in (
        "rpg-8501=",
        "rpg-8501=0",
        "other=1",
        'rpg-8501="',
        "rpg-8501=\xff",
        "rpg-8501=9999999999-0",
    ):
        assert ask(guard, cookie=cookie.encode("latin-1")).status_code == 401, cookie


def test_where_the_password_comes_from(tmp_path):
    assert secret_of(tmp_path, None, {}) is None
    assert secret_of(tmp_path, False, {"RPG_AUTH": SECRET}) is None
    assert secret_of(tmp_path, None, {"RPG_AUTH": SECRET}) == SECRET
    assert secret_of(tmp_path, None, {"PREFECT_SERVER_API_AUTH_STRING": SECRET}) == SECRET
    for wrong in ("anna", "anna:", ":horse", "anna:ho\nrse"):
        with pytest.raises(ConfigError, match="RPG_AUTH: expected user:password"):
            secret_of(tmp_path, True, {"RPG_AUTH": wrong})
    made = secret_of(tmp_path, True, {})
    assert made == secret_of(tmp_path, True, {})
    assert len(made) > 20
    file = tmp_path / "serve" / "auth"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(StoreError, match="other users can read this password"):
        secret_of(tmp_path, True, {})


@pytest.mark.component
def test_without_auth_it_says_what_that_means(served):
    assert "anyone with an account on this machine can start runs here" in served.log.read_text()
    pause = "/deployments/name/nightly/nightly"
    deployment = served.api.get(pause).json()["id"]
    headers = {"origin": "https://evil.example", "content-type": "text/plain"}
    assert (
        served.api.post(f"/deployments/{deployment}/pause_deployment", headers=headers).status_code
        == 403
    )
    for page in (served.dashboard, f"{served.ui}/api/health"):
        assert httpx.get(page, headers={"host": "rebound.example"}, timeout=60).status_code == 400
