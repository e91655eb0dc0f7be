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


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A data folder whose caches hold the data and the initial model of `tests.tiny.make_spec()`."""
    from rpg.backends.local.run import configure_torch
    from rpg.models.initial import initial_policy
    from tests.tiny import make_spec

    folder = tmp_path_factory.mktemp("home")
    configure_torch(make_spec())
    initial_policy(make_spec(), folder, say=lambda line: None)
    return folder


@pytest.fixture
def policy(home):
    """The initial policy, fresh for each test."""
    from rpg.models.initial import initial_policy
    from tests.tiny import make_spec

    return initial_policy(make_spec(), home)
