"""A fork server for programs: one process imports torch and the rest once, and every child is
forked from it.

The server is that of `multiprocessing`. Its own `Process` would execute the caller's main module
again in every child, and loses exit codes when several threads ask for them; what is forked here is
`main(arguments)` of a module, in a session of its own. A child ends with the server, and the server
with the thread that started it. Where there is no server (another system than Linux, or it was
killed) programs are started as `python -m`.
"""

import atexit
import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import IO

from rpg.system.processes import PARENT, child_environment, thread_environment

LOG = "RPG_FORK_SERVER_LOG"


@dataclass(frozen=True)
class Program:
    """A program: the module with its main(arguments), its name in `ps`, and what else the server
    imports for it."""

    main: str
    title: str
    preload: tuple[str, ...] = ()


class ForkedProcess:
    """A child of the server, with as much of Popen's interface as a sweep uses; any thread may
    ask."""

    def __init__(self, pid: int, status: int, stdin: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None
        self._status, self._lock = status, threading.Lock()
        weakref.finalize(self, os.close, status)

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and connection.wait([self._status], 0):
                try:
                    self.returncode = forkserver.read_signed(self._status)
                except EOFError:  # the server was killed, and its children with it
                    self.returncode = -signal.SIGKILL
            return self.returncode

    def wait(self) -> int:
        while (code := self.poll()) is None:
            connection.wait([self._status])
        return code


class ForkServer(forkserver.ForkServer):
    """Starts the server. `programs` are named by their modules, as in `python -m`; `marks` is added
    to the environment of all processes, and what the server itself has to say to the file `log`.
    """

    _forkserver_pid: int | None

    def __init__(
        self, log: Path, programs: Mapping[str, Program], marks: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._programs = programs
        modules = [
            name for program in programs.values() for name in (*program.preload, program.main)
        ]
        self.set_forkserver_preload([f"{__name__}.before", *modules, f"{__name__}.after"])
        # before the marks: it serves later sweeps of this process, too
        resource_tracker.ensure_running()
        # The server gets the environment of this process. PYTHONSAFEPATH is `-P`, for which see
        # rpg.system.processes.python_module.
        before = dict(os.environ)
        changes = {LOG: str(log), "PYTHONSAFEPATH": "1", **thread_environment(1), **marks}
        os.environ.update(child_environment() | changes)
        try:
            self.ensure_running()
        finally:
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)

    def ensure_running(self) -> None:
        """Once: the server ends with the thread that starts it, and the thread that finds it dead
        may be a short one."""
        if self._forkserver_pid is None:
            super().ensure_running()

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        log: int,
        *,
        pipe: bool = False,
        keep: Sequence[int] = (),
        environment: Mapping[str, str],
    ) -> ForkedProcess | None:
        """A new child, its output appended to the open file `log`; None when the server is gone, or
        not for this module.

        With `pipe` its standard input is a pipe, else empty. `keep` are open files that it holds as
        long as it lives.
        """
        if module not in self._programs:
            return None
        reader, writer = os.pipe() if pipe else (os.open(os.devnull, os.O_RDONLY), -1)
        try:
            status, orders = self.connect_to_new_process([reader, log, *keep])
            with open(orders, "wb") as file:
                pickle.dump({}, file)  # nothing of this process is to be imitated
                pickle.dump(_Child(self._programs[module], [*arguments], {**environment}), file)
            pid = forkserver.read_signed(status)
            with suppress(ProcessLookupError):  # it may be over already
                while os.getsid(pid) != pid:  # whoever ends the child ends its group
                    time.sleep(0.001)
        except (OSError, EOFError):
            if pipe:
                os.close(writer)
            return None
        finally:
            os.close(reader)
        return ForkedProcess(pid, status, os.fdopen(writer, "wb") if pipe else None)

    def close(self) -> None:
        """End the server; children that are left end with it."""
        if self._forkserver_pid:
            os.kill(self._forkserver_pid, signal.SIGKILL)
            os.waitpid(self._forkserver_pid, 0)
            self._forkserver_pid = 0


@dataclass(frozen=True)
class _Child:
    """Sent to the server, which calls `_bootstrap` in the forked process as it would that of a
    Process."""

    program: Program
    arguments: list[str]
    environment: dict[str, str]

    def _bootstrap(self, _parent_sentinel: int) -> int:
        os.setsid()
        stdin, log = (forkserver.get_inherited_fds() or [])[:2]
        for source, target in ((stdin, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        ctypes.CDLL(None).prctl(15, self.program.title.encode(), 0, 0, 0)  # PR_SET_NAME
        os.environ.update(self.environment, **{PARENT: str(os.getppid())})
        code: object = 1
        try:
            code = import_module(self.program.main).main(self.arguments)
        except SystemExit as end:
            code = end.code
        except BaseException:  # noqa: BLE001 (the last frame of the process: whatever it is goes to the log)
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        return code if isinstance(code, int) else int(bool(code))
