"""Does a night see a planted fault, whether or not the environment has changed, and is it silent
when nothing is wrong?

    python -m benchmarks.nights [--unchanged 30] [--load 2] [--only NAME ...]
        [--operators 0] [--seed 1] [--faults FILE] [--results FILE]

Plants the standing mutants one after another in a checkout (a sign, a bound, a test, a view, a
stale reference ...), commits each, runs a night and says what it said: beside a night of the same
environment, and beside one of another version of NumPy, where it runs the settled commit again.
Then twelve harmless changes, and as many nights of unchanged code, each under another code version,
while `--load` processes keep the cores busy. `--operators` plants that many faults of
benchmarks.mutants, too, of which many compute the same; another `--seed` draws others. `--faults`
plants those of another list (name, file, original, replacement) in place of the standing ones.
`--results` keeps what was found: the same command goes on after an interruption. Exit code 1 when
fewer than 50 of 53 are seen (48 in another environment), or when a night is red without a fault.

Night, numbers, digests, comparison, git and source are real. The set is configs/nightly's losses,
optimizers and lives, and its trainings run one after the other in the night's own process, a fork
of this one, without Prefect: a night takes seconds. Faults in rpg.backends.verl, in warm starts and
in data that is cached are out of its reach.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harmless import HARMLESS, Change
from benchmarks.kept_results import KeptResults
from benchmarks.mutants.__main__ import ROOMS, TOO_LATE, choose, enter, forked, quotas
from flows.other_code import NoNight, Record
from rpg.store import RunFolder
from rpg.store.run_writer import write_failed
from rpg.system.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = Path(__file__).with_name("standing_mutants.yaml")
SWEEPS = ("losses", "optimizers", "lives")
"""The sweeps of the shipped set that are run: a few steps of every loss, and of runs that are
killed, superseded and imported; a few processor seconds."""
BUSY = "import os; us = os.getppid()\nwhile os.getppid() == us: pass"
"""Until whoever started it is gone."""
TIMEOUT = 1800.0
WANTED, WANTED_ELSEWHERE = 50 / 53, 48 / 53
LOADED = (
    "flows.nightly",
    "flows.sweep.conductor",
    "flows.sweep.evaluation",
    "prefect.settings",
    "prefect.client.orchestration",
    "rpg.auditing",
    "rpg.backends.local.training_loop",
    "rpg.evaluation.evaluator",
)
"""For the packages that they import, which forks need not import again."""


def faults(file: Path = MUTANTS) -> list[dict[str, str]]:
    """The standing mutants, or those of another file: name, file, original and replacement."""
    return list(yaml.safe_load(file.read_text("utf-8")))


def plant(tree: Path, fault: Mapping[str, str]) -> None:
    """Write a fault into the source in `tree`. Raises NoNight: its text is not there any more."""
    path = tree / fault["file"]
    text = path.read_text("utf-8") if path.exists() else ""
    if fault["original"] not in text:
        raise NoNight(f"{fault['file']} has no {fault['original']!r}; list another fault")
    path.write_text(text.replace(fault["original"], fault["replacement"], 1), "utf-8")


class Checkout:
    """A repository with a copy of the source, the sweep files of the set, and a data folder of
    nights."""

    def __init__(self, root: Path, sweeps: Sequence[str] = SWEEPS) -> None:
        self.tree, self.home = root / "source", root / "data"
        for part in ("rpg", "flows", "benchmarks", "configs"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, self.tree / part, symlinks=True, ignore=ignored)
        self.sets = self.tree / "configs" / "small"
        self.sets.mkdir()
        for name in sweeps:
            for file in (ROOT / "configs" / "nightly").glob(f"{name}*"):
                shutil.copy(file, self.sets)
        (self.tree / ".gitignore").write_text("__pycache__\nmutants.log\n")
        self.git("init", "-q")
        self.commit("as it was")

    def git(self, *words: str) -> None:
        who = ["-c", "user.name=nights", "-c", "user.email=nights@localhost"]
        subprocess.run(
            ["git", "-C", str(self.tree), *who, *words], check=True, stdout=subprocess.DEVNULL
        )

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    @contextlib.contextmanager
    def changed(self, message: str) -> Iterator[None]:
        """Commit what stands in the tree for a night or two; their records and the commit are gone
        afterwards."""
        kept = set(self.nights())
        with (self.tree / "flows" / "__init__.py").open("a") as file:
            file.write(f"# {message}\n")
        self.commit(message)
        try:
            yield
        finally:
            self.git("reset", "-q", "--hard", "HEAD~1")
            for record in set(self.nights()) - kept:
                record.unlink()

    def nights(self) -> list[Path]:
        return sorted((self.home / "nightly").rglob("*.json"))

    def night(self, again: bool = False) -> list[Record]:
        return night_in(self.tree, self.home, self.sets, again)


def quiet(line: str) -> None:
    """Say nothing."""


def train_here(folder: RunFolder, home: Path) -> None:
    """A training in this process; in a drill, in a fork that ends as `kill -9` ends it."""
    from rpg.backends.local.training_loop import train
    from rpg.backends.training_process import killing
    from rpg.errors import UserError
    from rpg.system.processes import KILL_AFTER

    step = os.environ.get(KILL_AFTER)
    if step is not None:
        until = killing(quiet, folder, int(step))

        def body() -> int:
            train(folder, home, until)
            return 0

        forked(body, TIMEOUT)
        return
    try:
        train(folder, home, quiet)
    except UserError as error:
        write_failed(folder, str(error))


def one_night(home: Path, sets: Path) -> Record:
    """A night in this process; nights of other commits, in forks of it, are kept beside its data
    folder."""
    from flows.nightly import run_night
    from flows.sweep.conductor import register, unfinished
    from flows.sweep.evaluation import mark_done
    from rpg.config.sweep_spec import Sweep
    from rpg.evaluation.evaluator import Evaluator
    from rpg.store import Layout
    from rpg.study.spec import Study

    layout = Layout.at(home)

    def run(sweep: Sweep | Study) -> None:
        assert isinstance(sweep, Sweep)
        folders = register(sweep, layout)
        if due := unfinished(folders):
            for folder in due:
                train_here(folder, home)
            Evaluator(layout, sweep.spec.name, say=quiet).pass_over()
            mark_done(folders)

    def night_of(tree: Path, labels: Sequence[str]) -> Record:
        head = subprocess.run(
            ["git", "-C", str(tree), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
        kept = home.parent / "reruns" / head.stdout.strip()
        if not kept.exists():
            (kept / "data").mkdir(parents=True)
            (kept / "data" / "cache").symlink_to(layout.cache)
            night_in(tree, kept / "data", tree / "configs" / "small")
        record = next((kept / "data" / "nightly").rglob("*.json"), None)
        if record is None:
            raise NoNight("it crashed")
        night: Record = json.loads(record.read_text())
        return night

    night = run_night(layout, sets, {}, run, night_of=night_of)
    assert night is not None
    numbers = [str(finding) for finding in night.findings if finding.red]
    return {"red": night.red, "said": night.said, "numbers": numbers, "failed": night.failed}


def night_in(source: Path, home: Path, sets: Path, again: bool = False) -> list[Record]:
    """A night with the code in `source`, in a fork of this process; `again`: and once more, as if
    earlier nights had been run with another NumPy.
    """
    answer = Path(tempfile.mkstemp(dir=home.parent)[1])

    def body() -> int:
        die_with_parent()
        enter(source)
        try:
            from benchmarks.nights import nights_here

            answer.write_text(json.dumps(nights_here(home, sets, again)))
        except BaseException:
            traceback.print_exc()
            raise
        return 0

    code = forked(body, TIMEOUT)
    text = answer.read_text()
    answer.unlink()
    if text:
        nights: list[Record] = json.loads(text)
        return nights
    log = (source / "mutants.log").read_text().splitlines()
    said = f"the night crashed: {[*log, '?'][-1]}"
    if code == TOO_LATE:
        said = f"the night took more than {TIMEOUT:.0f} s"
    return (1 + again) * [{"red": True, "said": said, "numbers": [], "failed": {}}]


def nights_here(home: Path, sets: Path, again: bool) -> list[Record]:
    """What `night_in` does, in this process."""
    earlier = {path: path.read_text() for path in (home / "nightly").rglob("*.json")}
    nights = [one_night(home, sets)]
    if again:
        tonight = {
            path: path.read_text()
            for path in (home / "nightly").rglob("*.json")
            if path not in earlier
        }
        for path, text in earlier.items():
            record = json.loads(text)
            record["environment"]["numpy"] = "0.0.1"
            path.write_text(json.dumps(record))
        for path in tonight:
            path.unlink()
        nights.append(one_night(home, sets))
        for path, text in (*earlier.items(), *tonight.items()):
            path.write_text(text)
    return nights


def short(night: Record) -> str:
    """What a night found, without what it was compared with."""
    said = str(night["said"])
    found = (
        said.partition(" since ")[2].partition(": ")[2].partition("; compared")[0]
        if night["red"]
        else said
    )
    return (found or said or "; ".join(night["failed"].values())).replace("|", "\\|")


def try_fault(checkout: Checkout, fault: Mapping[str, str]) -> dict[str, Any]:
    """Plant a fault. Returns a row about it (`row`), and whether it was seen here, elsewhere, and
    by the bands (`seen`)."""
    name = fault["name"]
    plant(checkout.tree, fault)
    with checkout.changed(name):
        night, other = checkout.night(again=True)
    marks = ["yes" if one["red"] else "**no**" for one in (night, other)]
    guilty = (
        "yes" if "nights: " in str(night["said"]) and "is the cause" in str(night["said"]) else ""
    )
    numbers = len(night["numbers"])
    return {
        "row": f"| {name} | {' | '.join(marks)} | {short(night)} | {guilty} | {numbers} |",
        "seen": [bool(night["red"]), bool(other["red"]), numbers > 0],
    }


def try_harmless(checkout: Checkout, kept: KeptResults) -> int:
    """Red nights among harmless changes."""
    alarms = 0
    for name, change in HARMLESS.items():
        night = kept.of(f"harmless: {name}", partial(night_after, checkout, name, change))
        alarms += bool(night["red"])
        print(
            f"harmless, {name}: {'RED' if night['red'] else 'green'}, {night['said']} "
            f"{night['numbers']}",
            flush=True,
        )
    return alarms


def night_after(checkout: Checkout, name: str, change: Change) -> Record:
    change(checkout.tree)
    with checkout.changed(name):
        return checkout.night()[0]


def try_unchanged(checkout: Checkout, count: int, load: int, kept: KeptResults) -> int:
    """Red nights among those of unchanged code, beside busy processes."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(load)]
    alarms = 0
    try:
        for number in range(count):
            case = f"unchanged, load {load}: {number}"
            night = kept.of(case, partial(unchanged_night, checkout, number))
            if night["red"]:
                alarms += 1
                print(f"false alarm: {night['said']} {night['numbers']}", flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(
        f"false alarms: {alarms} of {count} nights of unchanged code, {load} busy processes "
        "beside them"
    )
    return alarms


def unchanged_night(checkout: Checkout, number: int) -> Record:
    with (checkout.tree / "flows" / "__init__.py").open("a") as file:
        file.write(f"# unchanged {number}\n")
    return checkout.night()[0]


def by_operators(count: int, seed: int) -> list[dict[str, str]]:
    """Faults of benchmarks.mutants, as whole files; the seed says which."""
    chosen: list[dict[str, str]] = []
    for room, share in quotas(count, list(ROOMS)).items() if count else ():
        for mutant in choose(room, share, seed):
            source = (ROOT / mutant.file).read_text()
            name = f"{mutant.file}:{mutant.line} {mutant.original} -> {mutant.replacement}"
            chosen.append(
                {
                    "name": name,
                    "file": mutant.file,
                    "original": source,
                    "replacement": mutant.apply(source),
                }
            )
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nights", description=__doc__)
    parser.add_argument("--unchanged", type=int, default=30, help="nights of unchanged code")
    parser.add_argument(
        "--load", type=int, default=2, help="processes that keep the cores busy meanwhile"
    )
    parser.add_argument(
        "--only", nargs="*", help="faults whose name begins so; harmless: the harmless changes"
    )
    parser.add_argument(
        "--operators", type=int, default=0, help="as many faults of benchmarks.mutants, too"
    )
    parser.add_argument("--seed", type=int, default=1, help="which faults of benchmarks.mutants")
    parser.add_argument(
        "--faults",
        type=Path,
        metavar="FILE",
        default=MUTANTS,
        help="another list than that of the standing mutants",
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep results there, and go on after them"
    )
    options = parser.parse_args()
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "PREFECT_API_URL": "http://127.0.0.1:1/api",
    }  # nothing asks it
    for name in LOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and its night stops
    kept = KeptResults(options.results)
    standing = [
        fault
        for fault in faults(options.faults)
        if options.only is None or fault["name"].startswith(tuple(options.only))
    ]
    # The night of another commit may end a moment after the one that has started it.
    with tempfile.TemporaryDirectory(prefix="rpg-nights-", ignore_cleanup_errors=True) as temporary:
        checkout = Checkout(Path(temporary))
        began = time.monotonic()
        [first] = checkout.night()
        assert not first["red"], first
        print(f"first night: {first['said']} ({time.monotonic() - began:.0f} s)", flush=True)
        print(
            "\n| fault | seen | in another environment | what the night said | commit named "
            "| numbers out of their bands |"
        )
        print("|---|---|---|---|---|--:|", flush=True)
        rows: dict[str, list[list[bool]]] = {}
        for kind, listed in (
            ("standing mutants", standing),
            ("faults by operators", by_operators(options.operators, options.seed)),
        ):
            for fault in listed:
                result = kept.of(f"fault: {fault['name']}", partial(try_fault, checkout, fault))
                print(result["row"], flush=True)
                rows.setdefault(kind, []).append(result["seen"])
        for kind, found in rows.items():
            here, other, bands = (sum(row[place] for row in found) for place in range(3))
            print(
                f"\n{kind}: seen {here} of {len(found)}; in another environment {other}; by "
                f"the bands alone {bands}",
                flush=True,
            )
        alarms = 0
        if options.only is None or "harmless" in options.only:
            alarms += try_harmless(checkout, kept)
        alarms += try_unchanged(checkout, options.unchanged, options.load, kept)
    found = rows.get("standing mutants", [])
    enough = sum(r[0] for r in found) >= WANTED * len(found) and sum(
        r[1] for r in found
    ) >= WANTED_ELSEWHERE * len(found)
    return 0 if enough and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
