"""How long the dashboard's pages take to answer in a real browser, and the memory of its server.

    python -m benchmarks.dashboard --home DIR [--chromium /usr/bin/chromium]

DIR is a data folder with a database, such as the one that `python -m benchmarks.aggregate --home DIR` leaves. For
every page: opening it in a session that has seen another page, and choosing another sweep there. The clock stops when
Streamlit has nothing left to do and the last chart or table is drawn; each figure is the median of three.
"""

import argparse
import itertools
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
from playwright.sync_api import Page, sync_playwright

from rpg.store import Layout, queries
from rpg.store.database import build, connect

ROOT = Path(__file__).resolve().parents[1]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
# Counts the script runs that have ended since the page was loaded: the element says whether one is going on.
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
# A run has ended, nothing is stale, what the page is for is there and every chart is drawn.
IDLE = """ended => window.ended > ended && !document.querySelector('[data-stale=true]') && document.querySelector({ready})
  && [...document.querySelectorAll('[data-testid=stVegaLiteChart]')].every(chart => chart.querySelector('.marks'))"""
READY = {
    "Overview": "[data-testid=stDataFrame] canvas",
    "Compare": "[data-testid=stVegaLiteChart] .marks",
    "Table": "table.rpg",
    "Why": "[data-testid=stVegaLiteChart] .marks",
    "Paper": "table.rpg",
    "Run": "[data-testid=stVegaLiteChart] .marks",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    options = parser.parse_args()
    layout = Layout.at(options.home)
    build(layout)
    with connect(layout) as db:
        sweeps = queries.sweeps(db)["sweep"].tolist()[:4]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(ROOT / "dashboard" / "app.py"),
        "--server.port",
        str(port),
    ]
    environment = os.environ | {"RPG_HOME": str(layout.home), "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        while not answers(address):
            time.sleep(0.2)
        with sync_playwright() as runner:
            browser = runner.chromium.launch(executable_path=options.chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1366, "height": 900})
            page.set_default_timeout(60_000)
            measure(page, address, sweeps)
            browser.close()
        memory = psutil.Process(server.pid).memory_info().rss / 1e6
        print(f"memory of the server: {memory:.0f} MB")
    finally:
        server.kill()
        server.wait()


def answers(address: str) -> bool:
    try:
        return urllib.request.urlopen(f"{address}/_stcore/health", timeout=5).status == 200
    except OSError:
        return False


def measure(page: Page, address: str, sweeps: list[str]) -> None:
    begin = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(READY["Overview"])
    print(f"first page of a fresh server: {time.perf_counter() - begin:.1f} s")
    page.evaluate(COUNT)
    opening: dict[str, list[float]] = {name: [] for name in READY}
    choosing: dict[str, list[float]] = {name: [] for name in READY if name != "Compare"}
    others = itertools.cycle(sweeps[1:] + sweeps[:1])
    for name in [*READY] * 3:
        page.wait_for_timeout(1000)  # nothing of the previous step is going on any more
        ended, begin = page.evaluate("window.ended"), time.perf_counter()
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_function(f"location.pathname.endsWith('{'/' if name == 'Overview' else name.lower()}')")
        settle(page, name, ended)
        opening[name].append(time.perf_counter() - begin)
        if name in choosing:
            sweep = next(others)
            box = page.locator("[data-testid=stSelectbox]", has=page.get_by_text("Sweep", exact=True))
            box.locator("input").click()
            ended, begin = page.evaluate("window.ended"), time.perf_counter()
            page.get_by_role("option", name=sweep, exact=True).click()
            page.wait_for_function(
                "([box, sweep]) => box.innerText.includes(sweep) || box.querySelector('input').value === sweep",
                arg=[box.element_handle(), sweep],
            )
            settle(page, name, ended)
            choosing[name].append(time.perf_counter() - begin)
    for name, seconds in opening.items():
        chosen = f", another sweep {statistics.median(choosing[name]):.2f} s" if name in choosing else ""
        print(f"{name}: open {statistics.median(seconds):.2f} s{chosen}")


def settle(page: Page, name: str, ended: int) -> None:
    page.wait_for_function(IDLE.replace("{ready}", repr(READY[name])), arg=ended)


if __name__ == "__main__":
    main()
