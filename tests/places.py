"""Other containers and other hosts on this machine: real namespaces, as root; elsewhere these tests
are skipped."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_PID = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
_HOST = 'hostname "$1" && mount --bind "$2" /proc/sys/kernel/random/boot_id && shift 2 && exec "$@"'


def _allowed():
    if shutil.which("unshare") is None:
        return "no unshare here"
    tried = subprocess.run([*_PID, "--uts", "--mount", "true"], capture_output=True, text=True)
    return tried.stderr.strip()


REFUSED = _allowed()
namespaces = pytest.mark.skipif(bool(REFUSED), reason=f"namespaces are not allowed here: {REFUSED}")


def in_container(*command):
    """The command with process ids of its own."""
    return [*_PID, *command]


def on_host(name, boot, *command):
    """The command on what looks like another machine: host name, boot, process ids; the disk is
    shared.

    `boot` is a file with that machine's boot id.
    """
    boot.write_text(f"{name}-booted\n")
    return [*_PID, "--uts", "--mount", "bash", "-c", _HOST, "bash", name, str(boot), *command]


def python(text, *arguments):
    return [sys.executable, "-c", text, *map(str, arguments)]


def without_flock(folder):
    """A PYTHONPATH under which file locks are granted to everyone, as between hosts whose mounts
    keep them local."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("import fcntl\nfcntl.flock = lambda *_: None\n")
    return f"{folder}:{ROOT}"
