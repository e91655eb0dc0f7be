"""A night in a real browser: its schedule, red for a planted mistake with metric and commit, accepted, green.

Needs playwright and a Chromium (Debian: apt-get install chromium); says so when it is left out.
"""

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.operations.form import choose
from tests.operations.serving import ROOT, Served
from tests.waiting import HANG, until

pytestmark = pytest.mark.long
TINY = """\
name: tiny
run:
  task: {type: chain, tiers: {easy: 1}, train_problems: 80, benchmark_problems: 16}
  model:
    type: tiny
    hidden_size: 32
    intermediate_size: 64
    warm_start: {target_accuracy: 0, consolidation_steps: 0, behaviour_steps: 120, behaviour_learning_rate: 3.0e-3}
  training: {steps: 3, prompts_per_step: 16, mini_batch_prompts: 8, optimizer: {type: adamw, learning_rate: 5.0e-4}}
  rollout: {group_size: 8}
  evaluation: {every: 3, samples_per_problem: 4}
axes:
  seed: [0]
set: {algorithm: rpg-reinforce-urkl}
"""


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
    """In the UI, to the next minute that is not too near; returns when that is."""

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
            return at.replace(second=0, microsecond=0)
        return None

    return until(move, "the change of the schedule")


def the_night(page, served, deployment, due):
    """The finished flow run that the schedule created for that minute, while no page is open."""
    page.goto("about:blank")

    def look():
        runs = served.ended_runs(deployment)
        return [r for r in runs if datetime.fromisoformat(r["expected_start_time"]) == due]

    (run,) = until(look, f"the night of {due}", pause=1.0)
    assert run["auto_scheduled"]
    return run


def terminal(served, tree, *words):
    """What the same code says to somebody who types it."""
    environment = {**served.environment, "PYTHONPATH": str(tree)}
    return subprocess.run(
        [sys.executable, "-m", "rpg", *words, "--home", str(served.home)],
        capture_output=True, text=True, env=environment, cwd=tree, timeout=HANG,
    )  # fmt: skip


def test_a_night_goes_red_for_a_flipped_sign_and_green_once_it_is_accepted(page, tmp_path, checkout):
    """As somebody lives it: schedule, red night with metric and commit, acceptance, green night."""
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

        first = terminal(served, tree, "nightly", str(folder))
        assert first.returncode == 0 and "none yet" in first.stdout, first.stdout + first.stderr

        losses = tree / "rpg" / "losses" / "policy_loss.py"
        text = losses.read_text()
        losses.write_text(text.replace("apply(log_prob, sums[0], slope)", "apply(log_prob, sums[0], -slope)"))
        assert losses.read_text() != text
        after = commit("a sign is flipped")
        due = move_schedule(page, served, deployment)
        red = the_night(page, served, deployment, due)
        said = red["state"]["message"]
        assert red["state_type"] == "FAILED", said
        assert f"bits changed since commit {before[:8]}" in said and f"to commit {after[:8]}" in said, said
        assert re.search(r"first at step 1, metric loss", said), said
        assert f"commit {after[:7]} (anna: a sign is flipped) is the cause" in said, said
        page.goto(f"{served.ui}/runs/flow-run/{red['id']}")
        page.get_by_text("Failed", exact=True).first.wait_for()
        page.get_by_text(re.compile("bits changed since commit")).first.wait_for()
        page.goto(f"{served.dashboard}/nightly")
        page.get_by_text(re.compile("bits changed since commit")).first.wait_for()

        still = terminal(served, tree, "nightly", str(folder))
        assert still.returncode == 1, "a change stays red until somebody says that it was meant"
        assert "already done" in still.stdout, "nothing is trained twice"
        assert "1 of 1 runs, first at step 1, metric loss" in still.stderr, still.stderr
        assert (
            "changed since: the code" in still.stderr and "is the cause, found by running few" in still.stderr
        )
        accepted = terminal(
            served, tree, "nightly", "accept", str(folder), "--why", "the sign is a convention"
        )
        assert accepted.returncode == 0, accepted.stderr
        green = terminal(served, tree, "nightly", str(folder))
        assert green.returncode == 0, green.stdout + green.stderr
        page.goto(f"{served.dashboard}/nightly")
        page.get_by_text(re.compile("the sign is a convention")).first.wait_for()
    finally:
        served.stop()
