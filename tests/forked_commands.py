"""Processes of trainings, evaluators and preparation that are forked from the one the tests run
in."""

import os
import sys
import tempfile
import traceback
from importlib import import_module

from flows.sweep.conductor import register
from rpg.backends.local import __main__ as trainer
from rpg.backends.local import prepare
from rpg.backends.verl import __main__ as launcher
from rpg.config.sweep_spec import load_sweep
from rpg.evaluation import __main__ as evaluator
from rpg.store import Layout
from rpg.tasks.preparation import data_digest
from tests.waiting import until

IMPORTS = {"train": "rpg.backends.local.training_loop", "evaluate": "rpg.evaluation.evaluator"}
"""What these commands import once they have begun; here it is there for the next child, too."""
MAINS = {
    "train": trainer.main,
    "launch": launcher.main,
    "evaluate": evaluator.main,
    "prepare": prepare.main,
}


class Child:
    """A forked process that runs a command's main(), after `first()`: this saves seconds of
    imports."""

    def __init__(self, command, folder, *options, first=lambda: None):
        import_module(IMPORTS.get(command, __name__))
        path = folder.path if hasattr(folder, "path") else folder
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process is over)
        ours, self._theirs = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(ours)
            return
        os.close(self._theirs)
        os.dup2(ours, 0)
        os.dup2(self.log.fileno(), 1)
        os.dup2(self.log.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(n), "w", buffering=1) for n in (1, 2))
        code = 99
        try:
            first()
            code = MAINS[command]([str(path), *options])
        except BaseException:  # noqa: BLE001 (whatever it is goes to the log)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def close_stdin(self):
        os.close(self._theirs)
        self._theirs = None

    def alive(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self):
        """The exit code, negative for a signal."""
        until(lambda: not self.alive(), "its end")
        if self._theirs is not None:
            self.close_stdin()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def send(self, number):
        os.kill(self.pid, number)

    def output(self):
        self.log.seek(0)
        return self.log.read().decode()


def to_its_end(command, folder):
    child = Child(command, folder)
    child.close_stdin()
    assert child.wait() == 0, child.output()


def trained_here(file, home):
    """The runs of a sweep's file, trained and evaluated by nobody but these processes, in a data
    folder of their own."""
    folders = register(load_sweep(file, {}, data_digest), Layout.at(home))
    for folder in folders:
        to_its_end("train", folder)
    to_its_end("evaluate", folders[0].path.parent)
    return folders
