"""What is taken from others is named by content, and what runs is not root."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_commit(workflow):
    used = re.findall(r"uses: (\S+)", workflow.read_text("utf-8"))
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_only(workflow):
    assert yaml.safe_load(workflow.read_text("utf-8"))["permissions"] == {"contents": "read"}


def test_the_update_bot_watches_actions_pins_and_the_image():
    bot = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text("utf-8"))
    watched = {entry["package-ecosystem"] for entry in bot["updates"]}
    assert watched == {"github-actions", "pip", "docker"}


def test_the_image_s_base_is_an_argument_and_its_user_is_not_root():
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    assert "FROM ${BASE}" in lines
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users and users[-1] != "root"
