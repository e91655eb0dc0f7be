"""A stage that ends with a mistake of the user says it, and keeps nothing of how it came."""

import traceback

import pytest

from flows.sweep.context import StageFailed
from flows.sweep.flow import without_frames
from rpg.errors import UserError


def test_a_mistake_keeps_its_words_and_no_frames():
    """Prefect keeps the error, and a frame would keep the database that is open in it."""

    @without_frames
    def report():
        raise UserError("a and b cannot stand in one table")

    with pytest.raises(StageFailed, match="a and b cannot stand in one table") as caught:
        report()
    assert caught.value.__context__ is None
    names = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert names[-1] == "with_a_plain_mistake"
    assert "report" not in names


def test_what_is_no_mistake_of_the_user_keeps_its_traceback():
    @without_frames
    def report():
        raise KeyError("bug")

    with pytest.raises(KeyError) as caught:
        report()
    assert traceback.extract_tb(caught.tb)[-1].name == "report"
