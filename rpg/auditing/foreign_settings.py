"""Settings of other trainers' runs, read as data from the files people train with; nothing in them
is executed.

First it is decided which program a file is for (rpg.auditing.foreign_programs); files of other
programs are refused.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rpg.auditing import foreign_programs
from rpg.auditing.foreign_programs import NoTraining, OtherProgram, Program
from rpg.auditing.shell_commands import Command, commands, is_known, plain
from rpg.errors import UserError

_OVERRIDE = re.compile(r"[+]{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z]\w*)(?:=(.*))?", re.DOTALL)
_CONFIG_FLAG = re.compile(r"--config-(name|path)(?:=(.*))?", re.DOTALL)
_ACTOR = "actor_rollout_ref.actor."
_KL_IN_REWARD = "algorithm.use_kl_in_reward"
_OTHER_TRAINING = re.compile(r"distil|gkd|sft")
VERL_CONFIGURATIONS = ("ppo_trainer", "ppo_megatron_trainer", "dapo_trainer", "rpg_trainer")
"""Configurations of verl whose losses are verl's defaults."""


@dataclass
class ForeignSettings:
    """`values` (dotted key -> value) of a run of `trainer`; `unresolved` (key -> why) have no value
    that can be known.

    evidence: what says that it is this trainer. program: the Python module, or TRL's trainer, that
    a script starts. configuration: the name of verl's configuration, if another than its default is
    named. warnings: what was not read and may change the loss. remarks: what else was not read.
    """

    trainer: str
    values: dict[str, Any] = field(default_factory=dict)
    unresolved: dict[str, str] = field(default_factory=dict)
    program: str = ""
    evidence: str = ""
    configuration: str = ""
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, program: Program) -> "ForeignSettings":
        return cls(program.trainer, program=program.entry, evidence=program.evidence)

    def set(self, key: str, value: Any) -> None:
        """A second, different value for a key (in branches of a script) leaves it without one."""
        if key in self.values and self.values[key] != value:
            self.unresolved[key] = f"set to both {self.values[key]!r} and {value!r}"
        self.values[key] = value


def read_settings(file: Path) -> ForeignSettings:
    """Read a verl script (.sh) or Hydra file, a TRL GRPOConfig (.yaml, .yml, .json, .py or a
    command in a .sh), a prime-rl TOML, or an open-instruct command in a .sh.

    Raises UserError where the file cannot be read or names no setting of these trainers, or is for
    another program; the message says what it looks like.
    """
    readers: dict[str, Callable[[str, Path], ForeignSettings]] = {
        ".sh": _shell,
        ".py": _script,
        ".toml": _toml,
        ".json": _document,
        ".yaml": _document,
        ".yml": _document,
    }
    if file.suffix not in readers:
        raise UserError(f"{file}: expected a file that ends in {', '.join(readers)}")
    try:
        return readers[file.suffix](file.read_text(encoding="utf-8"), file)
    except OtherProgram as error:
        raise UserError(
            f"{file} is not read: {error}. Accepted are verl's main_ppo, TRL's GRPO, prime-rl's rl "
            "and open-instruct's grpo"
        ) from None
    except (OSError, ValueError, SyntaxError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} could not be read: {error}") from None


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in a nested mapping that is not a mapping."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _document(text: str, file: Path) -> ForeignSettings:
    content = yaml.safe_load(text)  # reads JSON, too
    if not isinstance(content, dict):
        raise ValueError("expected keys and values")
    settings = ForeignSettings.of(
        foreign_programs.of_document(content, foreign_programs.shown(file))
    )
    if settings.trainer == "verl":
        _hydra(settings, content)
    else:
        settings.values = {str(key): _number(value) for key, value in content.items()}
    return settings


def _hydra(settings: ForeignSettings, content: Mapping[str, Any]) -> None:
    for key, value in leaves(content):
        if isinstance(value, str) and "${" in value:
            settings.unresolved[key] = f"an interpolation: {value}"
        elif key == "defaults":
            files = "the files in its defaults list were not read"
            settings.remarks.append(f"{files}, verl's own defaults taken: {value}")
        elif not key.startswith("hydra."):
            settings.values[key] = _number(value)


def _toml(text: str, _file: Path) -> ForeignSettings:
    content = tomllib.loads(text)
    settings = ForeignSettings.of(foreign_programs.of_toml(content))
    settings.values = dict(leaves(content))
    algorithm = settings.values.get("orchestrator.algo.type", "grpo")
    for source in settings.values.get("orchestrator.train.source", []):
        own = source.get("algo", {}) if isinstance(source, dict) else {}
        if own.get("type", algorithm) != algorithm:
            name = source.get("name")
            raise OtherProgram(
                f"it trains by several losses: {algorithm}, and {own['type']} for the source {name}"
            )
        if own:
            settings.warnings.append(
                f"the algo of the source {source.get('name')!r} is not part of this measurement"
            )
    return settings


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 as text; Hydra, argparse and YAML 1.2 read it as a number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _script(text: str, _file: Path) -> ForeignSettings:
    tree = ast.parse(text)
    settings = ForeignSettings.of(foreign_programs.of_script(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "GRPOConfig":
            for argument in node.keywords:
                name = argument.arg or "**"
                try:
                    settings.set(name, ast.literal_eval(argument.value))
                except (ValueError, TypeError):  # (an unhashable key of a literal)
                    settings.unresolved[name] = f"not a literal: {ast.unparse(argument)}"
    return settings


# --- shell
# ----------------------------------------------------------------------------------------------


def _shell(text: str, file: Path) -> ForeignSettings:
    """Overrides and flags of the training that a script starts."""
    run = commands(text)
    trainings, others = _trainings(run)
    if len({program.trainer for _, program in trainings}) > 1:
        names = ", ".join(program.entry for _, program in trainings)
        raise OtherProgram(f"it starts several programs: {names}")
    if not trainings:
        # Without a program that is known, the names of keys are evidence.
        idle = [command for command, _ in others]
        named = [(command, _by_keys(command)) for command in run if command not in idle]
        trainings = [(command, program) for command, program in named if program is not None]
    if not trainings and others:
        raise others[0][1]
    if not trainings:
        raise _unknown_programs(run)
    settings = ForeignSettings.of(trainings[0][1])
    for command, program in trainings:
        if settings.trainer == "verl":
            _overrides(command.words, settings)
        else:
            _flags(list(program.arguments), settings)
    if settings.trainer == "verl":
        _configuration(trainings[0][0].words, settings, file)
        _unsaid_kl(settings)
        _unreached(run, [command for command, _ in trainings], settings)
    return settings


def _trainings(
    run: list[Command],
) -> tuple[list[tuple[Command, Program]], list[tuple[Command, NoTraining]]]:
    """The commands that start a program which is read, and those that train nothing with what is to
    be said of them. Raises OtherProgram."""
    trainings = list[tuple[Command, Program]]()
    others = list[tuple[Command, NoTraining]]()
    for command in run:
        try:
            program = foreign_programs.of_command(command.words)
        except NoTraining as error:
            others.append((command, error))
            continue
        if program is not None:
            trainings.append((command, program))
    return trainings, others


def _by_keys(command: Command) -> Program | None:
    """The program of a command by its flags and overrides. Raises OtherProgram."""
    foreign_programs.refuse_flags(command.words)
    foreign_programs.refuse_overrides(command.words)
    keys = [match[1] for word in command.words if (match := _OVERRIDE.fullmatch(word))]
    if not any(key.startswith("actor_rollout_ref.") for key in keys):
        return None
    module = foreign_programs.unknown_entry(command.words)
    if module:
        raise OtherProgram(
            f"which program it starts ({plain(module)}) depends on a branch or on the environment: "
            "write the name out"
        )
    script = foreign_programs.script_of(command.words)
    return Program("verl", script, "it has overrides of actor_rollout_ref")


def _unknown_programs(run: list[Command]) -> ValueError:
    """What is said of a script that starts no program which is known."""
    programs = [foreign_programs.started(command.words) for command in run]
    names = list(dict.fromkeys(plain(name) for name in programs if name))
    if names:
        return OtherProgram(f"nothing says what its {', '.join(names[-3:])} trains")
    return ValueError(
        "no settings were found; accepted are overrides of verl (a.b=value), GRPOConfig's "
        "arguments of TRL, tables of prime-rl and flags of open_instruct/grpo*.py"
    )


def _overrides(words: list[str], settings: ForeignSettings) -> None:
    for word in words:
        override = _OVERRIDE.fullmatch(word)
        if override:
            _assign(settings, override[1], override[2])
        elif not is_known(word) and not word.startswith("-"):
            settings.remarks.append(f"the arguments in {plain(word)} are not known")


def _configuration(words: list[str], settings: ForeignSettings, file: Path) -> None:
    """Read the Hydra configuration that a command names. Raises OtherProgram: it is not there."""
    named: dict[str, str] = {}
    for position, word in enumerate(words):
        match = _CONFIG_FLAG.fullmatch(word)
        if match:
            following = words[position + 1 : position + 2]
            named[match[1]] = match[2] if match[2] is not None else "".join(following)
    name = named.get("name", "").removesuffix(".yaml")
    if not name:
        return
    settings.configuration = name
    if not is_known(name):
        raise OtherProgram(
            f"which configuration its command names ({plain(name)}) depends on a branch or on the "
            "environment, and decides the loss, too: write the name out"
        )
    if name in VERL_CONFIGURATIONS:
        return
    if _OTHER_TRAINING.search(name):
        raise OtherProgram(f"its configuration {name} is of another training")
    path = _below(file, named.get("path", "config"), name)
    if path is None:
        raise OtherProgram(
            f"its configuration {name} is not there, and decides the loss, too: put the file "
            f"{name}.yaml beside it"
        )
    content = yaml.safe_load(path.read_text("utf-8"))
    base = ForeignSettings("verl")
    _hydra(base, content if isinstance(content, dict) else {})
    settings.values = base.values | settings.values
    settings.unresolved = {
        key: why for key, why in base.unresolved.items() if key not in settings.values
    } | settings.unresolved
    settings.remarks.append(f"the configuration {path} was read under the command")


def _below(file: Path, folder: str, name: str) -> Path | None:
    """The configuration beside the script, or in the folder of this name below one of those that
    the script is in."""
    relative = re.sub(r"^(\$\{?\w+\}?|\$\([^()]*\)|\.)?/*", "", folder)
    places = [file.parent]
    places += [parent / relative for parent in file.resolve().parents]
    for place in places:
        path = place / f"{name}.yaml"
        if path.is_file():
            return path
    return None


def _unsaid_kl(settings: ForeignSettings) -> None:
    """A coefficient of a KL in the reward without the switch: before 0.3 verl had none."""
    values = settings.values
    if not values.get("algorithm.kl_ctrl.kl_coef") or values.get(f"{_ACTOR}use_kl_loss"):
        return
    if _KL_IN_REWARD not in values:
        settings.unresolved[_KL_IN_REWARD] = (
            "algorithm.kl_ctrl.kl_coef is set, and verl before 0.3 put the KL into the reward "
            "without being told"
        )


def _unreached(run: list[Command], trainings: list[Command], settings: ForeignSettings) -> None:
    """Overrides that stand alone: a line before them does not end in a backslash."""
    for command in run:
        keys = [match[1] for word in command.words if (match := _OVERRIDE.fullmatch(word))]
        if keys and command not in trainings:
            settings.warnings.append(
                f"{len(keys)} overrides do not reach the command, whose line ends before them: "
                f"{keys[0]}, ..."
            )


def _flags(words: list[str], settings: ForeignSettings) -> None:
    name = ""
    values = list[str]()
    for word in [*words, "--end"]:
        flag = _FLAG.fullmatch(word)
        if not flag:
            if not name and not is_known(word):
                settings.remarks.append(f"the arguments in {plain(word)} are not known")
            values.append(word)
            continue
        if name:
            _assign(settings, name, " ".join(values) if values else "true")
        name = flag[1]
        values = [flag[2]] if flag[2] is not None else []


def _assign(settings: ForeignSettings, key: str, text: str) -> None:
    if not is_known(text):
        settings.unresolved[key] = f"not a plain value: {plain(text)}"
        return
    try:
        settings.set(key, _number(yaml.safe_load(plain(text))))
    except yaml.YAMLError:
        settings.set(key, plain(text))
