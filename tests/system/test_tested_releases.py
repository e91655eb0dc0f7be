"""Installed releases are compared with those that were tested."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from rpg.system.tested_releases import PINS, Outside, judge

ROOT = Path(__file__).resolve().parents[2]
ASKED = ['one>=1.2,<2; extra == "a"', 'two>=3; extra == "a"', 'two>=3,<3.5; extra == "b"']
PINNED = {"one": "1.5", "two": "4.0"}


def test_releases_between_the_bound_and_the_pin_were_tested():
    assert judge(ASKED, PINNED, {"one": "1.2", "two": "4.0+cpu"}) == []


def test_a_release_above_the_pin_is_newer_than_what_was_tested():
    assert judge(ASKED, PINNED, {"one": "1.6"}) == [Outside("one", "1.6", "up to 1.5", False)]


def test_a_release_that_no_extra_allows_is_refused():
    assert judge(ASKED, PINNED, {"one": "2.1"}) == [Outside("one", "2.1", "<2,>=1.2", True)]


def test_a_release_that_another_extra_excludes_is_not_refused():
    assert judge(ASKED, PINNED, {"two": "3.7"}) == []


def test_the_pins_are_those_of_every_installation():
    assert PINS.read_bytes() == (ROOT / "constraints.txt").read_bytes()


def test_every_pin_is_inside_the_metadata_s_bounds():
    """A pin that no extra allows would make each installation with the pins impossible. The extras
    that are left out have releases of their own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"]]
    for name, texts in extras.items():
        asked += texts if name not in ("vllm", "inspect", "all") else []
    pins = dict(
        line.split("==") for line in PINS.read_text().splitlines() if not line.startswith("#")
    )
    lower = {name.lower(): pin for name, pin in pins.items()}
    refused = [
        text
        for text in asked
        if not Requirement(text).specifier.contains(lower[Requirement(text).name.lower()])
    ]
    assert refused == []
