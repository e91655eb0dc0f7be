"""The Prefect UI in a real browser: fill in the form, watch the sweep, follow the link to the dashboard, cancel.

Needs playwright and a Chromium (Debian: apt-get install chromium); says so when it is left out.
"""

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.browser import CHROMIUM, FLAGS
from rpg.store.database import connect
from tests.operations.serving import FINAL, ROOT, Served
from tests.operations.test_nightly import TINY
from tests.waiting import HANG, ended, until

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def page():
    """A tab that fails the test when anything but loopback is asked."""
    outside = []
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = browser.new_page(viewport={"width": 1366, "height": 1400})
        tab.set_default_timeout(1000 * HANG)
        tab.on("request", lambda request: outside.append(request.url) if _leaves(request.url) else None)
        yield tab
        browser.close()
    assert outside == []


def _leaves(url):
    return not re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", url)


def open_form(page, served):
    page.goto(f"{served.ui}/deployments")
    page.get_by_role("link", name="sweep").first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    page.get_by_text("steps (Optional)").wait_for()
    assert page.get_by_text("config (Optional)").count() == 0, "what must be given is not called optional"


def field(page, name):
    """The part of the form that belongs to one parameter."""
    label = page.locator(".schema-form-property__label", has_text=re.compile(rf"^{name}( \(Optional\))?$"))
    return page.locator(".schema-form-property").filter(has=label).last


def choose(page, name, option):
    field(page, name).locator("button.p-select-button__control").focus()
    page.keyboard.press("ArrowDown")
    page.locator(".p-select-option", has_text=re.compile(rf"^\s*{option}\s*$")).first.click()


def submit(page):
    """Press the button; the id of the flow run. While SQLite is busy the page shows an error, and one presses again."""

    def press():
        with page.expect_response(re.compile("/create_flow_run$")) as answered:
            page.get_by_role("button", name="Submit").click()
        return answered.value if answered.value.status < 500 else None

    answer = until(press, "an answer")
    assert answer.status == 201, answer.text()
    return answer.json()["id"]


@pytest.mark.long
def test_a_sweep_from_the_form_to_the_numbers_in_the_dashboard(page, served):
    open_form(page, served)
    choose(page, "config", "own/small")
    field(page, "steps").locator("input").fill("2")
    field(page, "name").locator("textarea, input").fill("clicked")
    run = submit(page)
    page.goto(f"{served.ui}/runs/flow-run/{run}")
    assert served.finished(run)[0] == "COMPLETED"
    page.get_by_text("Completed", exact=True).first.wait_for()
    page.get_by_role("tab", name="Artifacts").or_(page.get_by_text("Artifacts", exact=True)).first.click()
    page.get_by_text("dashboard-clicked").first.click()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="clicked in the dashboard").click()
    tab = opened.value
    assert tab.url.startswith(served.dashboard)
    tab.get_by_text("GRPO").first.wait_for()
    with connect(served.layout) as db:
        found = db.execute(
            "select avg(e.accuracy) from evals e join runs r using (sweep, run) "
            "where e.sweep = 'clicked' and e.step = 2 and r.variant = 'grpo'"
        ).fetchone()
    assert found[0] is not None
    tab.get_by_role("link", name="Table").click()
    tab.get_by_text(f"{found[0]:.3f}").first.wait_for()
    tab.get_by_role("link", name="Overview").click()
    back = tab.get_by_role("link", name="Flow run in Prefect").get_attribute("href")
    assert back and back.startswith(f"{served.ui}/runs/flow-run/")
    tab.close()


@pytest.mark.long  # of the sweep above
def test_the_figure_is_in_the_ui(page, served):
    artifacts = served.api.post("/artifacts/latest/filter", json={}).json()
    result = next(a["latest_id"] for a in artifacts if a["key"] == "result-clicked")
    page.goto(f"{served.ui}/artifacts/artifact/{result}")
    figure = page.locator("img[src^='data:image/png']")
    figure.wait_for()
    assert figure.evaluate("image => image.naturalWidth") > 300


def test_a_bad_value_shows_its_reason(page, served):
    open_form(page, served)
    choose(page, "config", "own/small")
    field(page, "steps").locator("input").fill("-3")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text(re.compile("less than the minimum of 0|must be >= 0|minimum")).first.wait_for()
    field(page, "steps").locator("input").fill("0")
    field(page, "overrides").locator("textarea").fill("training.stepz=3")
    run = submit(page)
    assert served.finished(run)[0] == "FAILED"
    page.goto(f"{served.ui}/runs/flow-run/{run}")
    page.get_by_text(re.compile("'stepz' is not a field of training; did you mean 'steps'")).first.wait_for()


@pytest.mark.long  # `make test` cancels through the API
def test_the_cancel_button_ends_the_processes(page, served):
    run = served.run_id("sweep", config="own/trivial", steps=5000, name="button")
    trainers = until(served.trainers, "a training")
    page.goto(f"{served.ui}/runs/flow-run/{run}")
    page.get_by_text("Running").first.wait_for()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Confirm").click()
    ended(trainers)
    page.get_by_text("Cancelled").first.wait_for()


@pytest.fixture
def checkout(tmp_path):
    """A checkout of its own, whose code a night runs; `commit` records what was changed and returns its name."""
    tree = tmp_path / "tree"
    for part in ("rpg", "flows", "dashboard", "benchmarks", "configs"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(tree), "-c", "user.name=anna", "-c", "user.email=anna@localhost"]

    def commit(message):
        for words in (["add", "-A"], ["commit", "-qm", message]):
            subprocess.run([*git, *words], check=True)
        found = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        return found.stdout.strip()

    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    return tree, commit


def saved(page, button):
    """Press it; whether the server took what was sent: while SQLite is busy it does not, and one does it again."""
    with page.expect_response(lambda answer: answer.request.method == "PATCH") as answered:
        button.click()
    return answered.value.ok


def move_schedule(page, served, deployment):
    """In the UI, to the next minute that is not too near; returns its cron line and when that is."""

    def move():
        at = datetime.now(UTC) + timedelta(minutes=1, seconds=20)
        cron = f"{at.minute} {at.hour} * * *"
        page.goto(f"{served.ui}/deployments/deployment/{deployment}")
        page.locator(
            "[class*=schedule-menu] button, [class*=schedule] .p-icon-button-menu button"
        ).first.click()
        page.get_by_text("Edit", exact=True).last.click()
        dialog = page.get_by_role("dialog")
        dialog.locator(".cron-schedule-form__column--span-3 input").fill(cron)
        if saved(page, dialog.get_by_role("button", name="Save")):
            return cron, at.replace(second=0, microsecond=0)
        return None

    return until(move, "the change of the schedule")


def the_night(served, deployment, due):
    """The flow run that the schedule made for that minute, ended."""
    wanted = {
        "deployments": {"id": {"any_": [deployment]}},
        "flow_runs": {"state": {"type": {"any_": FINAL}}},
    }

    def look():
        runs = served.api.post("/flow_runs/filter", json=wanted).json()
        return [r for r in runs if datetime.fromisoformat(r["expected_start_time"]) == due]

    (run,) = until(look, f"the night of {due}")
    assert run["auto_scheduled"]
    return run


@pytest.mark.long
def test_a_night_goes_red_for_a_flipped_sign_and_green_once_it_is_accepted(page, tmp_path, checkout):
    """As somebody lives it: schedule, red night with metric and commit, acceptance, green night, restart."""
    tree, commit = checkout
    before = commit("as it was")
    served = Served(tmp_path / "served", tree=tree)
    try:
        folder = served.home / "configs" / "mine"
        folder.mkdir()
        (folder / "few.yaml").write_text(TINY)
        deployment = served.api.get("/deployments/name/nightly/nightly").json()["id"]
        known = f"/deployments/{deployment}"
        until(lambda: "own/mine" in served.api.get(known).text, "the folder in the form")

        def choose_set():
            page.goto(f"{served.ui}/deployments/deployment/{deployment}/edit")
            choose(page, "sweeps", "own/mine")
            saved(page, page.get_by_role("button", name="Save"))
            return served.api.get(known).json()["parameters"].get("sweeps") == "own/mine"

        until(choose_set, "the parameter")

        _, due = move_schedule(page, served, deployment)
        first = the_night(served, deployment, due)
        assert first["state_type"] == "COMPLETED", first["state"]["message"]

        losses = tree / "rpg" / "losses" / "policy_loss.py"
        text = losses.read_text()
        losses.write_text(text.replace("apply(log_prob, sums[0], slope)", "apply(log_prob, sums[0], -slope)"))
        assert losses.read_text() != text
        after = commit("a sign is flipped")
        _, due = move_schedule(page, served, deployment)
        red = the_night(served, deployment, due)
        said = red["state"]["message"]
        assert red["state_type"] == "FAILED", said
        assert f"bits changed since commit {before[:8]}" in said and f"to commit {after[:8]}" in said, said
        assert re.search(r"first at step 1, metric loss", said), said
        page.goto(f"{served.ui}/runs/flow-run/{red['id']}")
        page.get_by_text("Failed", exact=True).first.wait_for()
        page.get_by_text(re.compile("bits changed since commit")).first.wait_for()
        picture(page, tmp_path, "red")
        page.goto(f"{served.dashboard}/nightly")
        page.get_by_text(re.compile("bits changed since commit")).first.wait_for()
        picture(page, tmp_path, "red-dashboard")

        accept = [
            "nightly",
            "accept",
            str(folder),
            "--why",
            "the sign is a convention",
            "--home",
            str(served.home),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "rpg", *accept],
            capture_output=True, text=True, env=served.environment, cwd=tmp_path, timeout=HANG,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        cron, due = move_schedule(page, served, deployment)
        green = the_night(served, deployment, due)
        assert green["state_type"] == "COMPLETED" and green["state"]["name"] == "Completed", green["state"]
        page.goto(f"{served.dashboard}/nightly")
        page.get_by_text(re.compile("the sign is a convention")).first.wait_for()
        picture(page, tmp_path, "accepted-dashboard")

        served.stop()
        served.start()
        until(lambda: served.api.get(known).json()["schedules"], "the schedule, which Prefect makes anew")
        (schedule,) = served.api.get(known).json()["schedules"]
        assert schedule["schedule"]["cron"] == cron and schedule["active"]
        page.goto(f"{served.ui}/deployments/deployment/{deployment}")
        page.get_by_text(re.compile(f"At {due:%I:%M %p} every day")).first.wait_for()
        picture(page, tmp_path, "after-restart")
    finally:
        served.stop()


def picture(page, folder, name):
    """For whoever looks at what a test saw: --basetemp keeps them."""
    page.wait_for_timeout(1000)  # charts draw themselves
    page.screenshot(path=str(folder / f"{name}.png"), full_page=True)
