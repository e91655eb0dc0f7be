"""The faults that `python -m benchmarks.nights` plants fit the source as it is."""

import ast

import pytest

from benchmarks.nights import ROOT, faults


@pytest.mark.component
def test_every_standing_mutant_can_be_planted_and_is_another_program():
    listed = faults()
    assert len({fault["name"] for fault in listed}) == len(listed) == 53
    for fault in listed:
        text = (ROOT / fault["file"]).read_text()
        assert fault["original"] in text, f"{fault['name']}: list another fault"
        changed = text.replace(fault["original"], fault["replacement"], 1)
        assert changed != text
        if fault["file"].endswith(".py"):
            before, after = (ast.dump(ast.parse(program)) for program in (text, changed))
            assert before != after, f"{fault['name']}: no other program"
