"""Servers of our own on this machine are asked directly, whatever proxy the environment names."""

import http.server
import os
import threading

import httpx
import pytest

from rpg.system.processes import ask_directly, child_environment
from tests.real_sweep import SWEEP, TRIVIAL, rpg

API = "http://127.0.0.1:4321/api"


@pytest.fixture
def proxy():
    """(address of a proxy that refuses everything, the requests it saw)"""
    requests = []

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(f"{self.command} {self.path}")
            self.send_error(502)

        do_POST = do_CONNECT = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()


@pytest.mark.system
@pytest.mark.component
def test_a_sweep_with_a_server_of_its_own_sends_nothing_to_a_proxy(tmp_path, proxy):
    address, requests = proxy
    (tmp_path / "s.yaml").write_text(SWEEP.format(name="s", steps=2, every=2, seeds=[0]))
    proxies = {"HTTP_PROXY": address, "https_proxy": address, "ALL_PROXY": "socks5h://127.0.0.1:9"}

    done = rpg(tmp_path, "sweep", "s.yaml", module=TRIVIAL, **proxies)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert requests == []


def test_a_client_can_be_made_within_though_its_proxy_needs_a_package(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "intranet.example")

    with ask_directly(API):
        httpx.Client().close()
        assert child_environment()["NO_PROXY"] == "intranet.example,127.0.0.1,localhost,::1"

    assert os.environ["NO_PROXY"] == "intranet.example"
    assert "no_proxy" not in os.environ


def test_children_keep_the_users_proxies_for_everything_else(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,.corp.example")

    environment = child_environment()

    assert environment["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert environment["no_proxy"] == environment["NO_PROXY"]
    assert environment["no_proxy"] == "127.0.0.1,.corp.example,localhost,::1"


def test_an_api_elsewhere_is_asked_through_the_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "x")
    with ask_directly("https://prefect.example/api"):
        assert os.environ["NO_PROXY"] == "x"
