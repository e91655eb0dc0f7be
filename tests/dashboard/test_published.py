"""A published page in a real browser, opened from its file: charts are drawn, samples can be
filtered, nothing is asked of anybody, and no script but ours runs."""

import pytest

from benchmarks.browser import CHROMIUM, QUICK_FLAGS
from benchmarks.synthetic import Shape, write_sweep
from rpg.report.publishing import INDEX, of_sweep, write
from rpg.store.database import build, connect
from tests.waiting import HANG

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)"
)

HOSTILE = "</script><script>pwned=1</script><img/src=x/onerror='pwned=1'>javascript:alert(1)\u2028'"
SHAPE = Shape(steps=8, eval_every=4, problems=6, samples=4, benchmarks=("easy", "hard"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    layout = write_sweep(
        tmp_path_factory.mktemp("home"), "demo", ("grpo", "dapo", HOSTILE), (0, 1, 2), SHAPE
    )
    build(layout)
    folder = tmp_path_factory.mktemp("page")
    with connect(layout) as db:
        write(of_sweep(layout, db, "demo", 1_000_000), folder, layout)
    return folder


@pytest.fixture
def page(folder):
    """The page in a browser, which fails the test when anything is written to the console or asked
    but a file of the folder."""
    problems = []
    with playwright.sync_playwright() as runner:
        chromium = runner.chromium.launch(executable_path=CHROMIUM, args=QUICK_FLAGS)
        page = chromium.new_page(viewport={"width": 390, "height": 900})
        page.set_default_timeout(1000 * HANG)
        own = (folder.as_uri(), "data:", "blob:")
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda one: one.url.startswith(own) or problems.append(one.url))
        page.goto((folder / INDEX).as_uri())
        yield page
        assert page.evaluate("window.pwned") is None
        assert problems == []
        chromium.close()


def test_charts_are_drawn_near_the_window_and_all_of_them_for_print(page):
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.locator(".chart svg.marks").nth(1).wait_for()
    assert page.locator(".chart").count() == 2
    point = page.locator(".chart svg path[aria-label]").first
    assert point.get_attribute("aria-label")


def test_a_dark_window_has_a_dark_page_which_is_printed_on_white(page):
    page.emulate_media(color_scheme="dark")
    page.reload()
    page.evaluate("document.querySelector('.chart').scrollIntoView()")
    light_text = page.locator(".chart svg text[fill='#D6D6D6']").first
    light_text.wait_for(state="attached")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(20, 23, 28)"

    page.emulate_media(color_scheme="dark", media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")

    light_text.wait_for(state="detached")
    assert page.evaluate(background) == "rgb(255, 255, 255)"


def test_a_phone_shows_every_column_with_its_name_and_the_verdict_second(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    row = page.locator("table").first.locator("tbody tr", has_text="DAPO").first
    cells = row.locator("td")
    places = [cell.bounding_box() for cell in cells.all() if cell.is_visible()]
    assert all(place["x"] >= 0 and place["x"] + place["width"] <= 390 for place in places)
    verdict = row.locator("td[data-column=Verdict]").bounding_box()
    assert verdict["y"] == sorted(place["y"] for place in places)[1]
    named = "getComputedStyle(arguments[0], '::before').content"
    assert cells.nth(1).evaluate(f"(...arguments) => {named}") == '"Seeds"'


def test_samples_are_found_compared_and_linked(page):
    page.get_by_text("Samples: ").click()
    page.locator("#rows tr").first.wait_for()
    assert page.inner_text("#matches") == "144 of 144 samples"
    page.select_option("#kind", "wrong")
    page.select_option("#variant", HOSTILE.replace("\u2028", " "))
    assert page.locator("#rows tr").count() < 24
    page.locator("#rows button").first.click()
    page.locator("#chosen select").select_option(index=1)
    assert page.locator("#chosen section").count() == 2
    shown = page.inner_text("#chosen")

    page.reload()

    page.locator("#chosen section").first.wait_for()
    assert page.inner_text("#chosen") == shown
