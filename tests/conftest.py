"""Tests never wait for a training of somebody else on this machine: they have slots of their own."""

import os
import tempfile

import pytest

from tests.real_sweep import SMALL, rpg

os.environ.setdefault(
    "RPG_SLOTS_FOLDER", os.path.join(tempfile.gettempdir(), f"rpg-slots-test-{os.getuid()}")
)


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    """A folder with the sweep file and a finished run of it."""
    root = tmp_path_factory.mktemp("sweep")
    (root / "small.yaml").write_text(SMALL)
    done = rpg(root, "sweep", "small.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done
