"""What is released says the same of itself everywhere."""

import re
from pathlib import Path

import yaml

import rpg

ROOT = Path(__file__).parents[2]


def test_the_version_is_in_the_changelog_and_in_the_citation():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.M)
    assert versions[0] == rpg.__version__, "the newest section below Unreleased"
    assert (
        yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
        == rpg.__version__
    )
    assert re.search(r"^## Unreleased$", changelog, re.M), "where the next change is written down"
