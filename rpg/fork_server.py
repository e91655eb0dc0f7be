"""Preparation, trainings and evaluators forked from one process that has imported torch already.

Importing torch and transformers takes a process seconds, more than many a short run itself. The
fork server does it once, and every child begins where it is. Run as a module, this file is that process. It talks with who
began it (a sweep, or a worker on a node of a Ray cluster) over a socket: requests with the files a child inherits, and
who began and ended.

Each child is a session of its own and ends with the fork server, as the fork server ends with who began it. Where there is no
fork server (another system than Linux, or it was killed) children are started the ordinary way.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from rpg import provenance
from rpg.processes import PARENT, die_with_parent, python_module, quick_imports

FORKED = {
    "rpg.backends.local.prepare": "rpg-prepare",
    "rpg.backends.local": "rpg-training",
    "rpg.backends.verl": "rpg-training",
    "rpg.evaluation": "rpg-evaluation",
}
"""The modules whose processes are forked, and the names of these in `ps` and `top`."""
PRELOADED = {
    "rpg.backends.local": ("rpg.backends.local.training_loop", "pyarrow.parquet"),
    "rpg.evaluation": (
        "rpg.evaluation.evaluator",
        "rpg.evaluation.engines.local",
        "pyarrow.parquet",
        "pandas",
    ),
}
"""What the fork server imports besides a module itself, which does it late (pyarrow imports pandas when it writes a table)."""
_PR_SET_NAME = 15
_MOST = 65_536
"""Bytes of a message."""
_FILES = 64
"""Files that come with one."""


class Awaited:
    """What somebody else runs for a sweep and tells the end of, with as much of Popen's interface as a sweep uses."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._over = threading.Event()

    def ended(self, code: int) -> None:
        self.returncode = code
        self._over.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int:
        self._over.wait()
        assert self.returncode is not None
        return self.returncode


class ForkedProcess(Awaited):
    """A child of the fork server."""

    def __init__(self, pid: int, stdin: IO[bytes] | None) -> None:
        super().__init__()
        self.pid, self.stdin = pid, stdin


class ForkServer:
    """The other end: begins the process, asks it for children of these modules, learns of their ends.

    Args:
        log: the file to which the fork server itself writes, if it has anything to say.
        environment: for the fork server and all children; it holds a mark of the parent (rpg.processes).
        folder: where the processes begin; by default where this one is.
    """

    def __init__(
        self, log: Path, modules: Iterable[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        imported = [one for module in modules for one in (*PRELOADED.get(module, ()), module)]
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                python_module("rpg.fork_server", theirs.fileno(), *imported),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **environment, **single, "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self._lock = threading.Lock()
        self._begun = threading.Condition()
        self._started: list[int] = []
        self._children: dict[int, ForkedProcess] = {}
        self._early: dict[int, int] = {}
        self._gone = False
        threading.Thread(target=self._listen, name="fork server", daemon=True).start()

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        log: int,
        pipe: bool,
        keep: Sequence[int],
        environment: Mapping[str, str],
    ) -> ForkedProcess | None:
        """A new child, its output appended to the file `log`; None where the fork server is gone.

        With `pipe` its standard input is a pipe, else empty. `keep` are open files that it holds as long as it lives.
        """
        mine = theirs = -1
        if pipe:
            theirs, mine = os.pipe()
        else:
            theirs = os.open(os.devnull, os.O_RDONLY)
        request = {
            "module": module,
            "name": FORKED[module],
            "arguments": list(arguments),
            "environment": dict(environment),
        }
        try:
            with self._lock, self._begun:  # one at a time: the next process that begins is ours
                if self._gone:
                    raise OSError
                files = array.array("i", [log, theirs, *keep])
                self._socket.sendmsg(
                    [json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
                )
                self._begun.wait_for(lambda: self._started or self._gone)
                if not self._started:
                    raise OSError
                pid = self._started.pop()
                child = ForkedProcess(pid, os.fdopen(mine, "wb") if pipe else None)
                self._children[pid] = child
                if pid in self._early:
                    child.ended(self._early.pop(pid))
                return child
        except OSError:
            if pipe:
                os.close(mine)
            return None
        finally:
            os.close(theirs)

    def _listen(self) -> None:
        while True:
            try:
                message = self._socket.recv(_MOST)
            except OSError:
                message = b""
            with self._begun:
                if not message:  # whoever is left was killed with it
                    self._gone = True
                    for child in self._children.values():
                        if child.returncode is None:
                            child.ended(-signal.SIGKILL)
                    self._begun.notify_all()
                    return
                told = json.loads(message)
                if "began" in told:
                    self._started.append(told["began"])
                    self._begun.notify_all()
                elif (known := self._children.pop(told["ended"], None)) is not None:
                    known.ended(told["code"])
                else:
                    self._early[told["ended"]] = told["code"]

    def close(self) -> None:
        """End it; children that are left end with it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


def main() -> None:
    """`python -m rpg.fork_server FD MODULES`: fork children as they are asked for, until the other end hangs up."""
    die_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as asker:
        with quick_imports():
            for module in sys.argv[2:]:
                import_module(_entry(module))
        # What is imported now is what all children compute with, whatever becomes of the files meanwhile.
        provenance.record(provenance.loaded())
        gc.freeze()  # it stays: no child need look through it for garbage, nor copy its pages for that
        awake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        while True:
            ready, _, _ = select.select([asker, awake], [], [])
            if awake in ready:
                os.read(awake, _MOST)
                _reap(asker)
            if asker in ready:
                message, files, _, _ = socket.recv_fds(asker, _MOST, _FILES)
                if not message:
                    return
                if os.fork() == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(awake)
                    os.close(wake)
                    _be_born(asker, json.loads(message), files)
                for file in files:  # a lock is the child's alone
                    os.close(file)


def _entry(module: str) -> str:
    """Where `main` is: in a module itself, in a package's `__main__` if it has one."""
    main = f"{module}.__main__"
    return main if hasattr(import_module(module), "__path__") and find_spec(main) else module


def _reap(asker: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell(asker, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(asker: socket.socket, message: dict[str, Any]) -> None:
    try:
        asker.send(json.dumps(message).encode())
    except OSError:
        os._exit(0)  # there is nobody to tell


def _be_born(asker: socket.socket, request: dict[str, Any], files: Sequence[int]) -> None:
    """What is left of the forked process's life."""
    code: Any = 1
    try:
        server = os.getppid()
        os.setsid()
        os.dup2(files[1], 0)
        os.dup2(files[0], 1)
        os.dup2(files[0], 2)
        ctypes.CDLL(None).prctl(_PR_SET_NAME, request["name"].encode(), 0, 0, 0)
        os.environ.update(request["environment"], **{PARENT: str(server)})
        _tell(asker, {"began": os.getpid()})
        asker.close()
        code = import_module(_entry(request["module"])).main(request["arguments"])
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1 if code else 0)


if __name__ == "__main__":
    main()
