"""How long the dashboard's pages take to answer in a real browser, and the memory of its server.

    python -m benchmarks.dashboard --home DIR [--chromium /usr/bin/chromium]

DIR is a data folder with a database, such as the one that `python -m benchmarks.aggregate --home
DIR` leaves. For every page: opening it in a session that has seen another page, and choosing
another sweep there. The clock stops when Streamlit has nothing left to do and the last chart or
table is drawn; each figure is the median of three.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.browser import CHROMIUM, COUNT, FLAGS, IDLE, dashboard
from rpg.store import Layout, queries
from rpg.store.database import build, connect

READY = {
    "Overview": "[data-testid=stDataFrame] canvas",
    "Curves": "[data-testid=stVegaLiteChart] .marks",
    "Table": "table.rpg",
    "Why": "[data-testid=stVegaLiteChart] .marks",
    "Paper": "table.rpg",
    "One run": "[data-testid=stVegaLiteChart] .marks",
}
SECTIONS = {"Curves": "Compare", "Table": "Compare", "Why": "Compare", "Paper": "Compare"} | {
    "One run": "Runs"
}
"""The entry of the top row that leads to a page's neighbours."""
PATHS = {"Overview": "/", "Curves": "compare", "One run": "run"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--chromium", default=CHROMIUM)
    options = parser.parse_args()
    layout = Layout.at(options.home)
    build(layout)
    with connect(layout) as db:
        sweeps = queries.sweeps(db)["sweep"].tolist()[:4]
    with dashboard(layout.home) as (address, server), sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=options.chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 900})
        page.set_default_timeout(60_000)
        measure(page, address, sweeps)
        browser.close()
        print(f"memory of the server: {server.memory_info().rss / 1e6:.0f} MB")


def measure(page: Page, address: str, sweeps: list[str]) -> None:
    begin = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(READY["Overview"])
    print(f"first page of a fresh server: {time.perf_counter() - begin:.1f} s")
    page.evaluate(COUNT)
    opening: dict[str, list[float]] = {name: [] for name in READY}
    choosing: dict[str, list[float]] = {name: [] for name in READY if name != "Curves"}
    others = itertools.cycle(sweeps[1:] + sweeps[:1])
    for name in [*READY] * 3:
        if name in SECTIONS:
            page.get_by_role("link", name=SECTIONS[name], exact=True).click()
            page.get_by_role("link", name=name, exact=True).wait_for()
        page.wait_for_timeout(1000)  # nothing of the previous step is going on any more
        ended = page.evaluate("window.ended")
        begin = time.perf_counter()
        page.get_by_role("link", name=name, exact=True).click()
        path = PATHS.get(name, name.lower())
        page.wait_for_function(f"location.pathname.endsWith('{path}')")
        settle(page, name, ended)
        opening[name].append(time.perf_counter() - begin)
        if name in choosing:
            sweep = next(others)
            box = page.locator(
                "[data-testid=stSelectbox]", has=page.get_by_text("Sweep", exact=True)
            )
            box.locator("input").click()
            ended, begin = page.evaluate("window.ended"), time.perf_counter()
            page.get_by_role("option", name=sweep, exact=True).click()
            page.wait_for_function(
                "([box, sweep]) => box.innerText.includes(sweep) || "
                "box.querySelector('input').value === sweep",
                arg=[box.element_handle(), sweep],
            )
            settle(page, name, ended)
            choosing[name].append(time.perf_counter() - begin)
    for name, seconds in opening.items():
        chosen = (
            f", another sweep {statistics.median(choosing[name]):.2f} s" if name in choosing else ""
        )
        print(f"{name}: open {statistics.median(seconds):.2f} s{chosen}")


def settle(page: Page, name: str, ended: int) -> None:
    page.wait_for_function(IDLE, arg=[ended, READY[name]])


if __name__ == "__main__":
    main()
