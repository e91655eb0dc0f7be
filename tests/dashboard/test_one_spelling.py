"""The same numbers of one sweep, with the same spelling wherever they are shown."""

import html
import io
import re

import pytest
from rich.console import Console

from benchmarks.synthetic import Shape, write_sweep
from flows.prefect import ui
from rpg.report import publishing
from rpg.report.format import accuracy, points, with_interval
from rpg.report.summary import summarise
from rpg.report.sweep_report import print_summary, summary_of, write_report
from rpg.store.database import build, connect
from tests.dashboard.driver import markup, show

OTHER_SPELLINGS = (
    ("±", "an interval is [low, high]"),
    (r"\d%", "a percentage has a space before its sign"),
    (r"(?<![\d.])\.\d{2}", "an accuracy begins with 0"),
    (r"[+−-]0\.\d{3}\b", "a difference is in points"),
    (r"\d\.\d+ to \d", "an interval is [low, high]"),
)


def visible(page):
    """The text of an HTML page, without scripts, styles and data."""
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


def plain(markdown):
    """Markdown or LaTeX without what protects its characters."""
    return re.sub(r"\\([\[\]<])|\{(\[)\}", r"\1\2", markdown).replace("{\\textminus}", "−")


@pytest.fixture
def demo(layout):
    """A sweep with enough problems for a verdict with its interval."""
    shape = Shape(steps=8, eval_every=4, problems=24, samples=4, benchmarks=("easy", "hard"))
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), shape)
    build(layout)
    return layout


@pytest.fixture
def outputs(demo, tmp_path, monkeypatch):
    """Place -> the text that it shows of the sweep."""
    stream = io.StringIO()
    console = Console(file=stream, width=200, color_system=None)
    print_summary(summary_of(demo, "demo"), console)
    write_report(demo, "demo")
    files = demo.reports("demo")
    artifacts = []
    monkeypatch.setattr(ui, "create_markdown_artifact", lambda body, **_: artifacts.append(body))
    monkeypatch.setattr(ui, "page", lambda sweep: f"http://dashboard/{sweep}")
    ui.report(demo, "demo")
    ui.verdict(demo, "demo")
    with connect(demo) as db:
        publication = publishing.of_sweep(demo, db, "demo", budget=100_000)
    [page, *_] = publishing.write(publication, tmp_path / "published", demo)
    table = show("table", sweep="demo")
    return {
        "terminal": stream.getvalue(),
        "table.md": plain((files / "table.md").read_text("utf-8")),
        "report.html": visible((files / "report.html").read_text("utf-8")),
        "Prefect's result": plain(re.sub(r"data:image[^)]*", "", artifacts[0])),
        "Prefect's verdict": plain(artifacts[1]),
        "published page": visible(page.read_text("utf-8")),
        "dashboard's table": visible(markup(table)),
        "dashboard's overview": visible(markup(show("overview", sweep="demo"))),
    }


def test_every_place_spells_the_numbers_of_a_sweep_alike(demo, outputs):
    with connect(demo) as db:
        found = summarise(db, "demo")
    rows = found.table[found.table["benchmark"] == found.headline].set_index("variant")
    compared = rows.loc["rpg-urkl"]
    bounds = compared["difference_low"], compared["difference_high"]
    difference = with_interval(compared["difference"], *bounds, points)
    value, _, interval = difference.partition(" ")
    whole = [place for place in outputs if "verdict" not in place and "overview" not in place]
    for place in whole:
        text = outputs[place]
        for row in rows.itertuples():
            assert with_interval(row.last, row.low, row.high) in text, place
            assert accuracy(row.best) in text, place
        assert difference in text, place
    for place, text in outputs.items():
        assert f"{value} points {interval}" in text or place == "dashboard's table", place
        for pattern, rule in OTHER_SPELLINGS:
            assert re.findall(f".{{0,30}}{pattern}.{{0,20}}", text) == [], f"{place}: {rule}"
