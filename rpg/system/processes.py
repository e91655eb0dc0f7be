"""Processes of this machine: their identity, and children that end when their parent does, however
it ends."""

import contextlib
import ctypes
import gc
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

_PR_SET_PDEATHSIG = 1
_OWNER = "RPG_OWNED_BY"  # not RPG_OWNER, by which older versions end what they cannot read
BUSY = 75
"""Exit code of a process when another one is already doing the same work."""
LOST = 71
"""Exit code of a training that was ended by what runs it, not by a fault of its own: it is worth
starting again."""
KILL_AFTER = "RPG_KILL_AFTER"
"""Environment variable: a training kills itself once it has done this step. Only drills set it."""
PARENT = "RPG_PARENT"
"""Environment variable with the id of the process that started this one, until it calls
`die_with_parent`."""


def python_module(module: str, *arguments: object) -> list[str]:
    """The command `python -m module arguments`, without the current folder on its path.

    `-m` alone looks there first, and would take a user's own folder `flows` for ours; `-P` leaves
    it out.
    """
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def thread_environment(threads: int) -> dict[str, str]:
    """For the environment of a Python child that computes with this many threads, and whose output
    is a log."""
    pools = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)
    )
    return {**pools, "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


NO_PROXY = ("NO_PROXY", "no_proxy")
"""Environment variables with the hosts that are asked directly; libraries read either."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_USERS = "NO_PROXY_OF_THE_USER"
"""Environment variable: what NO_PROXY was before `ask_directly`."""


@contextlib.contextmanager
def ask_directly(url: str) -> Iterator[None]:
    """Within, this process uses no proxy at all, if the API at `url` is on this machine.

    It is not enough to name loopback in NO_PROXY: a client for a proxy that is never used (SOCKS,
    say) may still fail for a package that is not installed. Children are started with
    `child_environment`, in which the user's proxies are left, but for loopback.
    """
    if urlsplit(url).hostname not in LOOPBACK:
        yield
        return
    before = {name: os.environ.get(name) for name in (*NO_PROXY, _USERS)}
    os.environ[_USERS] = _users_no_proxy()
    os.environ.update(dict.fromkeys(NO_PROXY, "*"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def child_environment() -> dict[str, str]:
    """The environment of this process for a child, which asks servers of this machine directly."""
    hosts = [host for host in _users_no_proxy().split(",") if host]
    no_proxy = ",".join(dict.fromkeys([*hosts, *LOOPBACK]))
    environment = {**os.environ, **dict.fromkeys(NO_PROXY, no_proxy)}
    environment.pop(_USERS, None)
    return environment


def _users_no_proxy() -> str:
    names = (_USERS, *reversed(NO_PROXY))
    return next((os.environ[name] for name in names if name in os.environ), "")


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import large packages without garbage collection: now, and later of what they brought.
    Imports create hundreds of thousands of objects that stay; scanning them, the last times at
    exit, was a third of a process that does little else."""
    gc.disable()
    try:
        yield
    finally:
        if (
            "duckdb" not in sys.modules
        ):  # whose binding reports what cannot be collected at exit as leaks
            gc.freeze()
        gc.enable()


def collect_seldom() -> None:
    """Collect garbage a hundred times less often, in a process that imports large packages and goes
    on."""
    gc.set_threshold(100_000, 50, 10)


def birth(pid: int) -> str | None:
    """When a process began, in clock ticks since the machine was booted; None when it is dead (or
    without /proc).

    Together with the process id this identifies a process of this place for good: ids are reused,
    and the wall clock may jump. It says nothing about other places (`is_here`).
    """
    # /proc may be of another namespace, where our id is not ours
    name = "self" if pid == os.getpid() else pid
    try:
        fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else f"{_boot()}/{fields[19]}"
    except OSError:
        return None


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""


def here() -> dict[str, str]:
    """Where this process runs, to be written beside every process id: {"host", "boot",
    "pid_namespace"}.

    A process id is valid only within its PID namespace (each container has one) during one boot of
    one machine. A container may share the host name of its machine, and two machines may have the
    same name.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return {"host": socket.gethostname(), "boot": _boot(), "pid_namespace": namespace}


def is_here(note: Mapping[str, object]) -> bool:
    """Whether the process ids in this note can be looked up from here; notes of older versions have
    the host alone."""
    place = here()
    return (
        note.get("host") == place["host"]
        and _proc_is_ours()
        and all(note.get(part, value) == value for part, value in place.items())
    )


def _proc_is_ours() -> bool:
    """False in a PID namespace that still sees its parent's /proc: the ids there are not those of
    this namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return not Path("/proc/1").exists()  # a system without /proc has no PID namespaces either


def die_with_parent(how: int = signal.SIGKILL) -> None:
    """Make this process end when the one that started it dies, even by `kill -9`. A child calls it
    first.

    Linux delivers a signal (prctl PR_SET_PDEATHSIG); elsewhere a thread watches the parent's
    process id. The signal comes when the *thread* that started the child ends, so that thread must
    outlive the child. Only `parent_mark` reveals a parent that died before the call: by then the
    child belongs to another process.
    """
    parent = int(os.environ.pop(PARENT, 0)) or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(143)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(143)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


def parent_mark() -> dict[str, str]:
    """Variables for a child that calls `die_with_parent`."""
    return {PARENT: str(os.getpid())}


_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4


def give_memory_back() -> None:
    """Return freed allocations of 1 MiB and more to the system at once, where the C library is
    glibc. By default glibc keeps pieces of up to 32 MiB: fragments may take up as much memory again
    as a training needs."""
    _mallopt({_M_MMAP_MAX: 2**16, _M_MMAP_THRESHOLD: 2**20, _M_TRIM_THRESHOLD: 2**20})


def keep_memory() -> None:
    """Keep freed memory for the next allocation, where the C library is glibc.

    By default glibc returns pieces of more than 32 MiB, and a training step asks for the same
    gigabytes again: the system would have to find and clear every page anew.
    """
    _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1})


def _mallopt(settings: Mapping[int, int]) -> None:
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in settings.items():
            mallopt(name, value)


def stdin_closed() -> bool:
    """Whether the other end of standard input was closed; anything it sends is discarded."""
    while select.select([0], [], [], 0)[0]:
        if not os.read(0, 4096):
            return True
    return False


def owner_mark() -> dict[str, str]:
    """The same, and a mark for all its descendants, which may live only as long as this process."""
    return {_OWNER: _own_mark(), **parent_mark()}


def _own_mark() -> str:
    return f"{os.getpid()} {birth(os.getpid())} {here()['pid_namespace']}"


def end_orphans() -> list[int]:
    """Kill this user's processes whose marked owner is gone; returns their ids.

    These are grandchildren that outlive a `kill -9` because they do not call `die_with_parent`,
    such as Ray's. A process without the mark is never touched, nor one whose owner lived in another
    PID namespace: whether that owner is gone cannot be seen from here, and it ends with its
    container.
    """
    namespace = here()["pid_namespace"]
    killed = []
    for pid, mark in _marked():
        owner, born, owner_namespace = [*mark.split(" "), "", ""][:3]
        if (
            owner.isdigit()
            and owner_namespace == namespace
            and birth(int(owner)) != born
            and _kill(pid)
        ):
            killed.append(pid)
    return killed


def end_descendants() -> list[int]:
    """Kill every process that carries this one's mark, also those that left their process group;
    returns their ids."""
    return [pid for pid in marked(_OWNER, _own_mark()) if _kill(pid)]


def marked(variable: str, value: str) -> list[int]:
    """The other processes of this user that were started with this environment variable, whoever
    their parent is now."""
    return [pid for pid, mark in _marked(variable) if mark == value]


def _marked(variable: str = _OWNER) -> Iterator[tuple[int, str]]:
    """(process, value) for each other process of this user that has this environment variable."""
    if not _proc_is_ours():
        return
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            continue
        marks = [text for text in variables if text.startswith(variable.encode() + b"=")]
        pid = int(path.parent.name)
        if marks and pid != os.getpid():
            yield pid, marks[-1].decode(errors="replace").partition("=")[2]


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


# python -m rpg.system.processes MODULE ARGS: run a module so that it ends when its parent does
if __name__ == "__main__":
    die_with_parent()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
