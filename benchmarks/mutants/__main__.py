"""Plant small faults in the core, one at a time, and count how many the tests of its room see.

    python -m benchmarks.mutants [--sample 300] [--seed 0] [--workers 2] [--only losses stats]
        [--list]

A fault is a changed operator, constant, condition or call (benchmarks/mutants/mutations.py), chosen
by a hash of its text, so that the choice stays the same while other lines change. The tests of a
room run once while it is noted which of them execute which line; then each fault is tried against
the tests that execute its lines, in a copy of the source, until one fails. A fault that hangs or
crashes the tests is seen, too. survivors.yaml lists those that no test can see (the mutant computes
the same) or need not see, each with its reason. Exit code 1 when fewer than 90 % are seen, or when
a survivor is not listed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.mutants.mutations import Mutant, mutants
from benchmarks.mutants.observed import Observer, Order
from benchmarks.mutants.planting import functions_of, plant

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.yaml")
Key = tuple[str, str, str, str]
SEEN = 0.9
"""The share of faults that the tests have to see."""

ROOMS: dict[str, tuple[list[str], list[str]]] = {
    "losses": (["rpg/losses/*.py"], ["tests/losses", "tests/auditing/test_corrections.py"]),
    "stats": (
        ["rpg/stats/*.py"],
        [
            "tests/stats",
            "tests/study/test_search_and_problems.py",
        ],
    ),
    "current runs": (["rpg/store/current.py"], ["tests/store/test_current.py"]),
    "identity": (["rpg/config/identity.py"], ["tests/config/test_identity.py"]),
    "summary": (
        [
            f"rpg/report/{name}.py"
            for name in ("summary", "selection", "comparison", "measured_rows", "collapsed_seeds")
        ],
        [
            f"tests/report/test_{name}.py"
            for name in ("summary", "notes", "looks", "spending", "report", "diagnostics")
        ],
    ),
    "sampler": (
        [
            "rpg/backends/local/sampler.py",
            "rpg/models/decoding.py",
            "rpg/models/truncated_sampling.py",
        ],
        [
            "tests/models/test_decoding.py",
            "tests/models/test_block_decoding.py",
            "tests/models/test_truncated_sampling.py",
            "tests/local/test_sampler.py",
        ],
    ),
    "evaluation": (
        [
            "rpg/evaluation/graded_samples.py",
            "rpg/evaluation/benchmark_summary.py",
            "rpg/evaluation/regrade.py",
        ],
        [
            f"tests/evaluation/test_{name}.py"
            for name in (
                "graded_samples",
                "benchmark_summary",
                "regrade",
                "evaluator",
                "standalone",
            )
        ],
    ),
}
"""Room -> (the files in which faults are planted, the tests that have to see them)."""

SLOW_IMPORTS = (
    "torch",
    "numpy",
    "scipy.special",
    "scipy.stats",
    "pandas",
    "duckdb",
    "pyarrow.parquet",
    "transformers",
)
TIMEOUT_FACTOR, TIMEOUT_SECONDS = 10, 60.0
TOO_LATE = 124
"""The exit code of `timeout`."""


def choose(room: str, count: int, seed: int) -> list[Mutant]:
    """The mutants of a room whose hashes come first, `count` at most, in the order of their files
    and lines."""
    globs, _ = ROOMS[room]
    files = sorted({path for glob in globs for path in ROOT.glob(glob)})
    found = [
        mutant
        for path in files
        for mutant in mutants(str(path.relative_to(ROOT)), path.read_text())
    ]
    found.sort(key=lambda mutant: hashlib.sha256(repr((seed, mutant.key)).encode()).hexdigest())
    return sorted(found[:count], key=lambda mutant: (mutant.file, mutant.line, mutant.column))


def quotas(total: int, rooms: Sequence[str]) -> dict[str, int]:
    """How many mutants of each room: in proportion to the square root of how many there are."""
    weights = {room: len(choose(room, sys.maxsize, 0)) ** 0.5 for room in rooms}
    return {
        room: max(1, round(total * weight / sum(weights.values())))
        for room, weight in weights.items()
    }


def copy_of_the_source(folder: Path) -> Path:
    """The tracked and new files of the checkout, so that nothing of it is ever changed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.exists() or source.is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)
    return folder


def enter(folder: Path) -> None:
    """Make this (forked) process import from `folder`, and write to a log there."""
    os.chdir(folder)
    with (folder / "mutants.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ["PYTHONPATH"] = str(folder)
    # Two versions of a file within one second look the same to the cache of bytecode.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    sys.path[:] = [
        str(folder),
        *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT),
    ]
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] in ("benchmarks", "flows", "rpg", "tests")
    ]:
        del sys.modules[name]


def forked(body: Callable[[], int], timeout: float) -> int:
    """The exit code of `body` in a forked process group; TOO_LATE when it takes too long."""
    child = os.fork()
    if child == 0:
        code = 125
        try:
            os.setpgid(0, 0)
            code = body()
        finally:
            os._exit(code)
    try:
        code = _exit_code(child, time.monotonic() + timeout)
    finally:  # also where this process is told to end
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    if code == TOO_LATE:
        os.waitpid(child, 0)
    return code


def _exit_code(child: int, until: float) -> int:
    while time.monotonic() <= until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return TOO_LATE


def run_tests(tests: list[str], *plugins: object) -> int:
    """pytest in this very process."""
    options = [
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:tiers",  # a unit test that is traced takes longer
        "-m",
        "not system",
        "--timeout=120",
    ]
    return int(pytest.main([*options, *tests], plugins=list(plugins)))


class Trials:
    """A plugin that, instead of running the tests, observes them and then tries each fault, in
    forks of this process.

    `outcomes` has one of SEEN_AT_ONCE, SURVIVES, NOT_PLANTED for each mutant; `covering` its tests,
    the quickest first.
    """

    SEEN_AT_ONCE, SURVIVES, NOT_PLANTED = 0, 101, 102

    def __init__(self, folder: Path, chosen: list[Mutant], workers: int, target: Path) -> None:
        self.folder, self.chosen, self.workers, self.target = folder, chosen, workers, target

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        items = {item.nodeid: item for item in session.items}
        seen = self._observe(list(items.values()), session)
        seconds, lines = (
            seen["seconds"],
            {(file, line): tests for file, line, tests in seen["lines"]},
        )
        functions = {
            file: functions_of(self.folder / file)
            for file in {mutant.file for mutant in self.chosen}
        }

        def attempt(mutant: Mutant) -> tuple[int, list[str]]:
            places = [(mutant.file, line) for line in range(mutant.line, mutant.end_line + 1)]
            tests = {test for place in places for test in lines.get(place, ())}
            # A class's body and a default are executed on import, before any test: any of them may
            # see a fault there.
            covering = sorted(tests or seconds, key=lambda test: seconds[test])

            def body() -> int:
                if not plant(mutant, self.folder / mutant.file, functions[mutant.file]):
                    return self.NOT_PLANTED
                failed = _run([items[test] for test in covering], session)
                return self.SEEN_AT_ONCE if failed else self.SURVIVES

            limit = TIMEOUT_SECONDS + TIMEOUT_FACTOR * sum(seconds[test] for test in covering)
            return forked(body, limit) if tests else self.NOT_PLANTED, covering

        with ThreadPoolExecutor(self.workers) as pool:
            outcomes = list(pool.map(attempt, self.chosen))
        self.target.write_text(
            json.dumps({"outcomes": outcomes, "seconds": seconds, "failed": seen["failed"]})
        )
        return True

    def _observe(self, items: list[pytest.Item], session: pytest.Session) -> dict[str, Any]:
        target = self.folder / "observed.json"

        def body() -> int:
            observer = Observer(self.folder, sorted({mutant.file for mutant in self.chosen}))
            session.config.pluginmanager.register(observer)
            _run(items, session, until_failure=False)
            lines = [[file, line, tests] for (file, line), tests in observer.tests_of().items()]
            target.write_text(
                json.dumps({"lines": lines, "seconds": observer.seconds, "failed": observer.failed})
            )
            return 0

        forked(body, 1800)
        observed: dict[str, Any] = json.loads(target.read_text())
        return observed


def _run(items: list[pytest.Item], session: pytest.Session, until_failure: bool = True) -> bool:
    """Whether one of these tests failed."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if until_failure and session.testsfailed:
            return True
    return bool(session.testsfailed)


def survives_import(
    mutant: Mutant, folder: Path, tests: list[str], seconds: dict[str, float]
) -> bool:
    """Whether these tests pass where the fault stands in the file: for faults that no loaded
    function can be given, and to confirm that one survives.
    """
    if not tests:
        return True
    target = folder / mutant.file
    source = target.read_text()

    def body() -> int:
        enter(folder)
        return run_tests(
            ["-x", *dict.fromkeys(test.partition("::")[0] for test in tests)], Order(tests)
        )

    target.write_text(mutant.apply(source))
    try:
        return (
            forked(body, TIMEOUT_SECONDS + TIMEOUT_FACTOR * sum(seconds[test] for test in tests))
            == 0
        )
    finally:
        target.write_text(source)


def try_room(room: str, chosen: list[Mutant], workers: int, listed: Container[Key]) -> list[Mutant]:
    """The mutants of a room that its tests do not see. That those `listed` survive need not be
    confirmed."""
    with tempfile.TemporaryDirectory(prefix="rpg-mutants-") as scratch:
        folder = copy_of_the_source(Path(scratch) / "source")
        target = Path(scratch) / "outcomes.json"

        def body() -> int:
            enter(folder)
            return run_tests(ROOMS[room][1], Trials(folder, chosen, workers, target))

        code = forked(body, 7200)
        if not target.exists():
            log = (folder / "mutants.log").read_text()[-3000:]
            sys.exit(f"the tests of {room} did not run (exit code {code}):\n{log}")
        result = json.loads(target.read_text())
        if result["failed"]:
            sys.exit(f"tests of {room} fail without a fault: {', '.join(result['failed'])}")
        return [
            mutant
            for mutant, (outcome, tests) in zip(chosen, result["outcomes"], strict=True)
            if outcome in (Trials.SURVIVES, Trials.NOT_PLANTED)
            and (mutant.key in listed or survives_import(mutant, folder, tests, result["seconds"]))
        ]


def listed_survivors() -> dict[Key, str]:
    """(file, function, original, replacement) -> why no test has to see it."""
    entries = yaml.safe_load(SURVIVORS.read_text()) or [] if SURVIVORS.exists() else []
    return {
        tuple(entry[k] for k in ("file", "function", "original", "replacement")): entry["reason"]
        for entry in entries
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=300, help="how many faults (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="another choice of faults")
    parser.add_argument("--workers", type=int, default=2, help="faults tried at the same time")
    parser.add_argument(
        "--only", nargs="+", choices=sorted(ROOMS), default=list(ROOMS), help="some of the rooms"
    )
    parser.add_argument("--list", action="store_true", help="print the faults and try none")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    shares = quotas(arguments.sample, arguments.only)
    chosen = {room: choose(room, share, arguments.seed) for room, share in shares.items()}
    if arguments.list:
        for mutant in [mutant for room in chosen.values() for mutant in room]:
            print(
                f"{mutant.file}:{mutant.line} {mutant.operator}: {mutant.original} -> "
                f"{mutant.replacement}"
            )
        return 0
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    excused, total, missed, unlisted = listed_survivors(), 0, 0, 0
    for room, faults in chosen.items():
        began = time.monotonic()
        survivors = try_room(room, faults, arguments.workers, excused)
        total, missed = total + len(faults), missed + len(survivors)
        seen = len(faults) - len(survivors)
        print(
            f"{room:14s} {seen:4d} of {len(faults):4d} seen  ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        for mutant in sorted(survivors, key=lambda survivor: (survivor.file, survivor.line)):
            reason = excused.get(mutant.key)
            unlisted += reason is None
            place = f"{mutant.file}:{mutant.line} in {mutant.function}"
            print(
                f"  {place}: {mutant.original} -> {mutant.replacement}  [{reason or 'NOT LISTED'}]",
                flush=True,
            )
    share = 1 - missed / total
    processor = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    print(
        f"{total - missed} of {total} faults seen ({share:.1%}; {SEEN:.0%} asked); "
        f"survivors that are not listed: {unlisted}; {processor:.0f} s of processor time"
    )
    return int(share < SEEN or unlisted > 0)


if __name__ == "__main__":
    sys.exit(main())
