"""The tiers of tests: what a unit test may not do is noticed, and the table names what is there."""

import contextlib
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from tests import tiers

TESTS = Path(__file__).parent


def watched():
    """The watch over a unit test's call."""
    return tiers._watched("a unit test", 0.05)


def start_nothing():
    """As far as the watch sees a process."""
    process = subprocess.Popen.__new__(subprocess.Popen)
    with contextlib.suppress(TypeError):
        process.__init__()


def compute(seconds):
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        pass


def test_a_unit_test_that_starts_a_process_fails():
    with pytest.raises(pytest.fail.Exception, match="starts a process"), watched():
        start_nothing()
    tiers._started.clear()  # the watch over this very test saw it, too


def test_a_unit_test_that_takes_too_long_fails(monkeypatch):
    monkeypatch.setattr(tiers, "_slowness", lambda: 1.0)
    with pytest.raises(pytest.fail.Exception, match="s of processor time"), watched():
        compute(seconds=0.2)


def test_a_slow_machine_gives_a_unit_test_as_much_more_time(monkeypatch):
    monkeypatch.setattr(tiers, "_slowness", lambda: 20.0)
    with watched():
        compute(seconds=0.2)


def test_a_unit_test_that_takes_too_long_fails_on_a_slow_machine_too(monkeypatch):
    monkeypatch.setattr(tiers, "_slowness", lambda: 2.0)
    with pytest.raises(pytest.fail.Exception, match="s of processor time"), watched():
        compute(seconds=0.2)


def test_slowness_is_measured_by_work(monkeypatch):
    monkeypatch.setattr(tiers, "WORK_SECONDS", 1000.0)
    assert tiers._slowness() == 1.0, "a fast machine gives no test less time"
    monkeypatch.setattr(tiers, "WORK_SECONDS", 1e-5)
    assert tiers._slowness() > 10.0


def test_a_unit_test_that_loads_a_heavy_package_fails(monkeypatch):
    monkeypatch.setattr(tiers, "HEAVY", ("a_heavy_package",))
    with pytest.raises(pytest.fail.Exception, match="loads a_heavy_package"), watched():
        monkeypatch.setitem(sys.modules, "a_heavy_package", types.ModuleType("a_heavy_package"))
    monkeypatch.undo()


def test_a_unit_test_that_only_computes_passes():
    with watched():
        assert sum(range(10)) == 45


def test_a_file_has_the_tier_of_its_line_or_of_its_folder():
    assert tiers.tier_of_file("tests/stats/test_estimates.py") == "unit"
    assert tiers.tier_of_file("tests/local/test_trainer.py") == "component"
    assert tiers.tier_of_file("tests/dashboard/test_browser.py") == "system"
    assert tiers.tier_of_file("tests/verl/test_launch_metrics.py") == "unit"


@pytest.mark.parametrize("name", sorted(tiers._FILES))
def test_what_the_table_lists_exists(name):
    path = TESTS / name
    assert path.is_dir() if name.endswith("/") else path.with_suffix(".py").is_file()


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        (
            "could not import 'trl': No module named 'trl'",
            "pip install -c constraints.txt -e '.[peers]'",
        ),
        ("no Chromium here (Debian: apt-get install chromium)", "apt-get install chromium"),
        ("could not import 'verl': No module named 'verl'", "make setup"),
        ("only root can be two users", None),
    ],
)
def test_what_is_skipped_is_said_with_what_brings_it(reason, command):
    assert tiers._lacking(reason) == command
