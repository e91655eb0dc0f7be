"""`python -m rpg` is the command `rpg`."""

import os
import sys
from pathlib import Path

from rpg.cli import main

if __name__ == "__main__":
    root = str(Path(__file__).resolve().parents[1])
    if (
        not sys.flags.safe_path and sys.path[0] == root
    ):  # in a checkout, which need not be installed
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [root, os.environ.get("PYTHONPATH")])
        )
    main()
