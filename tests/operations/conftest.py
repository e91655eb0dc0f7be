"""One `rpg serve` for all tests of this folder, on free ports, with a data folder of its own; a tab
of a browser."""

import re

import pytest

from benchmarks.browser import CHROMIUM, QUICK_FLAGS
from tests.operations.serving import Served
from tests.waiting import HANG


@pytest.fixture(
    scope="package"
)  # to the end of its group: a server that nobody asks takes time from other tests
def served(tmp_path_factory):
    one = Served(tmp_path_factory.mktemp("served"))
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="module")
def page():
    """A tab that fails the test when anything but loopback is asked."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    outside = []
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=QUICK_FLAGS)
        tab = browser.new_page(viewport={"width": 1366, "height": 1400})
        tab.context.set_default_timeout(1000 * HANG)
        tab.on(
            "request", lambda request: outside.append(request.url) if _leaves(request.url) else None
        )
        yield tab
        browser.close()
    assert outside == []


def _leaves(url):
    return not re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", url)


@pytest.fixture
def no_server(monkeypatch):
    """An address at which no Prefect answers, and which nobody asks.

    Prefect reads its settings once in a process: they are read before, so that no later test gets
    this address.
    """
    from prefect.settings import PREFECT_API_URL

    assert not PREFECT_API_URL.value()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
