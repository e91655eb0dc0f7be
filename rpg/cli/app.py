"""The typer application, its consoles, and options that several commands share."""

import math
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table
from typer.core import TyperCommand

from rpg.cli.missing_packages import version
from rpg.cli.recorded import RecordingConsole
from rpg.errors import see, visible
from rpg.store import Layout

app = typer.Typer(
    name="rpg",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Reinforcement learning of language models with KL-regularised policy gradients. "
    "Describe a sweep in a YAML file and run it with one command.",
    epilog="Start with: [bold]rpg sweep quickstart[/bold]",
)
# A pipe or a log has no width: wide enough that no table loses a column.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 150

console = RecordingConsole(width=_WIDTH)
error_console = RecordingConsole(stderr=True)
error_console.is_for_messages = True


class Command(TyperCommand):
    """A command whose arguments and options are explained in its docstring, below `Args:`, or by
    their types below. It names pages of the documentation only where there is a clone with them."""

    def __init__(self, name: str | None, *, help: str, params: list[Any], **settings: Any) -> None:
        pages = re.compile(r"\s\(docs/([\w/-]+)\.md\)")
        here = pages.sub(lambda page: see(page[1]), help)
        about, _, entries = here.partition("\n\nArgs:\n")
        explained = {
            argument: " ".join(text.split())
            for argument, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", entries, re.M)
        }
        for parameter in params:
            parameter.help = explained.pop(parameter.name, parameter.help)
        if explained or not all(parameter.help for parameter in params):
            raise ValueError(
                f"rpg {name}: the docstring explains other arguments than it has: {explained}"
            )
        super().__init__(name, help=about, params=params, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses empty values, which would be taken for the working directory, or for none: `rpg
        gc --home "$UNSET"`; and numbers that are not finite."""
        given, _, _ = self.make_parser(ctx).parse_args([*args])
        for name, value in given.items():
            values = value if isinstance(value, list | tuple) else (value,)
            if name not in ("label", "nightly") and "" in values:  # there, empty means none
                refuse(f"{self._shown(name)}: is empty; leave it out, or give a value")
        rest = super().parse_args(ctx, args)
        # Python reads `nan` as a number, and no bound refuses it.
        for name, value in ctx.params.items():
            if isinstance(value, float) and not math.isfinite(value):
                refuse(f"{self._shown(name)}: is {value}; expected a finite number")
        return rest

    def _shown(self, name: str | None) -> str:
        """A parameter as one writes it: `--home`."""
        return next(max(each.opts, key=len) for each in self.params if each.name == name)


def say(text: str, style: str | None = None) -> None:
    """Print a line of text literally: without markup, and without control sequences for the
    terminal."""
    console.print(visible(text), style=style, markup=False, highlight=False, soft_wrap=True)


def complain(text: str, style: str | None = None) -> None:
    """Like `say`, on standard error."""
    error_console.print(visible(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _version(requested: bool) -> None:
    if requested:
        print(version())
        raise typer.Exit


_VERSION = typer.Option(
    "--version", callback=_version, is_eager=True, help="Print the version and exit."
)


@app.callback()
def _options(version: Annotated[bool, _VERSION] = False) -> None: ...


def _find(file: Path | None) -> Path | None:
    from rpg.config.shipped import find

    return None if file is None else find(file)


_A_FILE = typer.Argument(
    help="Run or sweep file (YAML), or the name of a shipped one.", callback=_find
)
File = Annotated[Path, _A_FILE]
OptionalFile = Annotated[Path | None, _A_FILE]
_HOME = typer.Option(
    "--home", help="Data folder. Default: $RPG_HOME, or ./rpg-data.", show_default=False
)
Home = Annotated[Path | None, _HOME]
_SET = typer.Option(
    "--set", "-s", help="Override a field or an axis, e.g. training.steps=20. Repeatable."
)
Set = Annotated[list[str], _SET]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
_PRESET = typer.Option(
    "--preset", help="Settings of the paper or of its released code: paper, released."
)
Preset = Annotated[str, _PRESET]


def layout_at(home: Path | None) -> Layout:
    """The data folder that a command works on."""
    return Layout.at(home)


def refuse(message: str) -> NoReturn:
    """Raises ConfigError."""
    from rpg.config.errors import ConfigError

    raise ConfigError(message)


def columns(*headings: str, right: Collection[str] = ()) -> Table:
    """An empty table without lines; the columns of `right`, which hold numbers, are aligned on the
    right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


def size_text(size: float) -> str:
    """`1.6 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def require_named(kind: str, name: str, names: Collection[str], layout: Layout) -> None:
    """Raises ConfigError if the name is not one of those of this kind in the data folder."""
    from rpg.config.errors import nearest

    if name not in names:
        existing = f"There are: {', '.join(names)}" if names else "There are none yet"
        refuse(f"no {kind} {name!r} in {layout.home}{nearest(name, names)} {existing}")
