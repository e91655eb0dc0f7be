"""One `rpg serve` for all tests of this folder, on free ports, with a data folder of its own."""

import pytest

from tests.operations.serving import Served


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    one = Served(tmp_path_factory.mktemp("served"))
    try:
        yield one
    finally:
        one.stop()
