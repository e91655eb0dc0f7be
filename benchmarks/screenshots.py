"""Pictures of the dashboard's pages: those of the documentation, and those that somebody looks at
before a change is kept.

    rpg sweep quickstart && rpg audit
    python -m benchmarks.screenshots --home rpg-data --out docs/dashboard
    python -m benchmarks.screenshots --home rpg-data --out looked-at --sweep clip \
        --width 390 1920 --scheme light dark --whole
    python -m benchmarks.screenshots --prefect http://127.0.0.1:4200 --out docs/dashboard
"""

import argparse
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from benchmarks.browser import CHROMIUM, FLAGS, IDLE, dashboard
from rpg.store import Layout
from rpg.store.database import build

VIEWS = {
    "overview": "?sweep={sweep}",
    "compare": "compare?sweeps={sweep}",
    "table": "table?sweep={sweep}",
    "frontier": "frontier?sweep={sweep}",
    "tokens": "tokens?sweep={sweep}",
    "problems": "problems?sweep={sweep}",
    "why": "why?sweep={sweep}",
    "audit": "why?sweep={sweep}&group=What+the+loss+optimises&reference=another+policy",
    "paper": "paper?sweep={sweep}",
    "nightly": "nightly",
    "studies": "studies",
    "study": "studies?part=Comparison",
    "compute": "studies?part=Over+compute",
    "runs": "runs?sweeps={sweep}",
    "run": "run?sweep={sweep}",
    "evaluations": "evaluations",
}
TALL = """() => Math.max(...[...document.querySelectorAll(
  '[data-testid=stMain], [data-testid=stMainBlockContainer]')].map(one => one.scrollHeight))"""


def picture_of_form(address: str, path: Path) -> None:
    """The form by which a sweep is started in Prefect's UI, with its first fields filled in."""
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(f"{address}/deployments")
        page.get_by_role("link", name="sweep").first.click()
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_text("Custom run").click()
        page.get_by_text("steps (Optional)").wait_for()
        page.screenshot(path=path)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path)
    parser.add_argument("--prefect", help="instead: the form of a sweep at this `rpg serve`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sweep", default="quickstart")
    parser.add_argument("--view", nargs="+", choices=list(VIEWS), default=list(VIEWS))
    parser.add_argument("--width", nargs="+", type=int, default=[1366])
    parser.add_argument("--scheme", nargs="+", choices=("light", "dark"), default=["light"])
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds a page may take")
    parser.add_argument("--whole", action="store_true", help="the whole page, however long")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.prefect:
        picture_of_form(options.prefect, options.out / "form.png")
        return
    if options.home is None:
        parser.error("--home: name a data folder, or --prefect ADDRESS")
    layout = Layout.at(options.home)
    build(layout)
    several = len(options.width) * len(options.scheme) > 1
    with dashboard(layout.home) as (address, _), sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for scheme in options.scheme:
            for width in options.width:
                page = browser.new_page(
                    viewport={"width": width, "height": options.height}, color_scheme=scheme
                )
                page.set_default_timeout(1000 * options.timeout)
                for name in options.view:
                    path = options.out / (
                        f"{name}-{width}-{scheme}.png" if several else f"{name}.png"
                    )
                    page.set_viewport_size({"width": width, "height": options.height})
                    page.goto(f"{address}/{VIEWS[name].format(sweep=options.sweep)}")
                    take(page, path, options.whole)
                    print(path, flush=True)
                page.close()
        browser.close()


def take(page: Page, path: Path, whole: bool) -> None:
    """Wait until the page has nothing left to do, and save what it shows."""
    page.wait_for_function(IDLE, arg=[0, "[data-testid=stVerticalBlock]"])
    page.wait_for_timeout(1200)  # charts fade in
    if whole:  # the page scrolls inside the window: a window as tall as the page shows all of it
        width = page.evaluate("window.innerWidth")
        page.set_viewport_size({"width": width, "height": min(page.evaluate(TALL), 6000)})
        page.wait_for_timeout(700)
    page.screenshot(path=path)
    Image.open(path).convert("RGB").save(path, optimize=True)


if __name__ == "__main__":
    main()
