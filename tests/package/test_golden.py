"""Two dumps of the same are equal, and a planted difference is named with its file and line."""

import pytest

from benchmarks.golden.differences import describe


@pytest.fixture
def dumps(tmp_path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.txt").write_text("grpo 0.676\ndapo 0.678\n")
    return tmp_path / "before", tmp_path / "after"


def test_equal_dumps_have_no_differences(dumps):
    assert describe(*dumps, most_lines=5) == []


def test_a_changed_digit_is_shown_with_both_lines(dumps):
    before, after = dumps
    (after / "table.txt").write_text("grpo 0.676\ndapo 0.679\n")
    assert describe(before, after, most_lines=5) == [
        "  table.txt:",
        "    - dapo 0.678",
        "    + dapo 0.679",
    ]


def test_another_order_is_a_difference(dumps):
    before, after = dumps
    (after / "table.txt").write_text("dapo 0.678\ngrpo 0.676\n")
    assert describe(before, after, most_lines=5) == [
        "  table.txt:",
        "    the same lines in another order",
    ]


def test_files_that_came_or_went_are_named(dumps):
    before, after = dumps
    (before / "old.txt").write_text("x\n")
    (after / "new.txt").write_text("x\n")
    assert describe(before, after, most_lines=5) == ["  old.txt: is gone", "  new.txt: is new"]
