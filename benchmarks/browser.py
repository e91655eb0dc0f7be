"""The dashboard as its users meet it: a real server on loopback and a headless Chromium."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
START_SECONDS = 240.0
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking "
    "--disable-component-update --disable-sync --disable-3d-apis"
).split()
"""No WebGL: without a GPU the moving picture on a flow run's page in Prefect's UI takes most of a
core."""
QUICK_FLAGS = [*FLAGS, "--js-flags=--no-opt"]
"""Without the compilers for scripts that run for long: a sixth of the time for pages that are
looked at once."""
# A run has ended since, nothing is stale, and every chart is drawn. `ready`: what the page is for.
IDLE = """([ended, ready]) => {
  const app = document.querySelector('[data-testid=stApp]');
  return app?.dataset.testScriptState === 'notRunning' && (window.ended ?? 1) > ended
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')
    && document.querySelector(ready)
    && [...document.querySelectorAll('[data-testid=stVegaLiteChart]')]
      .every(c => c.querySelector('.marks'));
}"""
# Counts the script runs that have ended since the page was loaded: an attribute says whether one is
# going on.
COUNT = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  window.ended = 0;
  let before = app.dataset.testScriptState;
  new MutationObserver(() => {
    const now = app.dataset.testScriptState;
    if (before === 'running' && now === 'notRunning') window.ended += 1;
    before = now;
  }).observe(app, {attributes: true});
}"""


@contextmanager
def dashboard(home: Path, secret: str = "") -> Iterator[tuple[str, psutil.Process]]:
    """Serve the dashboard of a data folder; yields its address and its process. With `secret`
    (user:password) it asks for it, as under `rpg serve --auth`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"RPG_HOME": str(home), "PYTHONPATH": str(ROOT)}
    if secret:
        environment |= {"RPG_AUTH": secret}
    program = [sys.executable, "-m", "rpg.system.processes"]  # as `rpg dashboard` starts it
    command = [*program, "dashboard", "127.0.0.1", str(port)]
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/_stcore/health"):
            if server.poll() is not None or time.monotonic() > deadline:
                server.kill()
                raise RuntimeError(
                    f"the dashboard did not start: {server.communicate()[0].decode()}"
                )
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", psutil.Process(server.pid)
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        return urllib.request.urlopen(url, timeout=5).status == 200
    except OSError:
        return False
