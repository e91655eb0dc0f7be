"""The commands that messages tell people to run next: complete, and quoted for the shell that they
are pasted into."""

import shlex
import shutil
import sys
from pathlib import Path

from rpg.store.layout import Layout


def this_again() -> str:
    """The command that this process was started with."""
    return f"{_program()} {shlex.join(sys.argv[1:])}"


def command(*words: str, layout: Layout) -> str:
    """`rpg` with these words, for this data folder."""
    home = [] if layout.home == Layout.at().home else ["--home", str(layout.home)]
    return f"{_program()} {shlex.join([*words, *home])}"


def _program() -> str:
    """`rpg` where the shell finds this installation under that name, else its path, from any
    folder, else the module."""
    name = __name__.partition(".")[0]
    script = Path(sys.argv[0]).absolute()
    installed = shutil.which(name)
    if script.name != name:
        return shlex.join([sys.executable, "-m", name])
    return (
        name
        if installed and script.exists() and script.samefile(installed)
        else shlex.quote(str(script))
    )
