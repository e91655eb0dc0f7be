"""How long a published page takes to its first view in a real browser.

    python -m benchmarks.published --runs 1000

A made-up sweep of seven variants is published with samples, and its page is opened from the file.
Printed are the size of the page and, medians of three: the first text that is seen, and the page
with all that stands near the window drawn.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.browser import CHROMIUM, FLAGS
from benchmarks.synthetic import VARIANTS, Shape, write_sweep
from rpg.report.publishing import of_sweep, write
from rpg.store.database import build, connect

SHAPE = Shape(steps=8, eval_every=4, problems=6, samples=2, benchmarks=("easy", "hard"), metrics=6)
SAMPLES = 2_000_000
"""Bytes of samples."""
FIRST_TEXT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
DRAWN = """() => [...document.querySelectorAll('.chart')].every(
  chart => chart.getBoundingClientRect().top > innerHeight || chart.querySelector('svg.marks'))"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    seeds = range(-(-options.runs // len(VARIANTS)))
    with tempfile.TemporaryDirectory() as folder:
        layout = write_sweep(Path(folder) / "home", "many", VARIANTS, seeds, SHAPE)
        build(layout)
        begin = time.perf_counter()
        with connect(layout) as db:
            page, *_ = write(of_sweep(layout, db, "many", SAMPLES), Path(folder) / "page", layout)
        seconds = time.perf_counter() - begin
        print(f"published in {seconds:.1f} s: {page.stat().st_size / 1e6:.1f} MB")
        views = [first_view(page) for _ in range(3)]
    text, drawn = (statistics.median(times) for times in zip(*views, strict=True))
    print(f"{len(seeds) * len(VARIANTS)} runs: text {text:.2f} s, charts in view {drawn:.2f} s")


def first_view(path: Path) -> tuple[float, float]:
    """Seconds to the first text, and until every chart in the window is drawn."""
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 900})
        begin = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        drawn = time.perf_counter() - begin
        page.wait_for_function(f"{FIRST_TEXT} !== undefined")
        text = page.evaluate(FIRST_TEXT) / 1000
        browser.close()
    return text, drawn


if __name__ == "__main__":
    main()
