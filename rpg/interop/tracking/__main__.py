"""python -m rpg.interop.tracking SWEEP_DIR: send the numbers of a sweep's runs to their trackers as
they appear.

It ends when its standard input is closed, after a last attempt to send the rest. A failing tracker
only causes a warning.
"""

import argparse
import sys
from pathlib import Path

from rpg.interop.tracking.follower import Follower
from rpg.store.layout import Layout
from rpg.system.processes import die_with_parent, stdin_closed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rpg.interop.tracking", description=__doc__)
    parser.add_argument(
        "sweep", type=Path, help="the folder of the sweep, which holds a folder per run"
    )
    sweep = parser.parse_args(arguments).sweep.resolve()
    die_with_parent()
    follower = Follower(Layout(sweep.parents[1]), sweep.name, lambda line: print(line, flush=True))
    follower.until(stdin_closed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
