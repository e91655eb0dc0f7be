"""The record of verl's internals that are in use, by what they are for; without verl."""

from pathlib import Path

import yaml

from benchmarks.verl_internals import RECORD, purposes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verl.md"


def test_every_recorded_internal_is_used_for_something():
    """One that no source names any more would be checked for ever."""
    recorded = yaml.safe_load(RECORD.read_text("utf-8"))
    counted = [name for group in purposes().values() for name in group]
    assert sorted(counted) == sorted(recorded)


def test_the_page_counts_them():
    page = PAGE.read_text("utf-8")
    for purpose, group in purposes().items():
        assert f"| {purpose} | {len(group)} |" in page
