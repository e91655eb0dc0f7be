"""From files to specifications: safe YAML, dotted assignments, and the one validation of a run,
whether it comes from a file or from a manifest."""

import copy
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rpg.catalogue.entry import merge
from rpg.catalogue.schema import SectionTypes, has_free_keys, section_types
from rpg.config import shipped
from rpg.config.code import locate, with_digests
from rpg.config.errors import ConfigError, Places, explain, other_kind
from rpg.config.run_spec import RunSpec
from rpg.config.task import TASKS
from rpg.config.tracking import supported
from rpg.config.yaml_lines import SafeLoader, StrictLoader, place

MAX_BYTES = 1_000_000
"""A configuration larger than this is a mistake (YAML aliases can also expand without bound)."""
MAX_DEPTH = 50


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML safely; any mistake is a ConfigError that names file, line and column."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigError(
            f"{where}: larger than {MAX_BYTES:,} bytes; a configuration is a few lines"
        )
    try:
        _check_events(text, where)
        data = StrictLoader(text).get_single_data()
        _check_values(data, where)
        return data
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or error
        raise ConfigError(f"{where}: {at}not valid YAML: {problem}") from None
    except (ValueError, TypeError, KeyError) as error:
        # An explicit tag that does not fit, such as !!int x.
        problem = str(error)[:200] or type(error).__name__
        raise ConfigError(f"{where}: not valid YAML: {problem}") from None


def _check_events(text: str, where: str) -> None:
    """Checked before composing, which is recursive, in C without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError(
                f"{where}: YAML aliases (*name) are not accepted; write the values out"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ConfigError(f"{where}: nested too deeply")


def _check_values(value: Any, where: str, at: str = "") -> None:
    """Only values that JSON has, and numbers that fit a computer; anything else would fail far from
    its cause."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_values(key, where, f"{at}.{key[:40]!a}".strip(".'"))
            _check_values(inner, where, f"{at}.{key[:40]}".strip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_values(inner, where, f"{at}[{index}]")
    else:
        problem = _problem(value)
        if problem:
            place = f"{where}: {at}" if at else where
            raise ConfigError(f"{place}: {problem}")


def _problem(value: Any) -> str | None:
    """Why a single value is not accepted; None if it is."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        unusable = any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in value)
        return (
            f"text with a character that no file may contain: {value[:40]!a}" if unusable else None
        )
    if isinstance(value, int):
        return (
            f"a number of {value.bit_length()} bits; accepted: up to 63"
            if abs(value) >= 2**63
            else None
        )
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value}; accepted: finite numbers"
    kind = {"bytes": "binary data", "set": "a set"}.get(
        type(value).__name__, f"a {type(value).__name__}"
    )
    return f"{kind} is not accepted; write text, a number, a list or a mapping"


def read_mapping(path: Path, by: str = "") -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping; `by` says what led here: `sweep.yaml: base:
    `."""
    where = f"{by}{path}"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        folder = path.parent if path.parent.is_dir() else None
        beside = sorted(p.name for p in folder.glob("*.y*ml")) if folder else []
        there = "this folder" if folder == Path() else folder
        hint = f"; in {there} there are: {', '.join(beside)}" if beside else ""
        raise ConfigError(f"{where}: no such file{hint}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: not a text file (UTF-8 expected)") from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from None
    data = parse_yaml(text, where)
    if not isinstance(data, dict):
        kind = "nothing" if data is None else type(data).__name__
        raise ConfigError(f"{where}: expected a mapping of sections at the top level, got {kind}")
    return data


Model = TypeVar("Model", bound=BaseModel)


def checked(kind: type[Model], data: Mapping[str, Any], path: Path) -> Model:
    """What a file says, as a section of this kind. Raises ConfigError: the message names file,
    line, field and value."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise explain(error, kind, str(path), partial(place, path)) from None


def assign(data: dict[str, Any], dotted: str, value: Any, where: str) -> None:
    """Set `data[a][b][c]` for the path `a.b.c`, whatever was there; a text in place of a section is
    a ConfigError. In a mapping of free keys, what is left of the path is one key: of
    `backend.verl.data.seed`, `data.seed`."""
    *parents, last = dotted.split(".")
    if not last or "" in parents:
        why = f"{where}: {dotted!r} is not a field path; write section.field, e.g. training.steps"
        raise ConfigError(why)
    section = data
    model: type[BaseModel] | None = RunSpec
    types = SectionTypes({}, None)
    for depth, part in enumerate(parents, start=1):
        if part == "algorithm" and isinstance(section.get(part), str):
            # `algorithm: grpo` is short for `algorithm: {name: grpo}`.
            section[part] = {"name": section[part]}
        inner = section.setdefault(part, {})
        if not isinstance(inner, dict):
            at = ".".join(parents[:depth])
            raise ConfigError(f"{where}: {dotted}: {at} is {inner!r}, not a section")
        if has_free_keys(model, part):
            inner[".".join([*parents[depth:], last])] = copy.deepcopy(value)
            return
        types = section_types(model, part)
        model = types.model(types.of(inner))
        section = inner
    if last == "type" and value != types.of(section):
        _drop_fields_of_other_type(section, types.model(str(value)))
    section[last] = copy.deepcopy(value)


def _drop_fields_of_other_type(section: dict[str, Any], new: type[BaseModel] | None) -> None:
    """Before a section gets another type: its new fields come from the defaults. Where no type was
    written, fields that the new one has, too, may be meant for it."""
    stay: Collection[str] = ()
    if "type" not in section:
        stay = new.model_fields if new is not None else set(section)
    for name in set(section).difference(stay):
        del section[name]


def parse_assignments(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    """`["training.steps=20", "seed=3"]` -> {path: value}; values are YAML."""
    return given_once(pairs, option, f"field=value, e.g. {option} training.steps=20", parse_yaml)


def parse_axes(pairs: list[str]) -> dict[str, Any]:
    """`["seed=[0, 1]"]` -> {path: values}; values are YAML lists, and of seeds also `{baseline: 9,
    others: 3}`."""
    expected = "field=[value, value], e.g. --axis seed=[0,1,2]"
    axes = given_once(pairs, "--axis", expected, parse_yaml, (list, dict))
    for field, values in axes.items():
        if isinstance(values, dict) and field != "seed":
            raise ConfigError(f"--axis {field}={values}: write {expected}")
    return axes


def given_once(
    pairs: list[str],
    option: str,
    expected: str,
    read: Callable[[str, str], Any],
    kind: type | tuple[type, ...] = object,
) -> dict[str, Any]:
    """`name=value` -> {name: value as `read`}. Raises ConfigError: a name or value is missing, or a
    name is given twice."""
    given: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = (part.strip() for part in pair.partition("="))
        value = read(text, f"{option} {name}") if text else None
        if not name or not text or not isinstance(value, kind):
            raise ConfigError(f"{option} {pair!r}: write {expected}")
        if name in given:
            raise ConfigError(f"{option}: {name} is given twice: {given[name]} and {value}")
        given[name] = value
    return given


def resolve(data: dict[str, Any], where: str, file: Path | None = None) -> RunSpec:
    """A raw mapping as the run that it describes; paths in a file task are taken relative to the
    working directory.

    `file` is where most of it was read from, so that an error can name the line.
    """
    spec = _validated(data, where, partial(place, file) if file else None)
    useless = spec.without_effect()
    if useless:
        raise ConfigError(f"{where}: {useless}")
    return with_digests(spec, where)


class HasManifest(Protocol):
    """The folder of a run (rpg.store.run_folder.RunFolder)."""

    @property
    def manifest_path(self) -> Path: ...

    def read_manifest(self) -> dict[str, Any]: ...


def spec_of(folder: HasManifest) -> RunSpec:
    """The resolved specification in a run's manifest. Raises StoreError: there is no readable
    manifest; ConfigError: this version does not understand its specification.
    """
    spec = folder.read_manifest()["spec"]
    if isinstance(spec, dict) and "track" in spec:
        spec["track"] = supported(spec["track"])
    return _validated(spec, str(folder.manifest_path))


def _validated(data: Any, where: str, places: Places | None = None) -> RunSpec:
    """The one place where a mapping becomes a run."""
    try:
        return RunSpec.model_validate(data)
    except ValidationError as error:
        raise explain(error, RunSpec, where, places) from None


def load_raw_run(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A run file as a raw mapping, merged over its `base`; paths and functions are relative to the
    file. `seen` led here."""
    if path.resolve() in seen:
        raise ConfigError(f"{path}: base: files include each other: {' -> '.join(map(str, seen))}")
    by = f"{seen[-1]}: base: " if seen else ""
    data = read_mapping(path, by)
    if "axes" in data:
        raise ConfigError(f"{by}{other_kind(path, 'sweep', 'run file')}")
    base = data.pop("base", None)
    if base is not None:
        if not isinstance(base, str):
            raise ConfigError(f"{path}: base: expected the path of a run file, got {base!r}")
        data = merged_over_base(data, base, path, seen)
    # Relative paths of a task, and functions, are found from the folder of the file that names
    # them.
    return _task_paths(locate(data, path), lambda value: str((path.parent / value).resolve()))


def merged_over_base(
    sections: dict[str, Any], base: str | None, path: Path, seen: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """The sections of a run in the file at `path`, over those of its base: a run file beside it, or
    the name of a shipped one."""
    below = load_raw_run(shipped.base(path, base), (*seen, path.resolve())) if base else {}
    return merge(below, sections, RunSpec)


def without_folders(data: dict[str, Any]) -> dict[str, Any]:
    """A raw run with the names of its files alone: the same wherever they lie."""

    def bare(part: Any) -> Any:
        if isinstance(part, list):
            return [bare(item) for item in part]
        return {k: v for k, v in part.items() if k != "beside"} if isinstance(part, dict) else part

    named = {section: bare(part) for section, part in data.items() if section in ("task", "reward")}
    return _task_paths({**data, **named}, lambda path: Path(path).name)


def _task_paths(data: dict[str, Any], at: Callable[[str], str]) -> dict[str, Any]:
    task = data.get("task")
    kind = TASKS.get(str(task.get("type"))) if isinstance(task, dict) else None
    if kind is None or not isinstance(task, dict):
        return data  # an unknown type is refused when the whole run is checked
    return {
        **data,
        "task": kind.own_paths(dict(task), lambda it: at(it) if isinstance(it, str) else it),
    }
