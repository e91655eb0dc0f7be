"""The CPU platform for verl in this process, and a data folder with the initial model of the runs
in inside.py."""

import os
import shutil

import pytest
import torch


@pytest.fixture(scope="session")
def cpu_verl():
    """verl with our plug-in, as a job's processes have it."""
    pytest.importorskip("verl")
    before = os.environ.get("VERL_PLATFORM")
    os.environ["VERL_PLATFORM"] = "cpu"
    import verl  # noqa: F401
    from verl.plugin.platform import set_platform
    from verl_cpu.platform import CPUPlatform
    from verl_cpu.plugin import install

    install()
    set_platform(CPUPlatform())
    yield
    os.environ.pop("VERL_PLATFORM") if before is None else os.environ.update(VERL_PLATFORM=before)


@pytest.fixture(scope="session")
def home(home, tmp_path_factory):
    return shutil.copytree(home / "cache", tmp_path_factory.mktemp("home") / "cache").parent


@pytest.fixture(scope="session")
def model(home):
    from rpg.models.initial_policy import prepare_model
    from tests.verl.inside import make_spec

    return prepare_model(make_spec(), home)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def config(tmp_path):
    """verl's configuration of a run, by its changes to the runs of inside.py."""
    pytest.importorskip("verl")
    from tests.verl.inside import make_spec, verl_config

    return lambda *extra, **changes: verl_config(
        make_spec(**changes), tmp_path / "model", tmp_path, *extra
    )
