"""The Prefect UI in a real browser: fill in the form, watch the sweep, follow the link to the
dashboard, cancel.

Needs playwright and a Chromium (Debian: apt-get install chromium); says so when it is left out.
"""

import re

import pytest

from rpg.store.database import connect
from tests.operations.form import choose, field
from tests.waiting import until

pytestmark = pytest.mark.component


def open_form(page, served):
    page.goto(f"{served.ui}/deployments")
    page.get_by_role("link", name="sweep").first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    page.get_by_text("steps (Optional)").wait_for()
    assert page.get_by_text("config (Optional)").count() == 0, (
        "what must be given is not called optional"
    )


def submit(page):
    """Press the button; the id of the flow run. While SQLite is busy the page shows an error, and
    one presses again."""

    def press():
        with page.expect_response(re.compile("/create_flow_run$")) as answered:
            page.get_by_role("button", name="Submit").click()
        return answered.value if answered.value.status < 500 else None

    answer = until(press, "an answer")
    assert answer.status == 201, answer.text()
    return answer.json()["id"]


@pytest.mark.system
def test_a_sweep_from_the_form_to_the_numbers_in_the_dashboard(page, served):
    open_form(page, served)
    choose(page, "config", "own/trivial")
    field(page, "steps").locator("input").fill("2")
    field(page, "name").locator("textarea, input").fill("clicked")
    run = submit(page)
    page.goto(f"{served.ui}/runs/flow-run/{run}")
    assert served.finished(run)[0] == "COMPLETED"
    page.get_by_text("Completed", exact=True).first.wait_for()
    page.get_by_role("tab", name="Artifacts").or_(
        page.get_by_text("Artifacts", exact=True)
    ).first.click()
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
    tab.get_by_role("link", name="Compare", exact=True).click()
    tab.get_by_role("link", name="Table", exact=True).click()
    tab.get_by_text(f"{found[0]:.3f}").first.wait_for()
    tab.get_by_role("link", name="Overview").click()
    back = tab.get_by_role("link", name="Flow run in Prefect").get_attribute("href")
    assert back
    assert back.startswith(f"{served.ui}/runs/flow-run/")
    tab.close()
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
    page.get_by_role("button", name="by name").or_(
        page.get_by_text("by name", exact=True)
    ).first.click()
    field(page, "config").locator("textarea").fill("own/smal")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text(re.compile("'own/smal' is not one of")).first.wait_for()
    field(page, "config").locator("textarea").press("End")
    page.keyboard.type("l")
    field(page, "overrides").locator("textarea").fill("training.stepz=3")
    run = submit(page)
    assert served.finished(run)[0] == "FAILED"
    page.goto(f"{served.ui}/runs/flow-run/{run}")
    page.get_by_text(
        re.compile("--set training.stepz: unknown field; did you mean 'steps'")
    ).first.wait_for()
