"""A data folder with the initial model of the runs in tiny.py."""

import pytest
import torch

from rpg.backends.local.initial import initial_policy
from rpg.backends.local.run import configure_torch
from tests.local.tiny import make_spec


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A data folder whose caches hold the data and the initial model of `make_spec()`."""
    folder = tmp_path_factory.mktemp("home")
    configure_torch(make_spec())
    initial_policy(make_spec(), folder, say=lambda line: None)
    return folder


@pytest.fixture
def policy(home):
    """The initial policy, fresh for each test."""
    return initial_policy(make_spec(), home)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
