"""`python -m rpg.backends.ray_supervisor COMMAND...`: run a command that is asked to end, by SIGTERM, when this process is killed.

It stands between a worker of Ray and a training. Ray kills a worker and its children outright, which leaves a training
no time to give its lease back; this process dies in the training's place, and however it dies the kernel tells the
training (rpg.backends.training_process, --on-node). It ends as the command does, by the same signal if there was one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from rpg.processes import die_with_parent, parent_mark


def main(command: list[str]) -> int:
    die_with_parent()
    code = subprocess.Popen(command, env={**os.environ, **parent_mark()}).wait()
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
