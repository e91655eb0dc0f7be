"""From a filled-in form to the arguments of a command: every value checked, every path below an allowed folder.

A form can only name what is already there (a configuration, an algorithm, a benchmark) and set fields of the schema.
Nothing of it is executed: the arguments go to a process as a list, never through a shell.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.serve import form_limits as limits
from rpg.config import shipped
from rpg.config.errors import ConfigError, nearest
from rpg.config.load import parse_assignments, read_mapping
from rpg.config.reward import PythonReward
from rpg.config.sweep_spec import Sweep, load_sweep
from rpg.store import Layout

OWN, DATA = "RPG_CONFIGS", "RPG_DATA"
AS_FILE = "as in the file"
NIGHTLY = "nightly"
"""The set of nightly sweeps that ships."""
_PATHS = re.compile(r"\b(path|train|data|files|benchmarks)\b")


@dataclass(frozen=True)
class Roots:
    """The folders a form may reach: what ships, the data folder, one's own configurations, local data sets."""

    home: Path
    own: Path
    folders: tuple[Path, ...]
    code: Path | None = None
    """The folder whose files may name functions to run: $RPG_CONFIGS, where it is set."""

    def check(self, path: Path, where: str) -> Path:
        """The path with every link followed; ConfigError when it is in none of the folders."""
        real = Path(os.path.realpath(path.expanduser()))
        if not any(real == folder or folder in real.parents for folder in self.folders):
            allowed = ", ".join(map(str, self.folders))
            raise ConfigError(f"{where}: {path} is outside the folders that may be used from here: {allowed}")
        return real


def roots(home: Path, environment: Mapping[str, str] = os.environ) -> Roots:
    own = Path(environment.get(OWN) or home / "configs").expanduser()
    data = [Path(environment[DATA])] if environment.get(DATA) else []
    allowed = dict.fromkeys(
        Path(os.path.realpath(p.expanduser())) for p in (shipped.SHIPPED, home, own, *data)
    )
    code = Path(os.path.realpath(own)) if environment.get(OWN) else None
    return Roots(home, own, tuple(allowed), code)


def configs(where: Roots) -> dict[str, Path]:
    """Sweep files by the name a form shows: those that ship, the paper's, and `own/...` from one's own folder."""
    found = {path.stem: path for path in sorted((shipped.SHIPPED / "sweeps").glob("*.yaml"))}
    found |= {
        f"paper/{path.stem}": path
        for path in sorted((shipped.SHIPPED / "paper").glob("*.yaml"))
        if _is_sweep(path)
    }
    own = sorted(where.own.rglob("*.yaml")) if where.own.is_dir() else []
    found |= {f"own/{path.relative_to(where.own).with_suffix('')}": path for path in own if _is_sweep(path)}
    return found


def nights(where: Roots) -> dict[str, Path]:
    """Sets of nightly sweeps by the name a form shows: what ships, and every folder of one's own that holds sweeps."""
    found = {NIGHTLY: shipped.NIGHTLY}
    own = sorted(path for path in where.own.iterdir() if path.is_dir()) if where.own.is_dir() else []
    return found | {f"own/{path.name}": path for path in own if any(map(_is_sweep, path.glob("*.yaml")))}


def nightly(where: Roots, sweeps: str, workers: int = 0) -> tuple[Path, list[str]]:
    """(folder of the set, arguments of `rpg`) for a form.

    Raises:
        ConfigError: what is wrong with which value, and what would be accepted.
    """
    known = nights(where)
    _check_known(sweeps, known, "sweeps")
    folder = where.check(known[sweeps], "sweeps")
    for path in sorted(folder.glob("*.yaml")):
        _check_bases(where.check(path, "sweeps"), where)
        planned = load_sweep(path, {}, lambda _: "")
        _check_paths(planned, where)
        _check_code(planned, where)
        limits.check(planned, limits.limits_of(where.home), where.home)
    arguments = ["nightly", str(folder), "--home", str(where.home)]
    return folder, [*arguments, *([f"--workers={int(workers)}"] if workers else [])]


def sweep(
    where: Roots,
    config: str,
    *,
    algorithms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    steps: int = 0,
    backend: str = AS_FILE,
    overrides: str = "",
    name: str = "",
    workers: int = 0,
) -> tuple[str, list[str]]:
    """(name of the sweep, arguments of `rpg`) for a form; 0 and empty mean: as in the file.

    Raises:
        ConfigError: what is wrong with which value, and what would be accepted.
    """
    known = configs(where)
    _check_known(config, known, "config")
    path = where.check(known[config], "config")
    _check_bases(path, where)
    lines = [
        line.strip() for line in overrides.splitlines() if line.strip() and not line.strip().startswith("#")
    ]
    if steps:
        lines.append(f"training.steps={int(steps)}")
    if backend != AS_FILE:
        lines.append(f"backend.type={backend}")
    axes: dict[str, list[Any]] = {}
    if algorithms:
        axes["algorithm"] = list(algorithms)
    if seeds:
        axes["seed"] = [int(seed) for seed in seeds]
    # No digest of the data: that would read files before their paths are checked.
    assignments = parse_assignments(lines)
    _check_no_code(assignments)
    planned = load_sweep(path, assignments, lambda _: "", axes=axes, name=name or None)
    _check_paths(planned, where)
    _check_code(planned, where)
    limits.check(planned, limits.limits_of(where.home), where.home)
    arguments = ["sweep", str(path), "--home", str(where.home), *(f"--set={line}" for line in lines)]
    arguments += [f"--axis={field}={json.dumps(values)}" for field, values in axes.items()]
    arguments += [f"--name={name}"] if name else []
    arguments += [f"--workers={int(workers)}"] if workers else []
    return planned.spec.name, arguments


def evaluate(
    where: Roots, checkpoint: str, benchmarks: Sequence[str], *, engine: str, device: str, k: int, temperature: float,
    max_response_tokens: int,
) -> list[str]:  # fmt: skip
    """Arguments of `rpg evaluate`. A checkpoint is a folder, `sweep/run/step-000040`, or a hub id."""
    from rpg.tasks.benchmarks import benchmarks as shipped

    parts = checkpoint.strip().split("/")
    if len(parts) == 3 and all(parts) and not any(part.startswith(".") for part in parts):
        folder = Layout(where.home).run(parts[0], parts[1]).checkpoints / parts[2]
        checkpoint = str(folder) if folder.is_dir() else checkpoint
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", checkpoint) or Path(checkpoint).exists():
        checkpoint = str(where.check(Path(checkpoint.strip()), "checkpoint"))
        if not Path(checkpoint).is_dir():
            raise ConfigError(
                f"checkpoint: {checkpoint} is no folder; accepted: SWEEP/RUN/step-000040, a folder with a Hugging "
                "Face model, or a hub id such as Qwen/Qwen3-0.6B"
            )
    known = sorted(shipped())
    for name in benchmarks:
        _check_known(name, known, "benchmarks")
    if not benchmarks:
        raise ConfigError(f"benchmarks: name at least one of {', '.join(known)}")
    arguments = [
        "evaluate",
        "--home",
        str(where.home),
        f"--benchmarks={','.join(benchmarks)}",
        f"--engine={engine}",
    ]
    arguments += [f"--device={device}", f"--temperature={float(temperature)}"]
    arguments += [f"--max-response-tokens={int(max_response_tokens)}", *([f"--k={int(k)}"] if k else [])]
    return [*arguments, "--", checkpoint]


def _check_known(name: str, known: Collection[str], field: str) -> None:
    if name not in known:
        raise ConfigError(f"{field}: {name!r} is not known{nearest(name, known)} Known: {', '.join(known)}")


def _is_sweep(path: Path) -> bool:
    try:
        return "name" in read_mapping(path)
    except ConfigError:
        return True  # shown, so that whoever picks it is told what is wrong with it


def _check_bases(path: Path, where: Roots, seen: tuple[Path, ...] = ()) -> None:
    """Every file that a configuration includes must be in an allowed folder, before it is read."""
    base = read_mapping(path).get("base")
    if isinstance(base, str) and path not in seen:
        _check_bases(where.check(shipped.base(path, base), f"{path}: base"), where, (*seen, path))


def _check_paths(planned: Sweep, where: Roots) -> None:
    """Every text in a resolved run that names a file must name one in an allowed folder; so must the files it names."""
    seen: set[tuple[str, str]] = set()
    for run in planned.runs:
        named = [("task files", text) for text in run.spec.task.files()]
        for field, text in (*_texts(run.spec.model_dump(mode="json")), *named):
            if (field, text) in seen or field.endswith("template"):
                continue
            seen.add((field, text))
            _check_text(text, field, Path.cwd(), where)


def _check_no_code(assignments: Mapping[str, Any]) -> None:
    """A form sets numbers and names; which code runs is for the files of whoever serves."""
    for field, value in assignments.items():
        if field.split(".")[0] == "track":
            raise ConfigError(f"{field}: where numbers are sent is for a file in ${OWN}, not for a form")
        if field.split(".")[0] != "reward":
            continue
        texts = [text for _, text in _texts(value)]
        if field.split(".")[-1] in ("type", "function", "beside", "digest") or "python" in texts:
            raise ConfigError(
                f"{field}: a reward function is code, and only comes from a file in ${OWN}, never from a form"
            )


def _check_code(planned: Sweep, where: Roots) -> None:
    """Functions may only come from files in $RPG_CONFIGS, not from the data folder, which others may write to."""
    for run in planned.runs:
        for part in run.spec.reward:
            if not isinstance(part, PythonReward):
                continue
            folder = Path(os.path.realpath(part.beside)) if part.beside else None
            if (
                where.code is None
                or folder is None
                or (folder != where.code and where.code not in folder.parents)
            ):
                raise ConfigError(
                    f"reward.function: {part.function}: a reward function is code, and from here it may only be named "
                    f"by a file in ${OWN}{f' ({where.code})' if where.code else ', which is not set'}; or run it with: "
                    f"rpg sweep {planned.path}"
                )


def _check_text(text: str, field: str, beside: Path, where: Roots) -> None:
    path = Path(text)
    named = text.startswith(("/", "~")) or ".." in path.parts
    if not named and _PATHS.search(field):  # a model's relative folder, which could be a link to anywhere
        try:
            named = (beside / path).exists()
        except (OSError, ValueError):
            named = False
    if named:
        real = where.check(beside / path.expanduser(), field)
        if real.suffix in (".yaml", ".yml") and real.is_file():
            for inner, value in _texts(read_mapping(real)):
                if not inner.endswith("template"):
                    _check_text(value, f"{field}: {inner}", real.parent, where)


def _texts(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    items: Iterable = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in items:
        yield from _texts(inner, f"{at}.{key}" if at else str(key))
