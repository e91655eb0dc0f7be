"""The three tiers of tests, and what a unit test may not do. A plugin of pytest (conftest.py).

`tiers.yaml` says which files and fixtures belong to the tiers `component` and `system`; a single
test can be marked with one of them. Every other test is a unit test. A unit test fails if it takes
more than a second of processor time, starts a process, listens, or loads a package of HEAVY. The
second is that of a quiet core here: where the machine is slower, or busy, it is as much longer.
"""

import functools
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

TIERS = ("unit", "component", "system")
HEAVY = ("ray", "streamlit", "transformers", "verl")
"""Packages whose import takes seconds. DuckDB's does not; its databases are a component's."""
SECONDS = 1.0
"""Processor seconds of a unit test, on a core on which `_work` takes WORK_SECONDS."""
COMPONENT_SECONDS = 10.0
"""Processor seconds, with those of processes that it has waited for, of a component test."""
WORK_SECONDS = 0.016
PROCESSOR_SECONDS = "processor_seconds"
"""A property of the report of a component test."""
ROOT = Path(__file__).parents[1]
LISTED = yaml.safe_load(Path(__file__).with_name("tiers.yaml").read_text("utf-8"))
_FILES = {name: tier for tier, named in LISTED.items() for name in named["files"].split()}
_FIXTURES = {name: tier for tier, named in LISTED.items() for name in named["fixtures"].split()}

BROUGHT_BY = {
    "vllm": "docs/verl.md, *On a CPU*: an environment of its own with vLLM",
    "trl": "pip install -c constraints.txt -e '.[peers]'",
    "mlflow|wandb|tensorboard|trackio": "pip install -c constraints.txt -e '.[trackers]'",
    "inspect.ai": "pip install -c constraints.txt -e '.[inspect]'",
    "boto3|moto|s3fs": "pip install -c constraints.txt -e '.[archive]' boto3 'moto[server]'",
    "chromium": "apt-get install chromium",
    "postgres": "apt-get install postgresql",
    "no proxy": "apt-get install nginx-light caddy",
    "slurm": "apt-get install slurm-wlm munge",
    "latex": "apt-get install texlive-latex-recommended",
    r"RPG_DATA|published": "RPG_DATA=FOLDER, with the published data sets in it",
    r"\buv\b": "pip install uv",
    "could not import|not installed|no module": "make setup",
}
"""Part of the reason of a skipped test -> what brings what it lacks."""

_started = []
"""What was started in this process since the list was last emptied."""


def pytest_configure():
    """Take note of what starts processes and servers from here on."""
    os.register_at_fork(before=lambda: _started.append("forks a process"))
    begin = subprocess.Popen.__init__
    listen = socket.socket.listen

    def noted_begin(self, *arguments, **options):
        _started.append("starts a process")
        begin(self, *arguments, **options)

    def noted_listen(self, *arguments):
        _started.append("listens")
        listen(self, *arguments)

    subprocess.Popen.__init__ = noted_begin
    socket.socket.listen = noted_listen


def tier_of_file(path):
    """The tier that the tests of a file have at least; `path` is below the repository."""
    name = path.removeprefix("tests/").removesuffix(".py")
    while name:
        if name in _FILES:
            return _FILES[name]
        folder = name.rstrip("/").rpartition("/")[0]
        name = f"{folder}/" if folder else ""
    return "unit"


def tier_of(item):
    """The highest tier of a test's marks, fixtures and file."""
    named = {mark.name for mark in item.iter_markers()}
    named |= {_FIXTURES.get(name) for name in getattr(item, "fixturenames", ())}
    named.add(tier_of_file(item.nodeid.partition("::")[0]))
    return max((tier for tier in TIERS if tier in named), key=TIERS.index, default="unit")


def mark_all(items):
    """Give each test the mark of its tier, and no other tier's."""
    of_items = [(item, tier_of(item)) for item in items]
    for item, tier in of_items:
        for node in item.listchain():
            node.own_markers = [mark for mark in node.own_markers if mark.name not in TIERS]
        item.add_marker(tier)


def pytest_ignore_collect(collection_path, config):
    """Files that can have no test of the wanted tiers are not even imported."""
    words = config.getoption("markexpr", "").split(" or ")
    if not set(words) <= set(TIERS):
        return None
    if collection_path.is_dir():
        return None
    lowest = tier_of_file(os.path.relpath(collection_path, ROOT))
    return True if max(map(TIERS.index, words)) < TIERS.index(lowest) else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A file of unit tests whose import loads a heavy package fails."""
    loaded = _loaded()
    report = yield
    is_file = isinstance(collector, pytest.Module) and report.passed
    if is_file and tier_of_file(collector.nodeid) == "unit" and _loaded() - loaded:
        report.outcome = "failed"
        names = ", ".join(sorted(_loaded() - loaded))
        report.longrepr = f"a file of unit tests loads {names}: list it in tests/tiers.yaml"
    return report


def _work():
    """A fixed piece of work of the kind that tests do: objects, texts, a sort."""
    texts = [f"{number % 997} {number}" for number in range(20_000)]
    counts = Counter(text.partition(" ")[0] for text in texts)
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _slowness():
    """How many times as long as on the core of WORK_SECONDS work takes at this moment; at least 1.

    A slow machine, and one whose cores are shared with others, both need more processor time.
    """
    taken = []
    for _ in range(5):
        begin = time.process_time()
        _work()
        taken.append(time.process_time() - begin)
    return max(1.0, statistics.median(taken) / WORK_SECONDS)


def _loaded():
    return {name for name in HEAVY if name in sys.modules}


def _watch_duckdb():
    """Take note of each database that is opened, once DuckDB is loaded."""
    duckdb = sys.modules.get("duckdb")
    if duckdb is None or hasattr(duckdb.connect, "__wrapped__"):
        return
    connect = duckdb.connect

    @functools.wraps(connect)
    def noted_connect(*arguments, **options):
        _started.append("opens DuckDB")
        return connect(*arguments, **options)

    duckdb.connect = noted_connect


@contextmanager
def _watched(what, seconds):
    """Raises Failed where a unit test does what only higher tiers may."""
    loaded = _loaded()
    _watch_duckdb()
    _started.clear()
    begin = time.process_time()
    yield
    taken = time.process_time() - begin
    done = [f"loads {name}" for name in sorted(_loaded() - loaded)]
    done += dict.fromkeys(_started)
    if taken > seconds and taken > seconds * _slowness():
        done.append(f"takes {taken:.1f} s of processor time")
    if done:
        pytest.fail(f"{what} {' and '.join(done)}: list it in tests/tiers.yaml", pytrace=False)


def _is_unit(item):
    return item.get_closest_marker("unit") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if not _is_unit(item):
        return (yield)
    with _watched("the set-up of a unit test", SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if _is_unit(item):
        with _watched("a unit test", SECONDS):
            return (yield)
    if item.get_closest_marker("component") is None:
        return (yield)
    begin = _processor_seconds()
    try:
        return (yield)
    finally:
        taken = _processor_seconds() - begin
        item.user_properties.append((PROCESSOR_SECONDS, round(taken, 1)))


def _processor_seconds():
    """Of this process, and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _lacking(reason):
    """What brings what a skipped test lacks; None if it is no package."""
    for part, command in BROUGHT_BY.items():
        if re.search(part, reason, re.I):
            return command
    return None


def pytest_terminal_summary(terminalreporter):
    _say_what_was_skipped(terminalreporter)
    _say_what_took_long(terminalreporter)


def _say_what_took_long(terminalreporter):
    """Component tests that belong to the tier `system` by what they take here."""
    long = []
    for report in terminalreporter.stats.get("passed", []):
        taken = dict(report.user_properties).get(PROCESSOR_SECONDS, 0.0)
        if report.when == "call" and taken > COMPONENT_SECONDS:
            long.append((taken, report.nodeid))
    for taken, name in sorted(long, reverse=True):
        terminalreporter.line(f"a component test took {taken:.0f} processor seconds: {name}")


def _say_what_was_skipped(terminalreporter):
    """One line for each thing that brings what is missing."""
    brought = Counter()
    others = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        command = _lacking(reason)
        if command is None:
            others[reason] += 1
        else:
            brought[command] += 1
    for command, count in brought.most_common():
        terminalreporter.line(f"skipped {count}; to run: {command}")
    for reason, count in others.most_common():
        terminalreporter.line(f"skipped {count}: {reason}")
