"""`python -m flows.machine.run_with_parent MODULE ARGS`: run a module so that it ends when its parent does."""

import runpy
import sys

from rpg.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
