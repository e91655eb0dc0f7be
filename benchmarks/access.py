"""What a screen reader or a keyboard meets on the dashboard's pages: axe-core in a real browser.

    pip install axe-playwright-python      # into an environment with the dashboard and playwright
    python -m benchmarks.access --home rpg-data

For every page, scheme and width: the serious and critical findings, each with the element that it
is about. Those inside Streamlit's own widgets are listed apart, since we can only report them.
Exit code 1: a finding is ours.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.browser import CHROMIUM, FLAGS, IDLE, dashboard
from benchmarks.screenshots import VIEWS
from rpg.store import Layout
from rpg.store.database import build

PAGES = ("overview", "compare", "table", "problems", "runs", "run", "nightly", "studies")
GRAVE = ("serious", "critical")
OURS = "[class*=rpg], [data-testid=stHtml], .vega-embed"
"""What we write ourselves: HTML of our own, and charts."""


@dataclass(frozen=True)
class Finding:
    rule: str
    impact: str
    element: str
    """The beginning of its HTML."""
    is_ours: bool
    message: str


def findings(page: Page) -> Iterator[Finding]:
    """The serious and critical findings of axe-core on the page as it stands."""
    from axe_playwright_python.sync_playwright import Axe

    for violation in Axe().run(page).response["violations"]:
        if violation["impact"] in GRAVE:
            for node in violation["nodes"]:
                yield _finding(page, violation, node)


def _finding(page: Page, violation: Mapping[str, Any], node: Mapping[str, Any]) -> Finding:
    selector = node["target"][0]
    is_ours = bool(
        page.evaluate(
            "([selector, ours]) => !!document.querySelector(selector)?.closest(ours)",
            [selector, OURS],
        )
    )
    checks = [*node["any"], *node["all"], *node["none"]]
    message = checks[0]["message"] if checks else violation["help"]
    element = " ".join(node["html"].split())[:120]
    return Finding(violation["id"], violation["impact"], element, is_ours, message)


def look(
    browser: Browser, address: str, sweep: str, width: int, scheme: Literal["light", "dark"]
) -> list[Finding]:
    """Print what axe finds on every page, and return it."""
    found = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(300_000)
    for name in PAGES:
        page.goto(f"{address}/{VIEWS[name].format(sweep=sweep)}")
        page.wait_for_function(IDLE, arg=[0, "[data-testid=stVerticalBlock]"])
        page.wait_for_timeout(1500)  # charts fade in
        here = list(findings(page))
        print(f"{name}, {width} px, {scheme}: {len(here)}", flush=True)
        for each in here:
            whose = "ours" if each.is_ours else "Streamlit's"
            print(f"    {each.impact} {each.rule} ({whose}): {each.message}")
            print(f"        {each.element}", flush=True)
        found += here
    page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--sweep", default="quickstart")
    parser.add_argument("--width", nargs="+", type=int, default=[1366, 390])
    parser.add_argument("--scheme", nargs="+", choices=("light", "dark"), default=["light", "dark"])
    options = parser.parse_args()
    layout = Layout.at(options.home)
    build(layout)
    found = []
    with dashboard(layout.home) as (address, _), sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for width in options.width:
            for scheme in options.scheme:
                found += look(browser, address, options.sweep, width, scheme)
        browser.close()
    ours = sum(each.is_ours for each in found)
    print(f"{ours} findings in what we write, {len(found) - ours} inside Streamlit's widgets")
    sys.exit(1 if ours else 0)


if __name__ == "__main__":
    main()
