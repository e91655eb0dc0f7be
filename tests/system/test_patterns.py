"""A pattern that takes for ever ends after seconds, and says so."""

import time

import pytest

from rpg.system import patterns
from rpg.tasks.problems import DataError
from rpg.tasks.rows import text_of

FOR_EVER = "(x|xx)+$"
TEXT = "x" * 50_000 + "y"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 0.1)


def test_a_pattern_with_nested_repetitions_ends():
    began = time.process_time()
    with pytest.raises(patterns.TooSlow, match=r"more than 0.1 s on 'x+'; write it without nested"):
        patterns.search(FOR_EVER, TEXT)
    assert time.process_time() - began < 1.0


def test_a_column_s_pattern_names_the_row():
    with pytest.raises(DataError, match=r"data\.jsonl:7: column w: the pattern .* takes more than"):
        text_of({"w": TEXT}, f'regex("{FOR_EVER}", w)', "data.jsonl:7")


def test_a_dot_is_a_line_break_too():
    assert patterns.search("a.b", "a\nb")
    assert patterns.search("a.b", "ab") is None
