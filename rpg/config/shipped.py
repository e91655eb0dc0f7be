"""The configurations that ship, by name: `quickstart` is configs/sweeps/quickstart.yaml, wherever one stands.

In a checkout rpg/configs is a link to configs/; in a wheel it is a folder of the package.
"""

from __future__ import annotations

from pathlib import Path, PurePath

from rpg.config.errors import ConfigError, nearest

SHIPPED = (Path(__file__).parents[1] / "configs").resolve()
NIGHTLY = SHIPPED / "nightly"
_PLAIN = ("sweeps", "runs", "paper")
"""The folders whose files are known by their own name alone."""


def names() -> dict[str, Path]:
    """Short name -> file of every sweep and run that ships, e.g. `quickstart`, `chain`, `table3`."""
    return {path.stem: path for folder in _PLAIN for path in sorted((SHIPPED / folder).glob("*.yaml"))}


def lookup(given: str) -> Path | None:
    """`quickstart`, `sweeps/quickstart` and `configs/sweeps/quickstart.yaml` as the file that ships; None: none does."""
    parts = PurePath(given).parts
    if not parts or ".." in parts or PurePath(given).is_absolute():
        return None
    name = PurePath(*parts[parts[0] == "configs" :]).as_posix().removesuffix(".yaml")
    path = SHIPPED / f"{name}.yaml"
    return path if path.is_file() else names().get(name)


def find(given: Path) -> Path:
    """The file itself when it is there, else the one that ships under that name.

    Raises:
        ConfigError: it looks like a name, and is none.
    """
    if given.is_file():
        return given
    if path := lookup(str(given)):
        return path
    if len(given.parts) == 1 and not given.suffix and not given.exists():
        known = names()
        raise ConfigError(
            f"{given}: no such file, and no shipped configuration has this name{nearest(str(given), known)} "
            f"Known: {', '.join(known)}"
        )
    return given  # whoever reads it says what is wrong with it


def base(path: Path, named: str) -> Path:
    """The run file that the `base` of the file `path` names: beside that file, else one that ships."""
    beside = path.parent / named
    return beside if beside.is_file() else lookup(named) or beside


def short(path: Path) -> str:
    """How to name a file on the command line: by its name when it ships, else by its path."""
    return path.stem if names().get(path.stem) == path.resolve() else str(path)
