"""What all tests share: an environment that does not depend on who started them, and groups for two workers at a time.

`make test` gives each worker whole groups. Tests of one file are a group, and so are all tests that use one of the
things that take seconds to make (below): each of them is made once.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

# `nohup`, and the `&` of a shell without job control, leave signals ignored, and children inherit that.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)
# Nobody's data folder, server or slots but our own; RPG_DATA says where the published data sets are.
for _name in [name for name in os.environ if name.startswith(("RPG_", "PREFECT_")) and name != "RPG_DATA"]:
    del os.environ[_name]
_slots = tempfile.mkdtemp(prefix="rpg-slots-")
atexit.register(shutil.rmtree, _slots, ignore_errors=True)
os.environ["RPG_SLOTS_FOLDER"] = _slots
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: the two workers have a core each

from tests.real_sweep import ROOT, SMALL, rpg  # noqa: E402

SHARED = ("served", "bench", "prefect")
"""Fixtures of the whole session that take seconds: each is made by one worker only. See also the mark `xdist_group`."""
FIRST = ("served", "ray", "bench", "prefect", "verl", "tests/dashboard/test_browser.py")
"""The longest groups, so that neither worker has one left when the other has finished."""


def _group(item):
    mark = item.get_closest_marker("xdist_group")
    if mark:
        return mark.args[0]
    return next((name for name in SHARED if name in item.fixturenames), item.location[0])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: (*FIRST, _group(item)).index(_group(item)))


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


@pytest.fixture(scope="session")
def prefect(tmp_path_factory):
    """What a sweep has to be told so that it uses one Prefect server for all tests: each would start its own."""
    from flows.server import EPHEMERAL, HOST, quiet_environment, wait_healthy

    folder = tmp_path_factory.mktemp("prefect")
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    environment = os.environ | quiet_environment(folder) | EPHEMERAL | {"PYTHONPATH": str(ROOT)}
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "flows.server", str(port)],
            stdout=output,
            stderr=output,
            env=environment | {"PREFECT_UI_ENABLED": "0"},
            cwd=folder,
        )
    try:
        wait_healthy(server, f"http://{HOST}:{port}/api", log)
        yield {"PREFECT_API_URL": f"http://{HOST}:{port}/api"}
    finally:
        server.kill()
        server.wait()
