"""The command `rpg`: words in, files and printed lines out.

In: command lines. Out: exit code 0 (done), 1 (some runs failed) or 2 (bad input), and messages
without tracebacks for a user's mistakes. Commands import what they need when they run, so that
`rpg --help` is immediate. Read first: app.py, then execution.py.
"""

import errno
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rpg.cli import missing_packages
from rpg.cli.start import prepare
from rpg.system.processes import collect_seldom

if TYPE_CHECKING:
    import typer

# Modules of this package that register their commands when they are imported.
_MODULES = """
    adopt algorithms bench compare data data_folder doctor evaluate execution export model publish
    render report serve show study
""".split()


def load() -> "typer.Typer":
    """The application with all its commands."""
    import yaml

    from rpg.cli.app import Command, Json, app
    from rpg.cli.recorded import with_json

    for module in _MODULES:
        import_module(f"rpg.cli.{module}")
    commands = app.registered_commands
    by_name = {entry.name or getattr(entry.callback, "__name__", ""): entry for entry in commands}
    listed = yaml.safe_load(Path(__file__).with_name("commands.yaml").read_text("utf-8"))
    app.registered_commands = []
    for title, commands in listed.items():
        for name, examples in commands.items():
            entry = by_name[name]
            entry.cls, entry.rich_help_panel = Command, title
            assert entry.callback is not None
            about = (entry.callback.__doc__ or "").partition("\n\n")[0]
            entry.short_help = " ".join(about.split())
            entry.callback = with_json(name, entry.callback, Json)
            heading = "Examples" if len(examples) > 1 else "Example"
            entry.epilog = f"{heading}: {' · '.join(examples)}"
            app.registered_commands.append(entry)
    return app


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 some runs failed, 2 bad input, 130
    interrupted."""
    prepare()
    collect_seldom()
    try:
        app = load()
    except ModuleNotFoundError as error:  # installed without extras: not even typer is there
        if sys.argv[1:] == ["--version"]:
            print(missing_packages.version())
            sys.exit(0)
        why = missing_packages.explain(error)
        if not why:
            raise
        print(f"error: {why}", file=sys.stderr)
        sys.exit(2)
    from rpg.cli.app import error_console

    try:
        code = app(standalone_mode=False)
    except (BrokenPipeError, SystemExit) as error:  # `rpg ... | head`: click and rich exit with 1
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        error_console.print("interrupted")
        code = 130
    except Exception as error:  # noqa: BLE001 - what is no mistake of the user is raised again
        code = _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int:
    """Turn a user's mistake into its message and an exit code; any other error is a bug and keeps
    its traceback."""
    import typer

    from rpg.cli.app import complain
    from rpg.errors import UserError

    if isinstance(error, typer.Abort):  # what click makes of Ctrl-C
        complain("interrupted")
        return 130
    if hasattr(error, "exit_code"):  # an exception of click, or of the copy of it in typer
        if hasattr(error, "show"):
            error.show()
        return int(error.exit_code)
    if isinstance(error, UserError):
        for line in str(error).splitlines():
            complain(f"error: {line}")
        return 2
    if isinstance(error, ModuleNotFoundError) and (why := missing_packages.explain(error)):
        complain(f"error: {why}")
        return 2
    if isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EACCES,
        errno.EROFS,
    ):
        where = f"{error.filename}: " if error.filename else ""
        complain(f"error: {where}{error.strerror}")
        return 1
    raise error
