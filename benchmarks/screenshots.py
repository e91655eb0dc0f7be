"""Pictures of the dashboard's pages for docs/dashboard.md.

rpg sweep configs/sweeps/quickstart.yaml && rpg sweep configs/sweeps/stress.yaml && rpg audit
python -m benchmarks.screenshots --home rpg-data --out docs/dashboard
"""

import argparse
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from benchmarks.browser import CHROMIUM, FLAGS, IDLE, dashboard
from rpg.store import Layout
from rpg.store.database import build

VIEWS = {
    "overview": "?sweep=stress",
    "compare": "compare?sweeps=stress",
    "table": "table?sweep=stress",
    "why": "why?sweep=stress",
    "audit": "why?sweep=stress&group=What+the+loss+optimises&reference=another+policy+than+old",
    "paper": "paper?sweep=quickstart",
    "run": "run?sweep=stress",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--height", type=int, default=900)
    options = parser.parse_args()
    layout = Layout.at(options.home)
    build(layout)
    options.out.mkdir(parents=True, exist_ok=True)
    with dashboard(layout.home) as (address, _), sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": options.height})
        for name, query in VIEWS.items():
            page.goto(f"{address}/{query}")
            page.wait_for_function(IDLE, arg=[0, "[data-testid=stVerticalBlock]"])
            page.wait_for_timeout(1500)  # charts fade in
            path = options.out / f"{name}.png"
            page.screenshot(path=path)
            Image.open(path).convert("RGB").save(path, optimize=True)
            print(path)
        browser.close()


if __name__ == "__main__":
    main()
