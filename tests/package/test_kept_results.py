"""A benchmark that was interrupted goes on after the results that it has."""

import pytest

from benchmarks import kept_results
from benchmarks.kept_results import KeptResults


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_results, "digest_of_source", lambda: "today")
    return tmp_path / "new" / "results.jsonl"


def never():
    raise AssertionError("measured twice")


def test_what_is_in_the_file_is_not_measured_again(file):
    KeptResults(file).of("a", lambda: {"red": True})

    assert KeptResults(file).of("a", never) == {"red": True}


def test_results_of_another_source_count_for_nothing_and_stay(file, monkeypatch):
    KeptResults(file).of("a", lambda: 1)
    monkeypatch.setattr(kept_results, "digest_of_source", lambda: "tomorrow")
    assert KeptResults(file).of("a", lambda: 2) == 2

    monkeypatch.setattr(kept_results, "digest_of_source", lambda: "today")
    assert KeptResults(file).of("a", never) == 1


def test_a_line_that_was_torn_is_measured_again(file):
    KeptResults(file).of("a", lambda: 1)
    with file.open("a") as torn:
        torn.write('{"case": "b", "resu')

    KeptResults(file).of("b", lambda: 2)

    assert KeptResults(file).of("a", never) == 1
    assert KeptResults(file).of("b", never) == 2


def test_an_interruption_keeps_what_came_before(file):
    def interrupted():
        raise KeyboardInterrupt

    kept = KeptResults(file)
    kept.of("a", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        kept.of("b", interrupted)

    assert KeptResults(file).of("a", never) == 1
    assert KeptResults(file).of("b", lambda: 2) == 2


def test_without_a_file_nothing_is_kept():
    assert KeptResults(None).of("a", lambda: 1) == 1
    assert KeptResults(None).of("a", lambda: 2) == 2
