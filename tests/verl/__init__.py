import subprocess
import sys

import psutil

from rpg.backends.verl.jobs import MARK

NOT_ON_VERL = {"entropy_correct", "entropy_wrong", "ratio_p01", "ratio_p50", "ratio_p99", "kl_gradient_share"}
"""Metrics that only the embedded trainer measures."""


def marked(folder, read=psutil.Process.name):
    """`read` of every living process that carries the run's mark."""
    values = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder.path) and process.status() != psutil.STATUS_ZOMBIE:
                values.append(read(process))
        except psutil.Error:
            continue
    return values


def start_launcher(folder, **options):
    """The launcher as a process of its own, with the stand-in for verl's driver."""
    code = (
        "import sys; from rpg.backends.verl import jobs; jobs.MAIN = 'stand_in'\n"
        "from rpg.backends.verl.__main__ import main; sys.exit(main([sys.argv[1]]))"
    )
    return subprocess.Popen([sys.executable, "-c", code, folder.path], **options)
