"""From a filled-in form to the arguments of a command: every value is checked, every path is below
an allowed folder.

A form can only name what exists (a configuration, an algorithm, a benchmark) and set fields of the
schema. Nothing from it is executed: the arguments go to a process as a list, never through a shell.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.serve.form_sizes import (
    END,
    FILE,
    check_draft,
    check_planned,
    check_sizes,
    limits_of,
    texts,
)
from rpg import next_steps
from rpg.config import shipped
from rpg.config.capabilities import reached
from rpg.config.errors import ConfigError, nearest
from rpg.config.load import parse_assignments, read_mapping
from rpg.config.run_spec import RunSpec
from rpg.config.section import ADDRESS, CODE
from rpg.config.sweep_spec import Sweep, load_sweep, read_sweep
from rpg.store import Layout
from rpg.study.spec import Study, load_study, specs_of

OWN = "RPG_CONFIGS"
DATA = "RPG_DATA"
AS_FILE = "as in the file"
NIGHTLY = "nightly"
"""The shipped set of nightly sweeps."""
_PATHS = re.compile(r"\b(path|train|data|files|benchmarks)\b")


@dataclass(frozen=True)
class Roots:
    """The folders a form may reach: shipped configurations, the data folder, the user's own
    configurations and data."""

    home: Path
    own: Path
    folders: tuple[Path, ...]
    code: Path | None = None
    """The folder whose files may name functions to run: $RPG_CONFIGS, if set."""

    def check(self, path: Path, where: str) -> Path:
        """The path with all links resolved; ConfigError when it is in none of the folders."""
        real = Path(os.path.realpath(path.expanduser()))
        if not any(real == folder or folder in real.parents for folder in self.folders):
            allowed = ", ".join(map(str, self.folders))
            raise ConfigError(
                f"{where}: {path} is outside the folders that may be used from here: {allowed}"
            )
        return real


def roots(home: Path, environment: Mapping[str, str] = os.environ) -> Roots:
    own = Path(environment.get(OWN) or home / "configs").expanduser()
    data = [Path(environment[DATA])] if environment.get(DATA) else []
    allowed = (
        Path(os.path.realpath(path.expanduser())) for path in (shipped.SHIPPED, home, own, *data)
    )
    return Roots(
        home, own, tuple(allowed), Path(os.path.realpath(own)) if environment.get(OWN) else None
    )


def configs(where: Roots) -> dict[str, Path]:
    """Sweep files by their name in a form: the shipped ones, the paper's, and `own/...` from the
    user's own folder."""
    sweeps = {path.stem: path for path in sorted((shipped.SHIPPED / "sweeps").glob("*.yaml"))}
    others = {f"paper/{path.stem}": path for path in sorted(shipped.PAPER.glob("*.yaml"))}
    named = ((name, path, _fields(path)) for name, path in (others | _own(where)).items())
    return sweeps | {
        name: path for name, path, fields in named if "name" in fields and "tune" not in fields
    }


def _own(where: Roots) -> dict[str, Path]:
    own = sorted(where.own.rglob("*.yaml")) if where.own.is_dir() else []
    return {f"own/{path.relative_to(where.own).with_suffix('')}": path for path in own}


def studies(where: Roots) -> dict[str, Path]:
    """Study files by their name in a form: the shipped ones, and `own/...` from the user's own
    folder."""
    shown = {path.stem: path for path in sorted((shipped.SHIPPED / "studies").glob("*.yaml"))}
    return shown | {name: path for name, path in _own(where).items() if "tune" in _fields(path)}


def study(where: Roots, config: str, workers: int = 0) -> tuple[str, list[str]]:
    """(name of the study, arguments of `rpg`) for a form; ConfigError as for a sweep."""
    path = _chosen(where, "config", config, studies(where))
    name = _checked(path, where).spec.name
    return name, ["study", str(path), "--home", str(where.home), *option("workers", int(workers))]


def nights(where: Roots) -> dict[str, Path]:
    """Sets of nightly sweeps by their name in a form: the shipped one, and the user's own folders
    with sweeps or studies."""
    own = sorted({path.parent for path in where.own.glob("*/*.yaml") if "name" in _fields(path)})
    return {NIGHTLY: shipped.NIGHTLY} | {f"own/{path.name}": path for path in own}


def _checked(path: Path, where: Roots) -> Sweep | Study:
    """The sweep or study of a file; ConfigError as for a sweep."""
    if "tune" not in _fields(path):
        return _planned_sweep(path, where, {}, None, None)
    study = load_study(path)
    _check_planned(study, where)
    return study


def _planned_sweep(
    path: Path,
    where: Roots,
    assignments: Mapping[str, Any],
    axes: Mapping[str, Any] | None,
    name: str | None,
) -> Sweep:
    """A sweep within the server's limits; ConfigError as for a sweep."""
    fixed = dict(assignments)
    replaced = dict(axes) if axes else None
    draft = read_sweep(path, fixed, axes=replaced, name=name)
    check_draft(draft, limits_of(where.home), where.home)
    # No digest of the data: that would read files before their paths are checked.
    planned = load_sweep(path, fixed, lambda _: "", axes=replaced, name=name)
    _check_planned(planned, where)
    if draft.spec.drill and draft.spec.drill.edited_from:
        earlier = {**fixed, **draft.spec.drill.edited_from}
        edited = load_sweep(path, earlier, lambda _: "", axes=replaced, name=name)
        _check_planned(edited, where)
    return planned


def nightly(where: Roots, sweeps: str, workers: int = 0) -> tuple[Path, list[str]]:
    """(folder of the set, arguments of `rpg`) for a form; ConfigError as for a sweep."""
    folder = _chosen(where, "sweeps", sweeps, nights(where))
    for path in sorted(folder.glob("*.yaml")):
        list(_files(where.check(path, "sweeps"), where))
        _checked(path, where)
    return folder, [
        "nightly",
        str(folder),
        "--home",
        str(where.home),
        *option("workers", int(workers)),
    ]


def axes_of(
    algorithms: Sequence[str] = (), seeds: Sequence[int] = (), baseline_seeds: int = 0
) -> dict[str, Any]:
    """The axes that a form replaces; 0 and empty mean: as in the file."""
    of_seeds: list[int] | dict[str, Any] = [int(seed) for seed in seeds]
    if baseline_seeds:
        of_seeds = {"baseline": int(baseline_seeds), "others": of_seeds or None}
    chosen: dict[str, Any] = {"algorithm": list(algorithms), "seed": of_seeds}
    return {field: values for field, values in chosen.items() if values}


def sweep(
    where: Roots,
    config: str,
    *,
    axes: Mapping[str, Any] | None = None,
    steps: int = 0,
    backend: str = AS_FILE,
    overrides: str = "",
    name: str = "",
) -> tuple[str, list[str]]:
    """(name of the sweep, arguments of `rpg`) for a form; 0 and empty mean: as in the file.
    ConfigError says what is wrong with which value, and what would be accepted.
    """
    axes = dict(axes or {})
    path = _chosen(where, "config", config, configs(where))
    stripped = (line.strip() for line in overrides.splitlines())
    lines = [line for line in stripped if line and not line.startswith("#")]
    if steps:
        lines.append(f"training.steps={int(steps)}")
    if backend != AS_FILE:
        lines.append(f"backend.type={backend}")
    check_sizes("overrides", overrides, limits_of(where.home), where.home)
    assignments = parse_assignments(lines)
    _check_reach(assignments, where)
    planned = _planned_sweep(path, where, assignments, axes, name or None)
    arguments = [
        "sweep",
        str(path),
        "--home",
        str(where.home),
        *(f"--set={line}" for line in lines),
    ]
    arguments += [f"--axis={field}={json.dumps(values)}" for field, values in axes.items()]
    return planned.spec.name, [*arguments, *option("name", name)]


def option(name: str, value: str | int) -> list[str]:
    """Nothing where the form says: as in the file."""
    return [f"--{name}={value}"] if value else []


def _chosen(where: Roots, field: str, name: str, paths: Mapping[str, Path]) -> Path:
    """The file or folder of this name or line; it and every file that it includes are in an allowed
    folder."""
    name = max(
        (known for known in paths if f"{name}{END}".startswith(known + END)), key=len, default=name
    )
    if name not in paths:
        raise ConfigError(
            f"{field}: {name!r} is not known{nearest(name, paths)} Known: {', '.join(paths)}"
        )
    path = where.check(paths[name], field)
    if path.is_file():
        list(_files(path, where))
    return path


def _fields(path: Path) -> set[str]:
    """A file that cannot be read is shown as a sweep, so that whoever picks it learns what is wrong
    with it."""
    try:
        return set(read_mapping(path))
    except ConfigError:
        return {"name"}


def _files(path: Path, where: Roots, seen: tuple[Path, ...] = ()) -> Iterator[Path]:
    """A configuration and the files that it includes; each must be in an allowed folder, before it
    is read."""
    yield path
    base = read_mapping(path).get("base")
    if isinstance(base, str) and path not in seen:
        yield from _files(
            where.check(shipped.base(path, base), f"{path}: base"), where, (*seen, path)
        )


def _check_planned(planned: Sweep | Study, where: Roots) -> None:
    """Every text in a resolved run that names a file must name one in an allowed folder; so must
    the files it names."""
    named: dict[tuple[str, str], None] = {}
    for spec in specs_of(planned):
        named |= dict.fromkeys(texts(spec.model_dump(mode="json")))
        named |= dict.fromkeys(("task files", text) for text in spec.task.files())
    for field, text in named:
        if not field.endswith("template"):
            _check_text(text, field, Path.cwd(), where)
    _check_code(planned, where)
    check_planned(planned, limits_of(where.home), where.home)


def _check_reach(assignments: Mapping[str, Any], where: Roots) -> None:
    """A form sets numbers, choices, names and paths; files of whoever serves decide what runs, and
    where data go."""
    limits = limits_of(where.home)
    addresses = limits.addresses
    for name, value in assignments.items():
        check_sizes(name, value, limits, where.home)
        for field, capability, given in reached(RunSpec, name, value):
            if capability is ADDRESS and given not in addresses:
                raise ConfigError(
                    f"{field}: {given!r} may not be named from here; the server's limit "
                    f"({where.home / FILE}): "
                    f"addresses {', '.join(addresses)}"
                )
            if capability in (CODE, None):
                why = (
                    "is code"
                    if capability
                    else "is not known to be a number, a choice, a name or a path"
                )
                message = (
                    f"{field}: {given!r} {why}, and only comes from a file in ${OWN}, never "
                    "from a form"
                )
                raise ConfigError(message)


def _check_code(planned: Sweep | Study, where: Roots) -> None:
    """Code may only be named by files in $RPG_CONFIGS, not by those in the data folder, which
    others may write to."""
    files = {Path(os.path.realpath(file)) for file in _files(planned.path, where)}
    trusted = [Path(os.path.realpath(folder)) for folder in (shipped.SHIPPED, where.code) if folder]
    if all(any(file.is_relative_to(folder) for folder in trusted) for file in files):
        return
    for spec in specs_of(planned):
        for field, capability, given in reached(RunSpec, "", spec.model_dump(mode="json")):
            if capability in (CODE, None):
                raise ConfigError(
                    f"{field}: {given!r} may be code, and from here it may only be named by "
                    "a file in "
                    f"${OWN}{f' ({where.code})' if where.code else ', which is not set'}; "
                    "or run it with: "
                    f"{next_steps.command('sweep', str(planned.path), layout=Layout(where.home))}"
                )


def _check_text(text: str, field: str, beside: Path, where: Roots) -> None:
    path = Path(text)
    named = text.startswith(("/", "~")) or ".." in path.parts
    if not named and _PATHS.search(
        field
    ):  # a model's relative folder, which could be a link to anywhere
        with suppress(OSError, ValueError):
            named = (beside / path).exists()
    if named:
        real = where.check(beside / path.expanduser(), field)
        if real.suffix in (".yaml", ".yml") and real.is_file():
            for inner, value in texts(read_mapping(real)):
                if not inner.endswith("template"):
                    _check_text(value, f"{field}: {inner}", real.parent, where)
