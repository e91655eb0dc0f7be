"""What all tests share: an environment that does not depend on who started them, and groups of
files for its workers.

`make test` gives each worker whole groups: the tests of a file, or of a group in groups.yaml.
"""

import atexit
import fcntl
import gc
import os
import runpy
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings

# `nohup`, and the `&` of a shell without job control, leave signals ignored, and children inherit
# that.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(
            _number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        )
# Nobody's data folder, server or slots but our own; RPG_DATA says where the published data sets
# are, RPG_MODELS the data folder in which pretrained models are kept.
for _name in [
    name
    for name in os.environ
    if name.startswith(("RPG_", "PREFECT_")) and name not in ("RPG_DATA", "RPG_MODELS")
]:
    del os.environ[_name]
_slots = tempfile.mkdtemp(prefix="rpg-slots-")
atexit.register(shutil.rmtree, _slots, ignore_errors=True)
os.environ["RPG_SLOTS_FOLDER"] = _slots
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: workers share the cores
# Ray gives its workers a niceness of 15: beside other tests they would get next to nothing.
os.environ.update({"RAY_worker_niceness": "0"})

from rpg.store import locks  # noqa: E402
from rpg.system.processes import collect_seldom  # noqa: E402
from tests import tiers  # noqa: E402
from tests.real_sweep import ROOT, SMALL, rpg  # noqa: E402
from tests.waiting import free_port  # noqa: E402

GROUPS = yaml.safe_load(Path(__file__).with_name("groups.yaml").read_text("utf-8"))
"""Group -> its files below tests/, without `.py`."""
_GROUP_OF = {f"tests/{file}.py": group for group, files in GROUPS.items() for file in files.split()}


def _group(nodeid):
    file = nodeid.partition("::")[0]
    return _GROUP_OF.get(file, file)


settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")  # a slow one, too
gc.disable()  # while tests are imported (rpg.system.processes.quick_imports)


def pytest_collection_finish():
    gc.freeze()  # what was imported stays: nothing looks through it again
    if "PYTEST_XDIST_WORKER" not in os.environ:
        atexit.register(
            gc.unfreeze
        )  # else DuckDB's binding reports leaks, which workers are spared
    gc.enable()
    collect_seldom()


def pytest_configure(config):
    config.pluginmanager.register(tiers, "tiers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The groups first, then files with tests of the higher tiers: no worker has one left when the
    others are done."""
    tiers.mark_all(items)
    order = [*GROUPS]
    marked = {(_group(item.nodeid), mark.name) for item in items for mark in item.iter_markers()}

    def place(item):
        group = _group(item.nodeid)
        late = 2 * ((group, "system") not in marked) + ((group, "component") not in marked)
        return order.index(group) if group in order else len(order) + late

    items.sort(key=place)


_forked = runpy.run_path(str(ROOT / ".ci/forked_workers.py"))
pytest_xdist_setupnodes = pytest.hookimpl(optionalhook=True)(_forked["pytest_xdist_setupnodes"])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Whole groups to each worker. Not `--dist loadgroup`: pytest-xdist 3.8 marks nothing under
    pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _group(nodeid)

    config.option.loadscopereorder = False  # as sorted above
    return Groups(config, log)


@pytest.fixture(autouse=True)
def _no_settings_of_another_test():
    """What a command sets for Prefect, the data folder among it, holds for the life of its process:
    here, of a worker."""
    yield
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]


@pytest.fixture(scope="session")
def bench(tmp_path_factory, prefect):
    """A folder with the sweep file and a finished run of it."""
    root = tmp_path_factory.mktemp("sweep")
    (root / "small.yaml").write_text(SMALL)
    done = rpg(root, "sweep", "small.yaml", **prefect)
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done


@pytest.fixture
def command_line(capfd, monkeypatch):
    """`rpg` in this process: a function of its words that returns (exit code, output, errors as one
    line). The console is as wide as that of `tests.real_sweep`, whatever runs the tests."""
    from rpg.cli import main
    from rpg.cli.app import console

    monkeypatch.setattr(console, "width", 160)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["rpg", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capfd.readouterr()
        return end.value.code, captured.out, " ".join(captured.err.split())

    return run


def common(tmp_path_factory, name):
    """A folder for all workers."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A data folder whose caches hold the data and the initial model of
    `tests.tiny.make_spec()`."""
    from rpg.backends.local.training_loop import configure_torch
    from rpg.models.initial_policy import initial_policy
    from tests.tiny import make_spec

    folder = tmp_path_factory.mktemp("home")
    first = common(tmp_path_factory, "warm")
    configure_torch(make_spec())
    with locks.in_turn(first / "lock"):
        initial_policy(make_spec(), first, say=lambda line: None)
    shutil.copytree(first / "cache", folder / "cache")
    return folder


@pytest.fixture
def policy(home):
    """The initial policy, fresh for each test."""
    from rpg.models.initial_policy import initial_policy
    from tests.tiny import make_spec

    return initial_policy(make_spec(), home)


@pytest.fixture(scope="session")
def prefect(tmp_path_factory):
    """What a sweep has to be told so that it uses one Prefect server for all tests: each would
    start its own.

    The first worker that needs it starts it, and at its end waits for the others, who hold the file
    `users`.
    """
    from flows.prefect.server import HOST, private, quiet_environment
    from flows.prefect.service import start_in_turn

    folder = common(tmp_path_factory, "prefect")
    server = None
    address = folder / "address"
    with (folder / "users").open("w") as users:
        with locks.in_turn(folder / "start.lock"):
            if address.exists():
                fcntl.flock(users, fcntl.LOCK_SH)
            else:
                port = free_port()
                server = private(port, folder / "server.log")
                server.environment |= quiet_environment(folder) | {"PYTHONPATH": str(ROOT)}
                start_in_turn([server], folder)
                address.write_text(f"http://{HOST}:{port}/api")
            url = address.read_text()
        yield {"PREFECT_API_URL": url}
        if server:
            with locks.in_turn(folder / "start.lock"):
                address.unlink()  # who comes now starts another
            fcntl.flock(users, fcntl.LOCK_EX)
            server.stop(0)
