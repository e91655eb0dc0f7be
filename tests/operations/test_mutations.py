"""The mistakes that `benchmarks/nights.py` plants can be planted: a line that has moved is noticed here, not halfway."""

import ast

import pytest

from benchmarks.nights import MUTATIONS, ROOT


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_has_one_place_and_leaves_a_program(name):
    file, there, planted = MUTATIONS[name]
    text = (ROOT / "rpg" / file).read_text("utf-8")
    assert text.count(there) == 1, "not one place: which of them is meant?"
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(text.replace(there, planted)))
