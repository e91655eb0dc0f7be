"""What is taken from others is named by content, and what runs is not root."""

import re
import runpy
import tomllib
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
    assert users
    assert users[-1] != "root"


PINNED = re.compile(r"^([a-z0-9][\w.-]*)==([^\s;]+)", re.M)
LOCK = runpy.run_path(str(ROOT / ".ci" / "lock.py"))
SBOM = runpy.run_path(str(ROOT / ".ci" / "sbom.py"))


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file):
    return {normal(name): release for name, release in PINNED.findall((ROOT / file).read_text())}


def test_every_locked_release_has_hashes():
    for file in LOCK["HEADINGS"]:
        entries = re.findall(r"^\S.*(?:\n    .*)*", (ROOT / file).read_text(), re.M)[1:]
        assert entries
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_locked_releases_are_those_of_the_constraints():
    constrained = pins("constraints.txt")
    locked = pins("requirements.lock") | pins("requirements-torch.lock")
    both = constrained.keys() & locked.keys()
    assert len(both) > 200
    assert {name: locked[name] for name in both} == {name: constrained[name] for name in both}


def asked_for(project, extras):
    """The names of what the project asks for with these extras."""
    asked = list(project["dependencies"])
    for name in extras:
        asked += project["optional-dependencies"][name]
    return {normal(re.split(r"[\[<>=!; ]", text)[0]) for text in asked}


def test_what_make_setup_installs_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = pins("requirements.lock").keys() | pins("requirements-torch.lock").keys()
    assert asked_for(project, LOCK["EXTRAS"]) - locked == set()


def test_the_image_installs_nothing_but_locked_releases_of_the_pins_for_gpus():
    locked = pins("requirements-gpu.lock")
    pinned = pins("constraints-gpu.txt")
    assert {name: pinned.get(name) for name in locked} == locked
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert asked_for(project, LOCK["GPU_EXTRAS"]) - locked.keys() == set()
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert "pip install --no-cache-dir --no-deps --require-hashes -r requirements-gpu.lock" in (
        dockerfile
    )
    assert "pip install --no-cache-dir --no-deps .\n" in dockerfile


def test_a_build_of_torch_for_cpus_needs_nothing_of_cuda():
    text = "numpy==2.3\n    --hash=sha256:1\ntorch==2.13\n    --hash=sha256:2\nnvidia-cublas==13.1"
    files = LOCK["parted"](text)
    assert files["requirements.lock"] == ["numpy==2.3\n    --hash=sha256:1"]
    assert [entry.partition("==")[0] for entry in files["requirements-torch.lock"]] == [
        "torch",
        "nvidia-cublas",
    ]


@pytest.mark.component
def test_what_is_installed_is_listed_with_licences_and_hashes():
    listed = {each["name"]: each for each in SBOM["components"]()}
    assert listed["numpy"]["purl"] == f"pkg:pypi/numpy@{listed['numpy']['version']}"
    assert "BSD" in listed["numpy"]["licenses"][0]["license"]["name"]
    if listed["numpy"]["version"] == pins("constraints.txt")["numpy"]:
        assert listed["numpy"]["hashes"]
