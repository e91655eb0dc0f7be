"""Shipped configurations by name: `quickstart` is configs/sweeps/quickstart.yaml, in any working
directory.

In a checkout rpg/configs is a link to configs/; in a wheel it is a folder of the package.
"""

from pathlib import Path, PurePath

from rpg.config.errors import ConfigError, nearest

SHIPPED = (Path(__file__).parents[1] / "configs").resolve()
NIGHTLY = SHIPPED / "nightly"
PAPER = SHIPPED / "papers" / "rpg"
"""The RPG paper's own tables, by the names `table3`, `paper/table3`."""
_PLAIN = (SHIPPED / "sweeps", SHIPPED / "runs", PAPER, SHIPPED / "studies")
"""The folders whose files can be named without the folder."""


def names() -> dict[str, Path]:
    """Short name -> file of every shipped sweep and run, e.g. `quickstart`, `chain`, `table3`."""
    return {path.stem: path for folder in _PLAIN for path in sorted(folder.glob("*.yaml"))}


def lookup(given: str) -> Path | None:
    """`quickstart`, `sweeps/quickstart` and `configs/sweeps/quickstart.yaml` as the shipped file;
    None if there is none. `paper/` and `configs/paper/` are those of the RPG paper."""
    parts = PurePath(given).parts
    if not parts or ".." in parts or PurePath(given).is_absolute():
        return None
    inside = PurePath(*parts[parts[0] == "configs" :])
    if inside.parts[:1] == ("paper",) and len(inside.parts) > 1:
        inside = PAPER.relative_to(SHIPPED) / inside.relative_to("paper")
    name = inside.as_posix().removesuffix(".yaml")
    path = SHIPPED / f"{name}.yaml"
    return path if path.is_file() else names().get(name)


def find(given: Path) -> Path:
    """The file itself if it exists, else the shipped one of that name. Raises ConfigError: it looks
    like a name, and no shipped file has it."""
    if given.is_file():
        return given
    path = lookup(str(given))
    if path:
        return path
    if len(given.parts) == 1 and not given.suffix and not given.exists():
        shipped_names = names()
        raise ConfigError(
            f"{given}: no such file, and no shipped configuration has this "
            f"name{nearest(str(given), shipped_names)} "
            f"Known: {', '.join(shipped_names)}"
        )
    return given  # reading it will say what is wrong


def base(path: Path, named: str) -> Path:
    """The run file that `base` in the file `path` names: one beside that file, else a shipped
    one."""
    beside = path.parent / named
    return beside if beside.is_file() else lookup(named) or beside


def short(path: Path) -> str:
    """How to name a file on the command line: a shipped one by its name, any other by its path."""
    return path.stem if names().get(path.stem) == path.resolve() else str(path)
