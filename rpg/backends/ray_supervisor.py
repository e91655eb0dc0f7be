"""`python -m rpg.backends.ray_supervisor COMMAND...`: run a command, which gets SIGTERM when this
process is killed.

It stands between a Ray worker and a training. Ray kills a worker and its children outright, which
would leave the training no time to release its lease. This process dies in its place, and the
kernel then signals the training (rpg.backends.training_process, --on-node). It ends as the command
does, by the same signal if there was one.
"""

import os
import signal
import subprocess
import sys

from rpg.system.processes import die_with_parent, parent_mark


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
