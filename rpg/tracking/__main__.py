"""python -m rpg.tracking SWEEP_DIR: send the numbers of a sweep's runs to their trackers as they appear.

It ends when its standard input is closed, after a last attempt to send the rest; with --drain it sends once and ends.
A failing tracker only causes a warning.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rpg.processes import die_with_parent, stdin_closed
from rpg.store.layout import Layout
from rpg.tracking.follower import Follower


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rpg.tracking", description=__doc__)
    parser.add_argument("sweep", type=Path, help="the folder of the sweep, which holds a folder per run")
    parser.add_argument("--home", type=Path, help="the data folder (default: two levels above SWEEP_DIR)")
    parser.add_argument("--drain", action="store_true", help="send what exists, then end")
    options = parser.parse_args(arguments)
    die_with_parent()
    sweep = options.sweep.resolve()
    layout = Layout((options.home or sweep.parents[1]).absolute())
    follower = Follower(layout, sweep.name, lambda line: print(line, flush=True))
    follower.until((lambda: True) if options.drain else stdin_closed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
