"""The source of functions that a configuration names: found and read as text, never imported.

A function is part of its run like any other setting: the run's identity contains the digest of its
source, and the manifest the source itself, from which it is executed. The source is the module's
file and every module that it imports from the same folder.
"""

import ast
import hashlib
import symtable
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

from rpg.config.errors import ConfigError, nearest
from rpg.config.reward import PythonReward
from rpg.config.run_spec import RunSpec
from rpg.config.section import Section
from rpg.config.task import EnvironmentTask

FIELD, FACTORY = "reward.function", "task.factory"  # how messages name the fields
Coded = PythonReward | EnvironmentTask  # a section that names code


@dataclass(frozen=True)
class Source:
    """One module: its name, its text, and the file that it was read from."""

    module: str
    text: str
    path: str


def digest(sources: list[Source]) -> str:
    """Digest of the modules and their texts, wherever they lie: 16 hexadecimal digits."""
    hashed = hashlib.sha256()
    for source in sources:
        hashed.update(f"{source.module}\0{len(source.text)}\0{source.text}".encode())
    return hashed.hexdigest()[:16]


def sources(function: str, beside: Path, where: str) -> list[Source]:
    """The module of `module:function` and what it imports from the folder `beside`, the module
    itself first. Raises ConfigError: there is no such module or function, or the file is not valid
    Python."""
    module, _, name = function.partition(":")
    read: dict[str, Source] = {}
    queue = [module]
    while queue:
        current = queue.pop(0)
        path = _required(current, beside, where) if current == module else _file(current, beside)
        if path is None or current in read:
            continue
        text, tree = _parsed(path, where)
        if current == module:
            _check_defined(name, text, tree, path, where)
        read[current] = Source(current, text, str(path))
        if beside in path.parents:
            queue += [inner for inner in _imports(current, tree) if _file(inner, beside)]
    sources = [read.pop(module)]
    sources += [read[inner] for inner in sorted(read)]
    return sources


def locate(data: dict[str, Any], file: Path) -> dict[str, Any]:
    """A raw run in which every function is searched beside `file`, unless a file merged before has
    set a folder."""
    beside = {"beside": str(file.parent.resolve())}

    def placed(part: Any) -> Any:
        if isinstance(part, dict) and part.get("type") == "python":
            return beside | part
        return part

    located: dict[str, Any] = {}
    reward = data.get("reward")
    if isinstance(reward, list):
        located["reward"] = [placed(part) for part in reward]
    elif reward is not None:
        located["reward"] = placed(reward)
    task = data.get("task")
    if isinstance(task, dict) and "factory" in task:
        located["task"] = beside | task
    return data | located if located else data


def with_digests(spec: RunSpec, where: str) -> RunSpec:
    """The run with the digest of each function that it names. Raises ConfigError: a function cannot
    be found or read, or its digest differs from the one in the file."""
    if not any(isinstance(part, Coded) for part in (*spec.reward, spec.task)):
        return spec
    parts = tuple(_with_digest(part, where) for part in spec.reward)
    task = _with_digest(spec.task, where)
    return spec.model_copy(update={"reward": parts, "task": task})


def kept_sources(spec: RunSpec) -> dict[str, list[dict[str, str]]]:
    """For a manifest: name of a part of the reward, or FACTORY -> the source that is executed.
    Raises ConfigError: it has changed since the run was planned."""
    kept = {
        part.called(): kept_source(part) for part in spec.reward if isinstance(part, PythonReward)
    }
    return kept | (
        {FACTORY: kept_source(spec.task)} if isinstance(spec.task, EnvironmentTask) else {}
    )


def kept_source(part: Coded) -> list[dict[str, str]]:
    """The modules of one function as they are now, as plain data. Raises ConfigError: they cannot
    be read, or are not those of the part's digest."""
    modules = sources(part.function, part.beside or Path.cwd(), _field(part))
    if part.digest is not None and digest(modules) != part.digest:
        raise ConfigError(f"{modules[0].path}: was changed after the run was planned; try again")
    return [asdict(module) for module in modules]


def _field(part: Coded) -> str:
    return FIELD if isinstance(part, PythonReward) else FACTORY


def _with_digest(part: Section, where: str) -> Section:
    """The section itself if it names no code."""
    if not isinstance(part, Coded):
        return part
    modules = sources(part.function, part.beside or Path.cwd(), f"{where}: {_field(part)}")
    current = digest(modules)
    if part.digest is not None and part.digest != current:
        section = _field(part).partition(".")[0]
        raise ConfigError(
            f"{where}: {section}.digest: {part.digest!r}, but {modules[0].path} has the "
            f"digest {current!r}; leave the "
            "field out to use the function as it is now"
        )
    return part.model_copy(update={"digest": current})


def _required(module: str, beside: Path, where: str) -> Path:
    path = _file(module, beside) or _installed(module)
    if path is None:
        modules = sorted(path.stem for path in beside.glob("*.py"))
        there = f"In {beside} there are: {', '.join(modules)}"
        shown = there if modules else f"{beside} contains no Python file"
        raise ConfigError(
            f"{where}: no module {module!r}{nearest(module, modules)} {shown}. "
            "Accepted: a file beside the YAML file, or an installed module, as module:function"
        )
    return path


def _file(module: str, beside: Path) -> Path | None:
    """The file of a module below a folder."""
    bare = beside.joinpath(*module.split("."))
    paths = (bare.with_name(f"{bare.name}.py"), bare / "__init__.py")
    return next((path for path in paths if path.is_file()), None)


def _installed(module: str) -> Path | None:
    """The file of an installed module, found without importing it or what it is in."""
    search: list[str] | None = [folder for folder in sys.path if folder]
    spec = None
    for end in range(len(parts := module.split("."))):
        spec = PathFinder.find_spec(".".join(parts[: end + 1]), search)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or ())
    return Path(spec.loader.path) if spec and isinstance(spec.loader, SourceFileLoader) else None


def _parsed(path: Path, where: str) -> tuple[str, ast.Module]:
    try:
        text = path.read_text("utf-8")
        return text, ast.parse(text, str(path))
    except SyntaxError as error:
        raise ConfigError(f"{where}: {path}: line {error.lineno}: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {path}: cannot be read: {error}") from None


def _check_defined(name: str, text: str, tree: ast.Module, path: Path, where: str) -> None:
    """The module binds the name, as far as can be told without running it."""
    symbols = symtable.symtable(text, str(path), "exec").get_symbols()
    bound = {
        symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()
    }
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    if bound & {name, "__getattr__"} or any(
        alias.name == "*" for node in imports for alias in node.names
    ):
        return
    functions = sorted(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    shown = f" Accepted: {', '.join(functions)}" if functions else " It defines no function"
    raise ConfigError(f"{where}: {path}: has no function {name!r}{nearest(name, functions)}{shown}")


def _imports(module: str, tree: ast.Module) -> Iterator[str]:
    """Modules that a module imports, anywhere in it, absolute names; whether they exist is not
    asked."""
    package = module.split(".")[:-1]
    yield from (".".join(package[: end + 1]) for end in range(len(package)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            if node.module:
                parts.append(node.module)
            base = ".".join(parts)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
