"""The dashboard in a real browser: every page opens, selections work and stay in the URL, numbers
are the database's, nothing leaves the machine, and a rebuild never shows.

Needs playwright and a Chromium (Debian: apt-get install chromium); says so when it is left out.
"""

import re
import threading
from pathlib import Path

import pytest

from benchmarks import synthetic_study
from benchmarks.browser import CHROMIUM, IDLE, QUICK_FLAGS, dashboard
from benchmarks.synthetic import Shape, write_sweep
from dashboard.view import REFRESH
from rpg.report.format import with_interval
from rpg.report.summary import summarise
from rpg.store.database import KEEP, build, connect
from rpg.store.notes import change, place, read_marks
from rpg.store.run_writer import append_metrics
from tests.dashboard.driver import PAGES, a_night
from tests.waiting import HANG

MISSING = "playwright is not installed (pip install playwright)"
playwright = pytest.importorskip("playwright.sync_api", reason=MISSING)
pytestmark = [
    pytest.mark.component,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)"
    ),
]

HOSTILE = '<img/src=x/onerror="pwned=1">'
SHAPE = Shape(steps=8, eval_every=4, problems=6, samples=4, benchmarks=("easy", "hard"))
STUDY = Shape(steps=8, eval_every=4, problems=6, samples=4)
CLIPS = [f"{name} clip={value}" for name in ("grpo", "rpg-urkl") for value in range(9)]
WIDE = "&".join(
    f"variants={name}, clip {value}" for name in ("GRPO", "RPG-URKL") for value in range(9)
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    layout = write_sweep(home, "demo", ("grpo", "dapo", "rpg-urkl"), (0, 1, 2), SHAPE)
    write_sweep(home, "wide", CLIPS, (0,), SHAPE)
    write_sweep(home, "hostile", ("grpo", HOSTILE), (0, 1), SHAPE)
    synthetic_study.write(home, question=HOSTILE, trials=4, seeds=3, shape=STUDY, stop_after=17)
    for day in (1, 2, 3):
        a_night(layout, day, 0.5)
    a_night(layout, 4, 0.9, bits=True, said="bits changed since commit ffff")
    build(layout)
    return layout


@pytest.fixture(scope="module")
def address(layout):
    with dashboard(layout.home) as (address, _):
        yield address


@pytest.fixture(scope="module")
def tab():
    """One for all: another one is a window, which takes Chromium as long as the page in it."""
    with playwright.sync_playwright() as runner:
        chromium = runner.chromium.launch(executable_path=CHROMIUM, args=QUICK_FLAGS)
        tab = chromium.new_page(viewport={"width": 1366, "height": 900})
        tab.set_default_timeout(1000 * HANG)
        yield tab
        chromium.close()


@pytest.fixture
def page(tab):
    """The tab, empty, which fails the test when a script throws or anything but loopback is
    asked."""
    tab.goto("about:blank")
    tab.context.clear_cookies()
    errors, outside = [], []
    listeners = {
        "pageerror": lambda error: errors.append(str(error)),
        "request": lambda request: outside.append(request.url) if leaves(request.url) else None,
    }
    for event, listener in listeners.items():
        tab.on(event, listener)
    yield tab
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert errors == [] and outside == []


def leaves(url):
    return not re.match(r"(https?|wss?)://(anna:horse@)?127\.0\.0\.1[:/]|data:|blob:", url)


def settled(tab):
    """Wait until Streamlit has nothing left to do, and check that it shows no exception."""
    tab.wait_for_timeout(300)  # a click needs a moment to reach the server
    tab.wait_for_function(IDLE, arg=[0, "[data-testid=stVerticalBlock]"], polling=100)
    assert tab.locator("[data-testid=stException]").count() == 0, tab.inner_text("body")
    return tab.inner_text("[data-testid=stMain]")


def pick(tab, label, option):
    """Choose an option of a select box as a person does."""
    box = tab.locator("[data-testid=stSelectbox]", has=tab.get_by_text(label, exact=True))
    box.locator("input").click()
    tab.get_by_role("option", name=option, exact=True).click()
    return settled(tab)


def press(tab, name):
    """One of a row of buttons."""
    buttons = tab.get_by_role("button", name=name, exact=True)
    tab.get_by_role("radio", name=name).or_(buttons).first.click()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_and_shows_hostile_names_as_text(page, address, name):
    page.goto(f"{address}/{name.replace('overview', '')}?sweep=hostile&sweeps=hostile")
    settled(page)
    if name in ("compare", "why"):
        page.wait_for_selector(
            "[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg"
        )
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src=x]").count() == 0


def test_navigation_keeps_the_selection(page, address):
    page.goto(f"{address}/table?sweep=hostile")
    settled(page)
    page.locator("table.rpg").first.wait_for()
    assert {name for name, *_ in cells(page)} == {"GRPO", HOSTILE}
    places = {
        "Why": "/why",
        "Paper": "/paper",
        "Runs": "/runs",
        "One run": r"/run\?",
        "Overview": "/(overview)?",
        "Compare": "/compare",
        "Table": "/table",
    }
    for title, path in places.items():
        page.get_by_role("link", name=title, exact=True).click()
        page.wait_for_url(re.compile(path))
        settled(page)
    assert "hostile" in page.locator("[data-testid=stSelectbox]").first.inner_text() + page.url


def test_the_table_says_what_the_database_says(page, address, layout):
    page.goto(f"{address}/table?sweep=demo")
    settled(page)
    with connect(layout) as db:
        expected = summarise(db, "demo").table
        other = summarise(db, "demo", baseline="dapo").table
    assert cells(page) == lines(expected)
    pick(page, "Baseline", "DAPO")
    rows = page.locator("table.rpg").first.locator("tr", has_text="DAPO")
    rows.filter(has_text="baseline").wait_for()
    assert cells(page) == lines(other)
    link = page.url
    assert "baseline=DAPO" in link
    page.go_back()
    page.wait_for_url(re.compile("baseline=GRPO"))
    settled(page)
    assert cells(page) == lines(expected)
    page.goto(link)  # what a colleague sees who opens it
    settled(page)
    assert cells(page) == lines(other)


def cells(tab):
    """Variant, last and verdict of every row of the first table."""
    return [(row[0], row[3], row[-1]) for row in rows_of_table(tab)]


def rows_of_table(tab):
    """The texts of all cells of the first table."""
    rows = tab.locator("table.rpg").first.locator("tbody tr")
    return [rows.nth(place).locator("td").all_inner_texts() for place in range(rows.count())]


def lines(table):
    mean = table[table["benchmark"] == "mean"].sort_values("last", ascending=False, kind="stable")
    return [
        (row.label, with_interval(row.last, row.low, row.high), row.verdict)
        for row in mean.itertuples()
    ]


QUESTIONS = {
    "which is better?": ([], "[data-testid=stHtml]", "GRPO"),
    "is it real?": (["Compare", "Table"], "table.rpg", "Verdict"),
    "what did it cost?": (["Spent, mean over seeds"], "table.rpg", "Tokens"),
    "show me where it fails": (["Samples"], "[data-testid=stMain]", "extracted "),
    "what changed last night?": (["Nights"], "[data-testid=stMain]", "0.5 before, 0.9 tonight"),
}
"""Question -> what is clicked on the first page, and where the answer stands then."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_five_questions_take_two_clicks_at_most(page, address, question):
    clicks, place, answer = QUESTIONS[question]
    page.goto(address)
    settled(page)
    for name in clicks:
        link = page.get_by_role("link", name=name, exact=True)
        link.or_(page.locator("summary", has_text=name)).first.click()
        settled(page)
    shown = page.locator(place).filter(has_text=answer).first
    shown.wait_for()
    assert shown.is_visible()
    assert len(clicks) <= 2


@pytest.mark.system
def test_the_chosen_button_of_a_row_can_be_read_on_a_dark_page(page, address):
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/run?sweep=demo")
    settled(page)
    chosen = page.locator("button[aria-checked=true] p").first
    colour = chosen.evaluate("one => getComputedStyle(one).color")
    page.emulate_media(color_scheme="light")
    assert colour == "rgb(124, 183, 255)"  # #7CB7FF; the selection's own blue has a contrast of 3.4


def test_a_file_can_be_saved_and_waits_for_the_reader(page, address):
    """Making it may take longer than the page needs to look for newer results, and so do people."""
    page.goto(f"{address}/compare?sweeps=wide&panels=mean&{WIDE}")
    settled(page)
    page.locator("[data-testid=stVegaLiteChart]").first.wait_for()
    page.get_by_text("Save or share").click()
    header = b"name,sweep,variant,step,x,mean"
    for kind, name, begin in (
        ("HTML", "Page as HTML", b"<!DOCTYPE html>"),
        ("CSV", "Data as CSV", header),
    ):
        press(page, kind)
        page.get_by_role("button", name="Make").click()
        page.get_by_role("button", name=name).wait_for()
        page.wait_for_timeout(1.5 * 1000 * REFRESH)
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        file = Path(download.value.path()).read_bytes()
        assert file.startswith(begin)
    assert file.count(b"\n") == 1 + 18 * 3


def test_a_sample_is_found(page, address):
    page.goto(f"{address}/run?sweep=demo&run=grpo-seed0&benchmark=easy&search=problem%203%20of")
    settled(page)
    press(page, "Samples")
    page.get_by_text("4 of 24 samples").wait_for()
    page.locator("code", has_text="Compute problem 3 of easy.").wait_for()
    page.goto(f"{address}/problems?sweep=demo&benchmark=hard")
    settled(page)
    table = page.locator("[data-testid=stDataFrame]").bounding_box()
    first = page.url
    page.mouse.click(table["x"] + 17, table["y"] + 125)  # the box of the third row
    page.wait_for_url(lambda url: url != first)
    [problem] = re.findall("&problem=([^&]*)", page.url)
    pick(page, "Its step", "0")
    assert f"&problem={problem}" in page.url, "of the same problem, wherever it stands now"


def test_a_study_grows_on_its_page_and_a_point_leads_to_its_run(page, address, layout):
    page.goto(f"{address}/studies")
    settled(page)
    counts = lambda: [row[:3] for row in rows_of_table(page)]  # noqa: E731
    assert counts() == [["grpo", "4", "2"], ["rpg-reinforce-urkl", "4", "2"], ["dapo", "4", "2"]]
    assert page.get_by_text("registered", exact=True).count() == 0
    synthetic_study.write(layout.home, question=HOSTILE, trials=4, seeds=3, shape=STUDY)
    page.get_by_text("registered", exact=True).wait_for()
    read = layout.study_folder("kl-forms") / "study.json"
    text = read.read_text()
    read.write_text(re.sub(r'"matters": ?0.03', '"matters": 0.05', text))
    page.get_by_text("registered, then changed", exact=True).wait_for()
    read.write_text(text)
    page.get_by_text("registered", exact=True).wait_for()
    settled(page)
    page.locator("path[aria-label*='link: ']").first.click(
        force=True
    )  # another trial may lie above it
    page.wait_for_url(re.compile(r"/run\?sweep=kl-forms.tuning&run=grpo-\d+-s100"))
    assert "step 4 of 4" in settled(page)


@pytest.mark.system
def test_with_a_password_a_sweep_is_renamed_noted_and_hidden_and_without_one_it_is_not(
    page, address, layout
):
    demo = place(layout, "demo")
    with dashboard(layout.home, "anna:horse") as (guarded, _):
        page.goto(f"{guarded.replace('//', '//anna:horse@')}/?sweep=demo")
        settled(page)
        page.get_by_text("Notes (0)").click()
        for field, text in (
            ("Label", HOSTILE),
            ("Tags (hidden: left out of lists)", "hidden"),
            ("New note", HOSTILE),
        ):
            page.get_by_label(field, exact=True).fill(text)
        change(demo, add=["theirs"])  # somebody else, in the meantime
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Notes (1)").wait_for()
        record = read_marks(demo)
        assert (record["label"], record["tags"]) == (HOSTILE, ["hidden", "theirs"])
        assert [note["text"] for note in record["notes"]] == [HOSTILE]
        page.goto(f"{guarded}/table")
        settled(page)
        page.get_by_text("Show what is hidden from lists (sweeps: 1, runs: 0)").click()
        settled(page)
        page.get_by_role("link", name="Runs", exact=True).click()
        page.wait_for_url(re.compile("/runs"))
        settled(page)
        page.get_by_role("link", name="One run", exact=True).click()
        page.wait_for_url(re.compile(r"/run\b"))
        settled(page)
        pick(page, "Sweep", f"{HOSTILE} (demo)")
        assert "sweep=demo" in page.url and page.evaluate("window.pwned") is None
    page.goto(f"{address}/?sweep=demo")
    settled(page)
    page.get_by_text("Notes (1)").click()
    page.get_by_text(
        re.compile(
            "tag demo.* --help, and rpg note; on this page, if rpg serve was started with --auth"
        )
    ).wait_for()
    assert (
        page.get_by_role("button", name="Save").count() == 0
        and page.locator("img[src=x]").count() == 0
    )
    change(demo, remove=record["tags"], label="")


def test_nothing_shows_while_a_sweep_writes_and_the_database_is_rebuilt(page, address, layout):
    """Rebuilds under an open page that is loaded again and again: no error, never a mixture of
    versions.

    Of twice as many versions as stay on disk, so that those are removed which the page has just
    shown.
    """
    rebuilds = 2 * KEEP
    run = layout.run("demo", "grpo-seed0")
    stop = threading.Event()
    problems, builds = [], []

    def work():
        try:
            for step in range(10 * rebuilds, 11 * rebuilds):
                append_metrics(run, 2, {"step": step, "reward": 1.0, "grad_norm": 1.0})
                builds.append(build(layout).name)
        except Exception as error:  # noqa: BLE001 (reported by the test below)
            problems.append(error)
        stop.set()

    worker = threading.Thread(target=work)
    worker.start()
    looks = 0
    while not stop.is_set() or looks < 3:
        page.goto(f"{address}/{('', 'compare', 'table', 'run')[looks % 4]}?sweep=demo&sweeps=demo")
        text = settled(page)
        assert "cannot" not in text and "Error" not in text and "No results" not in text
        looks += 1
    worker.join()
    assert problems == [] and len(set(builds)) == rebuilds
    page.goto(f"{address}/run?sweep=demo&run=grpo-seed0")
    page.get_by_text(f"step {11 * rebuilds - 1} of 8").wait_for()
