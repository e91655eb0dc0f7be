"""The faults that a night plants can be planted: a line that has changed is noticed here, not at night."""

import ast
from pathlib import Path

import pytest

from flows.other_code import faults, plant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault["name"])
def test_a_fault_leaves_another_program(fault, tmp_path):
    before, copy = ROOT / fault["file"], tmp_path / fault["file"]
    copy.parent.mkdir(parents=True)
    copy.write_bytes(before.read_bytes())
    plant(tmp_path, fault)
    if before.suffix == ".py":
        assert ast.dump(ast.parse(copy.read_text("utf-8"))) != ast.dump(ast.parse(before.read_text("utf-8")))
    else:
        assert copy.read_text("utf-8") != before.read_text("utf-8")


def test_there_are_fifty_and_each_has_its_own_name():
    assert len({fault["name"] for fault in faults()}) == len(faults()) == 50
