"""pytest-xdist's workers, forked from one process that has imported what all of them need: these
imports are most of what a worker does before its first test.

execnet starts each worker as `python THIS-FILE ADDRESS -u -c CODE`, which hands its pipes and the
code to the process that forks, and waits for the fork's end. Elsewhere than on Linux workers start
as they always do.
"""

import atexit
import os
import signal
import socket
import struct
import subprocess
import sys
import types
from importlib import import_module

from rpg.system.processes import die_with_parent, quick_imports

IMPORTS = """
    rpg.backends.local.training_loop rpg.evaluation.evaluator
    altair duckdb hypothesis hydra optuna pandas
    playwright.sync_api scipy.stats streamlit.testing.v1 tensordict""".split()
"""What collecting all tests imports of other packages, nearly all of it through these modules."""


def pytest_xdist_setupnodes(specs: list[types.SimpleNamespace]) -> None:
    """Start the process that forks, and tell execnet to ask it for each worker."""
    if sys.platform != "linux":
        return
    address = f"rpg-tests-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{address}")
        listener.listen()
        server = [sys.executable, __file__, str(listener.fileno())]
        subprocess.Popen(server, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()])
    for spec in specs:
        spec.python = f"{sys.executable} {__file__} {address}"


def fork_workers(listener: socket.socket) -> None:
    """Fork a worker for each connection; a worker ends with this process if not before."""
    die_with_parent()
    with quick_imports():
        for name in IMPORTS:
            import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    while True:
        connection, _ = listener.accept()
        _, user, _ = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        if (
            user != os.getuid()
        ):  # any user of this machine can connect, and whoever does has code run
            connection.close()
            continue
        code, pipes, *_ = socket.recv_fds(connection, 2**16, 3)
        if os.fork() == 0:
            break
        for pipe in (connection.detach(), *pipes):
            os.close(pipe)
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listener.close()
    for target, pipe in enumerate(pipes):
        os.dup2(pipe, target)
        os.close(pipe)
    connection.detach()  # open until the worker ends
    sys.argv = ["-c"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(code, main.__dict__)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # nothing is looked through for leaks


def ask_for_one(address: str, code: str) -> None:
    """Hand over our pipes, and wait."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{address}")
        socket.send_fds(connection, [code.encode()], [0, 1, 2])
        os.close(0)
        os.close(1)
        connection.recv(1)


if __name__ == "__main__":
    if sys.argv[2:]:
        ask_for_one(sys.argv[1], sys.argv[-1])
    else:
        fork_workers(socket.socket(fileno=int(sys.argv[1])))
