"""Which tests execute which lines of the files under test: a pytest plugin, and the order in which
tests are tried."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


class Observer:
    """Records the executed lines of `files` (relative to `root`) per test, and how long each test
    took.

    What a fixture executes belongs to every test of its file: a wider fixture is set up once, for
    the first of them.
    """

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self._names = {str(root / file): file for file in files}
        self._setup: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self._lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self._current: set[tuple[str, int]] = set()
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        name = self._names.get(frame.f_code.co_filename)
        if name is None:
            return None
        self._current.add((name, frame.f_lineno))

        def local(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                self._current.add((name, frame.f_lineno))
            return local

        return local

    def _observe(self, into: set[tuple[str, int]]) -> Iterator[None]:
        self._current = into
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self._observe(self._setup[item.nodeid.partition("::")[0]])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._observe(self._lines[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def tests_of(self) -> dict[tuple[str, int], list[str]]:
        """(file, line) -> the passing tests that execute it, the quickest first."""
        found: dict[tuple[str, int], list[str]] = defaultdict(list)
        for test in sorted(self.seconds, key=lambda nodeid: (self.seconds[nodeid], nodeid)):
            for place in self._lines[test] | self._setup[test.partition("::")[0]]:
                found[place].append(test)
        return found


class Order:
    """Runs the tests in the order in which they were named."""

    def __init__(self, nodeids: Sequence[str]) -> None:
        self._rank = {nodeid: rank for rank, nodeid in enumerate(nodeids)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._rank),
            key=lambda item: self._rank[item.nodeid],
        )
