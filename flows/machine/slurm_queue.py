"""Trainings as jobs of a Slurm cluster, through its own commands: sbatch, squeue, scontrol,
scancel.

<sweep>/.slurm/<token>.runs       the runs of one array, a folder per line; written before the array
is submitted
               <job>_<task>.txt   what Slurm says about a job; what the training says is in the
               run's log.txt

A job's name ends with the token of its array. So a conductor that was killed leaves nothing that
has to be remembered: its jobs go on, and the next conductor finds them by their names.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from flows.machine.programs import last_line
from flows.machine.ray_cluster import NOT_SENT, Remote, await_release
from rpg.config.backend import Node, OnSlurm
from rpg.errors import UserError
from rpg.planning.manifests import RAY_ON_NODES
from rpg.store import RunFolder, StoreError
from rpg.store.atomic_files import atomic_write_text
from rpg.store.run_writer import clear_waiting, write_waiting
from rpg.system.processes import BUSY, child_environment, thread_environment
from rpg.system.processes import LOST as LOST_CODE

JOB_SCRIPT = Path(__file__).with_name("slurm_job.sh")
LOGS = ".slurm"
"""In the sweep's folder."""
GATHER_SECONDS = 1.0
"""Runs that are asked for within this time become one array."""
POLL_SECONDS = 5.0
"""How often Slurm is asked what goes on. Its controller serves everybody."""
COMMAND_SECONDS = 120.0
LOST = {
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not start",
    "PREEMPTED": "it was preempted",
    "TIMEOUT": "it reached its time limit (backend.place.time)",
    "DEADLINE": "it reached its deadline",
}
"""States in which a job ends through no fault of the run."""
REFUSED = {
    "CANCELLED": "was cancelled",
    "OUT_OF_MEMORY": "used more memory than it had asked for: raise backend.place.memory_gib",
}
HELD = re.compile("(?i)requeued.held|JobHoldMaxRequeue|Dependency.*Never")
"""Reasons why a job that waits will never start by itself."""
SLURM_BUSY = re.compile(
    "(?i)contact slurm controller|timed out|temporarily|try again|connection refused"
)


class Job(NamedTuple):
    """How a run trains; runs with the same one may share an array."""

    module: str
    threads: int
    node: Node
    place: OnSlurm


def require_slurm() -> None:
    """Raises: UserError: Slurm's commands are not on this machine."""
    missing = [
        name for name in ("sbatch", "squeue", "scontrol", "scancel") if not shutil.which(name)
    ]
    if missing:
        raise UserError(
            f"backend.place.type: slurm, but {', '.join(missing)} cannot be found on this "
            "machine; run this where jobs are "
            "submitted (a login node), or choose: here, ray"
        )


class SlurmQueue:
    """The jobs of one sweep. Thread-safe; a thread of its own submits them and asks what has become
    of them."""

    def __init__(self, sweep: Path) -> None:
        self._folder = sweep / LOGS
        where = hashlib.sha256(str(sweep).encode()).hexdigest()[:8]
        self._prefix = f"rpg-{sweep.name}-{where}-"
        self._lock = threading.Lock()
        self._asked: list[tuple[Remote, Job]] = []
        self._jobs: dict[str, Remote] = {}
        self._said: dict[str, str] = {}
        self._numbers = count(1)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, folder: RunFolder, job: Job) -> Remote:
        """Ask for a training. A job of this run that Slurm still has, of an earlier conductor, is
        followed instead."""
        remote = Remote(folder)
        with self._lock:
            self._asked.append((remote, job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="slurm", daemon=True)
                self._thread.start()
        return remote

    def has(self, folder: RunFolder) -> bool:
        """Whether Slurm has a job of this run."""
        return str(folder.path) in self._earlier()

    def close(self) -> None:
        """Cancel every job of the sweep, also those of an earlier conductor; when this returns, the
        trainings have given their leases back, as far as can be seen.
        """
        self._closed.set()
        with self._lock:  # a submission under way comes to its end first
            folders = [remote.folder for remote in self._jobs.values()]
            numbers = {*self._jobs, *self._earlier().values()}
            for wait in (0, 2, 10):
                time.sleep(wait)
                if not numbers or _run("scancel", *sorted(numbers))[0] == 0:
                    break
            else:
                queue = self._queue()
                left = sorted(numbers if queue is None else numbers & queue.keys())
                if left:
                    print("Slurm did not cancel jobs, which go on: scancel", *left, file=sys.stderr)
            self._give_up("the sweep was stopped")
        await_release(folders)

    def _serve(self) -> None:
        polled = 0.0
        while not self._closed.wait(GATHER_SECONDS):
            with self._lock:
                if self._closed.is_set():
                    return
                try:
                    if self._asked:
                        self._submit()
                    if self._jobs and time.monotonic() - polled > POLL_SECONDS:
                        polled = time.monotonic()
                        self._poll()
                except Exception as error:  # noqa: BLE001 - whatever it is: nobody may wait for this thread forever
                    self._give_up(f"backend.place: {type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        """Whoever waits for a job is told that it is lost."""
        for remote in [*self._jobs.values(), *(remote for remote, _ in self._asked)]:
            remote.answered({"lost": why})
        self._asked.clear()
        self._jobs.clear()

    def _submit(self) -> None:
        earlier = self._earlier()
        arrays: dict[Job, list[Remote]] = {}
        for remote, job in self._asked:
            number = earlier.get(str(remote.folder.path))
            if number:
                self._jobs[number] = remote
            else:
                arrays.setdefault(job, []).append(remote)
        self._asked.clear()
        for job, remotes in arrays.items():
            self._submit_array(job, remotes)

    def _submit_array(self, job: Job, remotes: list[Remote]) -> None:
        token = f"{int(time.time())}-{os.getpid()}-{next(self._numbers)}"
        runs = self._folder / f"{token}.runs"
        self._folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(runs, "".join(f"{remote.folder.path}\n" for remote in remotes))
        tasks = f"0-{len(remotes) - 1}" + (f"%{job.place.at_once}" if job.place.at_once else "")
        script = Path(job.place.script).resolve() if job.place.script else JOB_SCRIPT
        options = job.place.sbatch_options(job.node.count, job.node.cpus, job.node.gpus)
        code, out = _run(
            "sbatch",
            "--parsable",
            f"--job-name={self._prefix}{token}",
            f"--array={tasks}",
            f"--output={self._folder}/%A_%a.txt",
            f"--chdir={self._folder.parents[2]}",
            "--export=ALL",
            *options,
            str(script),
            str(runs),
            sys.executable,
            job.module,
            str(RAY_ON_NODES),
            environment=thread_environment(job.threads),
        )
        last = (out.strip().splitlines() or ["no answer"])[-1].strip()
        number = last.partition(";")[0]
        if code == 0 and number.isdigit():
            self._jobs |= {f"{number}_{task}": remote for task, remote in enumerate(remotes)}
            return
        runs.unlink(missing_ok=True)
        for remote in remotes:
            how = "lost" if SLURM_BUSY.search(out) else "refused"
            remote.answered({how: f"backend.place: sbatch: {last}"})

    def _earlier(self) -> dict[str, str]:
        """Folder of a run -> its job in Slurm's queue, whichever conductor submitted it."""
        jobs: dict[str, str] = {}
        for number, (_, _, _, name) in (self._queue() or {}).items():
            token = name.removeprefix(self._prefix)
            task = number.partition("_")[2]
            with suppress(OSError, ValueError, IndexError):
                if name != token:
                    runs = (self._folder / f"{token}.runs").read_text("utf-8").splitlines()
                    jobs[runs[int(task)]] = number
        return jobs

    def _queue(self) -> dict[str, list[str]] | None:
        """Job -> [state, reason, nodes, name] of what waits or runs; None when Slurm does not
        say."""
        code, out = _run("squeue", "-h", "-r", "-u", str(os.getuid()), "-o", "%i|%T|%r|%N|%j")
        if code:
            return None
        rows = (line.strip().split("|", 4) for line in out.splitlines())
        return {row[0]: row[1:] for row in rows if len(row) == 5}

    def _poll(self) -> None:
        queue = self._queue()
        if queue is None:
            return
        for number, remote in list(self._jobs.items()):
            state, reason, _, _ = queue.get(number) or ["", "", "", ""]
            if state == "PENDING" and HELD.search(reason):
                _run("scancel", number)
                self._answer(number, {"lost": f"Slurm holds its job {number} ({reason})"})
            elif state == "PENDING":
                self._say(number, f"waits in Slurm's queue as job {number} ({reason})")
            elif state:
                self._say(number, "")
            elif answer := outcome(number, remote.folder, self._folder / f"{number}.txt"):
                self._answer(number, answer)

    def _say(self, number: str, line: str) -> None:
        """What the run's folder says that it waits for; the training removes it when it begins."""
        if self._said.get(number) != line:
            self._said[number] = line
            folder = self._jobs[number].folder
            with suppress(StoreError):
                write_waiting(folder, line) if line else clear_waiting(folder)

    def _answer(self, number: str, answer: Mapping[str, object]) -> None:
        self._said.pop(number, None)
        self._jobs.pop(number).answered(dict(answer))


def outcome(number: str, folder: RunFolder, output: Path) -> dict[str, object] | None:
    """What has become of a job that neither waits nor runs, for Remote.answered; None if it has not
    ended after all."""
    state, code, signal, node = _ended(number)
    steps = folder.read_manifest()["steps"]
    if state == "COMPLETED" or (not state and folder.checkpoint(steps).exists()):
        return {"code": 0, "newest": steps, "node": node}
    why = LOST.get(state)
    if why:
        return {"lost": f"Slurm job {number}: {why}"}
    why = REFUSED.get(state)
    if state == "FAILED":
        if signal or code in (BUSY, LOST_CODE) or folder.read_failed() is not None:
            return {"code": -signal or code}
        last = last_line(output) or last_line(folder.log_path) or "its log is empty"
        why = f"ended with code {code} on {node}: {last}"
    if why:
        return {"refused": f"backend.place: Slurm job {number} {why}"}
    if state:
        return None
    return (
        {"code": 1} if folder.read_failed() else {"lost": f"Slurm no longer knows its job {number}"}
    )


def _ended(number: str) -> tuple[str, int, int, str]:
    """(state, exit code, signal, nodes) of a job, by the controller or the accounting; state "" if
    neither knows it."""
    fields = _by_controller(number) or _by_accounting(number)
    exit_code, _, signal = fields.get("ExitCode", "0:0").partition(":")
    state = fields.get("JobState", "").split(" ")[0].rstrip("+")
    return state, int(exit_code or 0), int(signal or 0), fields.get("NodeList", "?")


_FIELDS = ("JobState", "ExitCode", "NodeList")


def _by_controller(number: str) -> dict[str, str]:
    """What the controller knows of a job; empty some minutes after its end."""
    code, out = _run("scontrol", "show", "job", "-o", number)
    if code != 0:
        return {}
    return dict(re.findall(rf"({'|'.join(_FIELDS)})=(\S+)", out))


def _by_accounting(number: str) -> dict[str, str]:
    """What the accounting knows of a job; empty where there is none."""
    code, out = _run("sacct", "-X", "-n", "-P", "-j", number, "-o", "State,ExitCode,NodeList")
    parts = out.strip().partition("\n")[0].split("|")
    if code != 0 or len(parts) != len(_FIELDS):
        return {}
    return dict(zip(_FIELDS, parts, strict=True))


def _run(
    program: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """(exit code, output) of one of Slurm's commands; what it prints about an error is part of the
    output."""
    inherited = {
        name: value
        for name, value in child_environment().items()
        if name not in NOT_SENT
        and (name == "SLURM_CONF" or not name.startswith(("SLURM_", "SQUEUE_")))
    }
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
            env={**inherited, **(environment or {})},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, f"{program} timed out" if isinstance(error, subprocess.TimeoutExpired) else str(
            error
        )
    return done.returncode, done.stdout
