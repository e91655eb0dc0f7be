"""Settings of other trainers' runs, read as data from the files people train with; nothing in them
is executed."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rpg.errors import UserError

_OVERRIDE = re.compile(r"[+]{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z]\w*)(?:=(.*))?", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^${}]*))?\}|\$(\w+)")
_ARITHMETIC = re.compile(r"\$\(\(.*?\)\)")
Variables = dict[str, str | None]  # None: without one value that can be known
_PROGRAMS = {
    "open-instruct": re.compile(r"(?:.*/)?open_instruct/grpo\w*\.py"),
    "trl": re.compile(r"grpo|(?:.*/)?\w*(?:grpo|gspo)\w*\.py"),
}


@dataclass
class ForeignSettings:
    """`values` (dotted key -> value) of a run of `trainer`; `unresolved` (key -> why) have no value
    that can be known.

    program: the Python module, or TRL's trainer, that a script starts. remarks: what else was not
    read.
    """

    trainer: str
    values: dict[str, Any] = field(default_factory=dict)
    unresolved: dict[str, str] = field(default_factory=dict)
    program: str = ""
    remarks: list[str] = field(default_factory=list)

    def set(self, key: str, value: Any) -> None:
        """A second, different value for a key (in branches of a script) leaves it without one."""
        if key in self.values and self.values[key] != value:
            self.unresolved[key] = f"set to both {self.values[key]!r} and {value!r}"
        self.values[key] = value


def read_settings(file: Path) -> ForeignSettings:
    """Read a verl script (.sh) or Hydra file, a TRL GRPOConfig (.yaml, .yml, .json, .py or a
    command in a .sh), a prime-rl TOML, or an open-instruct command in a .sh.

    Raises UserError where the file cannot be read or names no setting of these trainers.
    """
    documents = dict.fromkeys((".json", ".yaml", ".yml"), _document)
    readers = {".sh": _shell, ".py": _script, ".toml": _toml, **documents}
    if file.suffix not in readers:
        raise UserError(f"{file}: expected a file that ends in {', '.join(readers)}")
    try:
        settings = readers[file.suffix](file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} could not be read: {error}") from None
    if not (
        settings.values or settings.unresolved or (settings.trainer == "trl" and settings.program)
    ):
        raise UserError(
            f"{file}: no settings were found; accepted are overrides of verl (a.b=value), GRPOConfig's arguments of TRL, "
            "tables of prime-rl and flags of open_instruct/grpo*.py"
        )
    return settings


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in a nested mapping that is no mapping."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _document(text: str) -> ForeignSettings:
    content = yaml.safe_load(text)  # reads JSON, too
    if not isinstance(content, dict):
        raise ValueError("expected keys and values")
    if not any(key in content for key in ("actor_rollout_ref", "algorithm")):
        return ForeignSettings("trl", {key: _number(value) for key, value in content.items()})
    settings = ForeignSettings("verl")
    for key, value in leaves(content):
        if isinstance(value, str) and "${" in value:
            settings.unresolved[key] = f"an interpolation: {value}"
        elif key == "defaults":
            files = "the files in its defaults list were not read"
            settings.remarks.append(f"{files}, verl's own defaults taken: {value}")
        else:
            settings.values[key] = _number(value)
    return settings


def _toml(text: str) -> ForeignSettings:
    settings = ForeignSettings("prime-rl", dict(leaves(tomllib.loads(text))))
    for source in settings.values.get("orchestrator.train.source", []):
        if isinstance(source, dict) and "algo" in source:
            algo = f"the algo of the source {source.get('name')!r}"
            settings.remarks.append(f"{algo} is not part of this measurement")
    return settings


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 as text; Hydra, argparse and YAML 1.2 read it as a number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _script(text: str) -> ForeignSettings:
    settings = ForeignSettings("trl", program="GRPOTrainer" if "GRPOTrainer(" in text else "")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "GRPOConfig":
            for argument in node.keywords:
                name = argument.arg or "**"
                try:
                    settings.set(name, ast.literal_eval(argument.value))
                except (ValueError, TypeError):  # (an unhashable key of a literal)
                    settings.unresolved[name] = f"not a literal: {ast.unparse(argument)}"
    return settings


def _shell(text: str) -> ForeignSettings:
    """Overrides and flags in a script; its own variables are substituted, commands and arithmetic
    are not evaluated."""
    settings, variables = ForeignSettings("verl"), Variables()
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    code = _ARITHMETIC.sub(lambda match: match[0].replace(" ", ""), code.replace("\\\n", " "))
    for line in code.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation that spans lines
            words = line.split()
        words = [part for word in words for part in _words(word, variables)]
        starts = _command(words) or any(_OVERRIDE.fullmatch(word) for word in words)
        if command := _command(words):
            settings.trainer, arguments = command
            _flags(arguments, settings, variables)
        for before, word in zip(["", *words], words, strict=False):
            if override := _OVERRIDE.fullmatch(word):
                _assign(settings, override[1], override[2], variables)
            elif assignment := _ASSIGNMENT.fullmatch(word):
                name, value = assignment[1], _substituted(assignment[2], variables)
                variables[name] = value if variables.setdefault(name, value) == value else None
            elif before == "-m":
                settings.program = word
            elif word.startswith("--config-name"):
                settings.remarks.append(f"the configuration that {word} names was not read")
            elif starts and before and word[:1] in ("$", "`") and not before.startswith("--"):
                settings.remarks.append(f"the arguments in {word} are not known")
    return settings


def _words(word: str, variables: Variables) -> list[str]:
    """A variable on its own may hold several words."""
    value = _substituted(word, variables) if _VARIABLE.fullmatch(word) else None
    return [word] if value is None else value.split()


def _command(words: list[str]) -> tuple[str, list[str]] | None:
    """(trainer, arguments) of a line that starts TRL's or open-instruct's GRPO."""
    for trainer, program in _PROGRAMS.items():
        for place, word in enumerate(words):
            if program.fullmatch(word) and (word.endswith(".py") or words[:place][-1:] == ["trl"]):
                return trainer, words[place + 1 :]
    return None


def _flags(words: list[str], settings: ForeignSettings, variables: Variables) -> None:
    name, values = "", list[str]()
    for word in [*words, "--end"]:
        if not (flag := _FLAG.fullmatch(word)):
            values.append(word)
            continue
        if name:
            _assign(settings, name, " ".join(values) if values else "true", variables)
        name, values = flag[1], [flag[2]] if flag[2] is not None else []


def _assign(settings: ForeignSettings, key: str, text: str, variables: Variables) -> None:
    value = _substituted(text, variables)
    if value is None:
        settings.unresolved[key] = f"not a plain value: {text}"
        return
    try:
        settings.set(key, _number(yaml.safe_load(value)))
    except yaml.YAMLError:
        settings.set(key, value)


def _substituted(text: str, variables: Variables) -> str | None:
    """None where the text has a command, arithmetic or a variable without one known value."""

    def value(match: re.Match[str]) -> str:
        known = variables.get(
            match[1] or match[3], match[2]
        )  # a default is for what the script never sets
        return "$" if known is None else known

    result = _VARIABLE.sub(value, text)
    return None if "$" in result or "`" in result else result
