"""Commands work whatever streams, locale, flags and variables they are started with."""

import os
import subprocess
import sys

import pytest

from tests.real_sweep import ROOT
from tests.waiting import HANG

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SOCKS = {"ALL_PROXY": "socks5h://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}


def run(folder, words, streams="", without=(), **environment):
    """`rpg WORDS` with other surroundings; (exit code, output, errors)."""
    inherited = {name: value for name, value in os.environ.items() if name not in without}
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m rpg "$@" {streams}', sys.executable, *words],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), "RPG_HOME": str(folder / "data"), **environment},
        capture_output=True,
        timeout=HANG,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode()


@pytest.mark.component
@pytest.mark.parametrize("words", [["list"], ["status"], ["show", "quickstart"]])
@pytest.mark.parametrize(
    "how",
    [
        ASCII,
        {"PYTHONOPTIMIZE": "2"},
        {"without": ["HOME", "XDG_CACHE_HOME"]},
        SOCKS,
        {**ASCII, **SOCKS, "PYTHONOPTIMIZE": "2", "without": ["HOME"]},
    ],
    ids=["ascii", "OO", "no home", "proxies", "all"],
)
def test_commands_work_in_odd_surroundings(tmp_path, words, how):
    code, out, errors = run(tmp_path, words, **how)

    assert "Traceback" not in errors and code == 0, errors
    assert out


@pytest.mark.component
@pytest.mark.parametrize("streams", [">&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_commands_end_quietly_with_closed_streams(tmp_path, streams):
    code, _, errors = run(tmp_path, ["list"], streams)

    assert "Traceback" not in errors and code == 0, errors


@pytest.mark.component
def test_signs_that_an_ascii_terminal_lacks_are_replaced(tmp_path):
    _, out, _ = run(tmp_path, ["list"], **ASCII)

    assert "?/old" in out, "π in a terminal that has it"


CHILD = "import sys; sys.exit([sys.stdin, sys.stdout, sys.stderr].count(None))"
PARENT = f"""
import subprocess, sys
from rpg.cli.start import prepare
prepare()
sys.exit(subprocess.call([sys.executable, "-c", {CHILD!r}]))
"""


@pytest.mark.component
@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_processes_that_a_command_starts_have_the_streams_that_were_closed(streams):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {streams}', sys.executable, PARENT],
        cwd=ROOT,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0
