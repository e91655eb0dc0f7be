"""How long the dashboard's pages take to answer in a real browser, and the memory of its server.

    python -m benchmarks.dashboard --home DIR [--chromium /usr/bin/chromium]

DIR is a data folder with a database, such as the one that `python -m benchmarks.aggregate --home
DIR` leaves. For every page: opening it in a session that has seen another page, and choosing
another sweep there. Two times each: until its answer is there (the sentence, the table or the first
chart), and until Streamlit has nothing left to do and the last chart or table is drawn; each figure
is the median of three.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.browser import CHROMIUM, COUNT, FLAGS, IDLE, dashboard
from rpg.store import Layout, queries
from rpg.store.database import build, connect

CHART = "[data-testid=stVegaLiteChart] .marks"
READY = {
    "Overview": "[data-testid=stDataFrame] canvas",
    "Curves": CHART,
    "Table": "table.rpg",
    "Why": CHART,
    "Paper": "table.rpg",
    "One run": CHART,
}
ANSWERS = READY | {"Overview": ".rpganswer"}
SECTIONS = {"Table": "Compare", "Why": "Compare", "Paper": "Compare", "One run": "Runs"}
"""The entry of the top row that leads to a page's neighbours."""
LINKS = {"Curves": "Compare"}
"""What is clicked on where it is not called as the page is."""
PATHS = {"Overview": "/", "Curves": "compare", "One run": "run"}
FOLLOWS = ("Overview", "Table", "Why", "One run")
"""Pages whose answer is another one for another sweep."""
MARK = "answer => document.querySelectorAll(answer).forEach(one => one.dataset.before = '')"
NEW = f"""([answer, ended, ready]) => [...document.querySelectorAll(answer)].some(
  one => !('before' in one.dataset) && !one.closest('[data-stale=true]'))
  || ({IDLE})([ended, ready])"""
"""Or the page is whole, with an answer that is the same as before."""


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
    follow(page, "Curves")  # Overview is opened from another page, too
    page.wait_for_selector(CHART)
    opening: dict[str, list[Seconds]] = {name: [] for name in READY}
    choosing: dict[str, list[Seconds]] = {name: [] for name in FOLLOWS}
    others = itertools.cycle(sweeps[1:] + sweeps[:1])
    for name in [*READY] * 3:
        if name in SECTIONS:
            page.get_by_role("link", name=SECTIONS[name], exact=True).click()
            page.get_by_role("link", name=name, exact=True).wait_for()
        opening[name].append(timed(page, name, partial(follow, page, name)))
        if name in FOLLOWS:
            choosing[name].append(timed(page, name, chooser(page, next(others))))
    for name, seconds in opening.items():
        line = f"{name}: open {median(seconds)}"
        if name in FOLLOWS:
            line += f"; another sweep {median(choosing[name])}"
        print(line)


Seconds = tuple[float, float]
"""Until the answer is there, and until the page is whole."""


def median(seconds: list[Seconds]) -> str:
    answer, whole = (statistics.median(each) for each in zip(*seconds, strict=True))
    return f"answer {answer:.2f} s, whole {whole:.2f} s"


def timed(page: Page, name: str, act: Callable[[], None]) -> Seconds:
    page.wait_for_timeout(1000)  # nothing of the previous step is going on any more
    page.evaluate(MARK, ANSWERS[name])
    ended = page.evaluate("window.ended")
    begin = time.perf_counter()
    act()
    page.wait_for_function(NEW, arg=[ANSWERS[name], ended, READY[name]])
    answered = time.perf_counter() - begin
    page.wait_for_function(IDLE, arg=[ended, READY[name]])
    return answered, time.perf_counter() - begin


def follow(page: Page, name: str) -> None:
    page.get_by_role("link", name=LINKS.get(name, name), exact=True).click()
    path = PATHS.get(name, name.lower())
    page.wait_for_function(f"location.pathname.endsWith('{path}')")


def chooser(page: Page, sweep: str) -> Callable[[], None]:
    """Opens the list of sweeps; returns what chooses one in it."""
    box = page.locator("[data-testid=stSelectbox]", has=page.get_by_text("Sweep", exact=True))
    box.locator("input").click()

    def choose() -> None:
        page.get_by_role("option", name=sweep, exact=True).click()

    return choose


if __name__ == "__main__":
    main()
