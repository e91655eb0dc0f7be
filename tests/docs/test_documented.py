"""Tables and figures in the documents are those of the results that are kept beside them."""

import json
import re

import pytest

from benchmarks import documented
from benchmarks.browser import CHROMIUM, QUICK_FLAGS
from benchmarks.documented import DOCS, FIGURES, KEPT, digest, pages, shown, unpack, written
from benchmarks.findings.__main__ import SWEEPS, insert, tables_of
from benchmarks.findings.shared import PAGE
from rpg.store.database import connect


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("kept"))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_shows_what_the_results_say(kept, page):
    text = page.read_text("utf-8")
    assert written(kept, text) == text, "write it again with: python -m benchmarks.documented"


def test_the_quickstarts_tables_among_the_findings_are_those_of_the_results(kept):
    page = PAGE.read_text("utf-8")
    with connect(kept) as db:
        text = tables_of(db, "quickstart", SWEEPS["quickstart"](db))
    assert insert(page, "quickstart", text) == page, text


def test_a_number_that_is_edited_is_noticed(kept):
    text = (DOCS / "quickstart.md").read_text("utf-8")
    assert "0.780" in text
    assert written(kept, text.replace("0.780", "0.790")) == text


def test_all_that_is_kept_is_shown():
    assert {path.name.removesuffix(".tar.xz") for path in KEPT.glob("*.tar.xz")} == {
        sweep for sweeps in pages().values() for sweep in sweeps
    }


@pytest.mark.parametrize("figure", sorted(DOCS.glob("*.png")), ids=lambda path: path.name)
def test_a_figure_is_the_one_that_was_made_of_these_results(kept, figure):
    """Not drawn again: other fonts than those of the machine that drew it give other bits."""
    assert json.loads(FIGURES.read_text())[figure.name] == {
        "data": shown(kept, figure.stem),
        "file": digest(figure),
    }, "draw it again with: python -m benchmarks.documented"


def test_the_start_pages_chart_has_the_numbers_of_the_table(kept):
    text = (DOCS / "quickstart.md").read_text("utf-8")
    for spec in documented.charts(kept, "quickstart").values():
        last = [each for each in next(iter(spec["datasets"].values())) if each["step"] == 15]
        assert len(last) == 7
        assert all(f"| {each['label']} | 3 | 0.217 | {each['mean']:.3f} " in text for each in last)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")
def test_the_chart_is_drawn_on_narrow_and_dark_pages_and_asks_for_nothing(kept, tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/chart.js").write_text(documented.script(kept, "quickstart"))
    (tmp_path / "index.html").write_text(f"<body data-md-color-scheme=slate>{documented.CHART}")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as runner:
        page = runner.chromium.launch(executable_path=CHROMIUM, args=QUICK_FLAGS).new_page()
        page.set_viewport_size({"width": 390, "height": 900})
        asked = []
        page.on("request", lambda request: asked.append(request.url.partition(":")[0]))
        page.goto((tmp_path / "index.html").as_uri())
        page.check("input[value=tokens]")
        page.wait_for_selector("#chart svg >> text=response tokens")
        assert page.locator("#chart path[stroke='#F2F2F2']").count(), "GRPO is white on a dark page"
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert set(asked) == {"file"}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_no_page_gives_digits_of_p_that_differ_by_processor_nor_an_interval_beyond_0_to_1(page):
    rows = re.findall(r"\| (\d\.\d+) \| (?:better|worse|within noise) \|", page.read_text("utf-8"))
    assert not rows, f"{rows}: say the level that p is below"
    # `0.830 ± 0.239` says up to 1.069: such numbers are those of an older method.
    for value, half in re.findall(r"(?<![-−+\d.])(0\.\d+) ± (0\.\d+)", page.read_text("utf-8")):
        assert float(value) - float(half) >= 0 and float(value) + float(half) <= 1, (
            f"{value} ± {half}"
        )
