"""AGENTS.md tells the truth: the files it names exist, the commands it names are known."""

import re

import pytest
import yaml

from tests.docs.pages import ROOT

PAGE = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
FILES = sorted(set(re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:md|yaml|py))`", PAGE)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_named_exists(name):
    assert (ROOT / name).is_file()


def test_the_commands_that_are_named_exist():
    listed = yaml.safe_load((ROOT / "rpg/cli/commands.yaml").read_text("utf-8"))
    known = {name for commands in listed.values() for name in commands}
    named = set(re.findall(r"\brpg ([a-z]+)\b", PAGE))
    assert named
    assert named <= known


def test_five_facts_are_listed():
    facts = PAGE.partition("## Five facts")[2]
    assert re.findall(r"^(\d)\. ", facts, re.M) == list("12345")
