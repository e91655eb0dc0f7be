"""What a file, folder, hub id, TRL script or verl command names: its data, model, prompt, rewards
and settings, as data."""

import ast
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.auditing.foreign_settings import ForeignSettings, read_settings
from rpg.errors import UserError

DATA = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
HUB = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.-]*))?(?::(.+))?")
"""An id on the hub, with a configuration and a split where they are given:
`openai/gsm8k:main:test`."""
_HELD_OUT = re.compile(r"test|valid|dev|eval|held", re.IGNORECASE)
_TABLES = Path(__file__).with_name("settings.toml")
_KNOWN: dict[str, dict[str, Any]] = tomllib.loads(_TABLES.read_text("utf-8"))
"""What is taken over, by trainer, its defaults, and the advantages and losses that have a
counterpart."""


@dataclass
class Source:
    """What there is to adopt. `train` and `held_out` are files or hub ids; settings: dotted field
    of a run -> value; prompt, template and system: the column asked for and the messages around it,
    where a script states them; rewards: functions in `code`, with their weights; remarks: what was
    not taken over, and why."""

    name: str
    train: list[str]
    held_out: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    template: str | None = None
    system: str | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    code: str = ""
    remarks: list[str] = field(default_factory=list)
    foreign: ForeignSettings | None = None
    """The settings of another trainer, where it names one."""

    def counterpart(
        self, values: dict[str, Any], key: str, table: str, default: str, otherwise: str
    ) -> str:
        """What a table of settings.toml has for the value of `key`; a remark where it has nothing."""
        name = str(values.get(key, default))
        if name not in _KNOWN[table]:
            self.remarks.append(
                f"{key}={name} has no counterpart that is taken over: {otherwise} is taken"
            )
        return str(_KNOWN[table].get(name, otherwise))


def read_source(given: str) -> Source:
    """What `given` names; scripts are read as text and never executed. Raises UserError: no such
    thing, or no data in it."""
    path = Path(given).expanduser()
    if path.is_dir():
        files = sorted(str(file) for file in path.iterdir() if file.suffix.lower() in DATA)
        held_out = [file for file in files if _HELD_OUT.search(Path(file).stem)]
        source = Source(
            path.resolve().name, [file for file in files if file not in held_out], held_out
        )
    elif path.suffix in (".py", ".sh") and path.is_file():
        source = _Script(path).read() if path.suffix == ".py" else _verl(path)
    elif path.is_file() and path.suffix.lower() in DATA:
        source = Source(path.stem, [str(path)])
    elif (hub := HUB.fullmatch(given)) and path.suffix not in (*DATA, ".py", ".sh"):
        source = Source(hub[1].rpartition("/")[2], [given])
    else:
        kinds = f"{', '.join(DATA)}, a folder of these, a hub id, .py, .sh"
        raise UserError(f"{given}: is not there, or of no kind that is read: {kinds}")
    if not source.train:
        remarks = "".join(f"\n  {line}" for line in source.remarks)
        expected = f"expected files that end in {', '.join(DATA)}, or a hub id"
        raise UserError(f"{given}: names no data; {expected}{remarks}")
    return source


def _taken(foreign: ForeignSettings, name: str) -> Source:
    """The trainer's settings that have a counterpart, its defaults where nothing is said; a remark
    about all others that are not read elsewhere, and about what only the proposal says."""
    table = _KNOWN[foreign.trainer]
    defaults = _KNOWN[f"{foreign.trainer}-defaults"]
    values = {
        key: _SAME.get(f"{key}={value}", value)
        for key, value in foreign.values.items()
        if key in table
    }
    given = {
        table[key]: value for key, value in values.items() if value is not None
    }  # None: nothing said
    source = Source(name, [], settings=defaults | given, foreign=foreign)
    source.remarks.append(f"read as {foreign.trainer}: {foreign.evidence}")
    proposed = sorted({"training.steps", "rollout.group_size"} - source.settings.keys())
    if proposed:
        source.remarks.append(f"proposed, not read from {foreign.trainer}: {', '.join(proposed)}")
    read = table.keys() | set(_KNOWN["read"][foreign.trainer])
    if foreign.trainer == "verl":
        read |= _TRANSLATED.keys()
    others = sorted(foreign.values.keys() - read)
    if others:
        source.remarks.append(f"settings that are not taken over: {', '.join(others)}")
    source.remarks += [f"{key} is not taken over: {why}" for key, why in foreign.unresolved.items()]
    source.remarks += [*foreign.warnings, *foreign.remarks]
    return source


def _verl(path: Path) -> Source:
    foreign = read_settings(path)
    if foreign.trainer != "verl":
        why = (
            f"{path}: starts {foreign.trainer}; accepted are commands of verl (overrides a.b=value)"
        )
        raise UserError(why)
    source = _taken(foreign, path.stem)
    for key, files in (("train", source.train), ("val", source.held_out)):
        value = foreign.values.get(f"data.{key}_files", [])
        files += [value] if isinstance(value, str) else map(str, value)
    settings = source.settings
    values = foreign.values
    name = source.counterpart(values, "algorithm.adv_estimator", "advantages", "gae", "grpo")
    settings["algorithm.name"] = name
    if name in ("grpo", "grpo-passk"):
        settings["algorithm.advantage.std"] = values.get("algorithm.norm_adv_by_std_in_grpo", True)
    _verl_policy_loss(settings, values)
    _verl_kl(source, values)
    _verl_correction(settings, values)
    _refuse_untranslated(path, foreign)
    sizes = ("training.mini_batch_prompts", "training.prompts_per_step")
    settings[sizes[0]] = min(settings[name] for name in sizes)
    return source


def _verl_policy_loss(settings: dict[str, Any], values: dict[str, Any]) -> None:
    """verl's loss_mode; `vanilla` is what verl-defaults says."""
    if values.get(_LOSS_MODE) != "gspo":
        return
    settings |= {"algorithm.surrogate": "gspo", "algorithm.ratio": "sequence"}
    settings["algorithm.clip.c"] = None
    if settings["algorithm.name"] == "grpo":
        settings["algorithm.name"] = "gspo"


def _verl_kl(source: Source, values: dict[str, Any]) -> None:
    """The KL in verl's loss or reward, under whichever advantages."""
    settings = source.settings
    actor = "actor_rollout_ref.actor."
    if values.get(f"{actor}use_kl_loss"):
        kind = source.counterpart(values, f"{actor}kl_loss_type", "estimators", "low_var_kl", "k3")
        settings["algorithm.kl"] = {"type": "loss", "estimator": kind}
    elif values.get("algorithm.use_kl_in_reward"):
        kind = source.counterpart(values, "algorithm.kl_penalty", "estimators", "kl", "k1")
        settings["algorithm.kl"] = {"type": "reward", "estimator": kind}
        settings["algorithm.beta"] = values.get("algorithm.kl_ctrl.kl_coef", 0.001)
    else:
        settings["algorithm.beta"] = 0.0
        return
    settings["algorithm.reference"] = "fixed"


def _verl_correction(settings: dict[str, Any], values: dict[str, Any]) -> None:
    """verl's weights for samples of an engine that rounds otherwise."""
    level = values.get(f"{_CORRECTION}rollout_is")
    if level in ("token", "sequence"):
        cap = values.get(f"{_CORRECTION}rollout_is_threshold", 2.0)
        settings["algorithm.rollout_correction"] = {"type": "truncate", "level": level, "cap": cap}


def _refuse_untranslated(path: Path, foreign: ForeignSettings) -> None:
    """A setting that decides the loss is translated, or the whole is refused. Raises UserError."""
    values = foreign.values
    wrong = [f"{key} ({foreign.unresolved[key]})" for key in foreign.unresolved if _decides(key)]
    read = _KNOWN["verl"].keys() | set(_KNOWN["read"]["verl"])
    for key, value in values.items():
        if value is None or key in read or not _decides(key):
            continue
        if value not in _TRANSLATED.get(key, ()):
            wrong.append(f"{key}={value}")
    if values.get("actor_rollout_ref.actor.use_kl_loss") and values.get(_IN_REWARD):
        wrong.append("a KL in the loss and one in the reward")
    if wrong:
        raise UserError(
            f"{path}: decides the loss, and has no counterpart here: {', '.join(wrong)}. Nothing "
            "was proposed; rpg audit --config says what this loss does"
        )


def _decides(key: str) -> bool:
    """Whether a setting of verl decides the loss."""
    return _DECIDES.match(key) is not None


_LOSS_MODE = "actor_rollout_ref.actor.policy_loss.loss_mode"
_CORRECTION = "algorithm.rollout_correction."
_IN_REWARD = "algorithm.use_kl_in_reward"
_DECIDES = re.compile(
    r"algorithm\.|distillation\.enabled|"
    r"actor_rollout_ref\.actor\.(clip_ratio_|tau_|policy_loss|loss_|entropy_coeff|use_kl|kl_)"
)


class _Numbers:
    """Accepts every number."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)


_TRANSLATED: dict[str, Any] = {
    _LOSS_MODE: ("vanilla", "gspo"),
    _IN_REWARD: (True, False),
    "algorithm.kl_penalty": ("kl", "k1", "mse", "k2", "low_var_kl", "k3"),
    "algorithm.kl_ctrl.type": ("fixed",),
    "algorithm.kl_ctrl.kl_coef": _Numbers(),
    "algorithm.gamma": (1, 1.0),
    "algorithm.lam": (1, 1.0),
    f"{_CORRECTION}rollout_is": ("token", "sequence"),
    f"{_CORRECTION}rollout_is_threshold": _Numbers(),
    f"{_CORRECTION}rollout_is_batch_normalize": (False,),
    f"{_CORRECTION}bypass_mode": (False,),
    "algorithm.filter_groups.enable": (False,),
    "distillation.enabled": (False,),
}
"""Setting of verl that decides the loss -> the values that are taken over, beside those of
settings.toml."""

_SAME = {
    "lr_scheduler_type=constant_with_warmup": "constant",
    "top_k=0": None,
    "max_steps=-1": None,
}
"""Settings of other trainers that have another value here."""


class _Script:
    """A script for TRL as text: the values, calls and functions in it."""

    def __init__(self, path: Path):
        self.path, self.given = path, read_settings(path)
        self.text = path.read_text("utf-8")
        self.nodes = list(ast.walk(tree := ast.parse(self.text)))
        self.assigned: dict[str, ast.expr] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                self.assigned |= {
                    name.id: node.value for name in node.targets if isinstance(name, ast.Name)
                }
        self.top: dict[str, ast.stmt] = {}
        for statement in tree.body:
            match statement:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.top[name] = statement
                case ast.Assign(targets=targets):
                    nodes = [node for target in targets for node in ast.walk(target)]
                    names = [node.id for node in nodes if isinstance(node, ast.Name)]
                    self.top |= dict.fromkeys(names, statement)
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    for alias in aliases:  # of an import of several names, the one that is needed
                        alone = type(statement)(**(vars(statement) | {"names": [alias]}))
                        alone = ast.copy_location(alone, statement)
                        self.top[(alias.asname or alias.name).partition(".")[0]] = alone

    def read(self) -> Source:
        configs = self.calls("GRPOConfig")
        unread = {name: self.value(node) for call in configs for name, node in _keywords(call)}
        for name in [name for name in self.given.unresolved if unread.get(name) is not None]:
            self.given.values[name] = unread[name]
            del self.given.unresolved[name]
        values = self.given.values
        source = _taken(self.given, self.path.stem)
        average = source.counterpart(values, "loss_type", "losses", "dapo", "token-mean")
        group = source.settings["rollout.group_size"]
        rows = int(values.get("per_device_train_batch_size", 8))
        parts = int(values.get("gradient_accumulation_steps", 1))
        drawn = (
            (values.get("steps_per_generation") or 0) * rows
            or values.get("generation_batch_size")
            or 0
        )
        mini = max(1, rows * parts // group)
        updates = max(
            1, int(drawn) // (rows * parts)
        )  # TRL counts these as steps; for us they are one
        remark = "prompts_per_step and mini_batch_prompts are those of one device: multiply them"
        source.remarks.append(remark)
        source.settings = {
            "algorithm.name": "grpo",
            "algorithm.loss_agg_mode": average,
            **source.settings,
            "training.prompts_per_step": updates * mini,
            "training.mini_batch_prompts": mini,
        }
        scale = values.get("scale_rewards", "group")
        source.settings["algorithm.advantage.std"] = scale not in (False, "none")
        source.remarks += ["scale_rewards 'batch' is not taken over: a group is scaled"] * (
            scale == "batch"
        )
        low = source.settings.get("algorithm.clip.low")
        if low is not None:
            source.settings["algorithm.clip.high"] = (
                source.settings.get("algorithm.clip.high") or low
            )
        steps = source.settings.get("training.steps")
        if steps is not None:
            updates *= source.settings.get("training.epochs", 1)
            source.settings["training.steps"] = -(-steps // updates)
        sets = [name for call in self.calls("load_dataset") for name in self._data(call)]
        source.train, source.held_out = sets[:1], sets[1:]
        methods = (
            "map",
            "filter",
            "select",
            "train_test_split",
        )  # of a data set; map is also a function
        calls = [call for name in methods for call in self.calls(name)]
        for call in (call for call in calls if isinstance(call.func, ast.Attribute)):
            shown = " ".join(ast.unparse(call).split())
            source.remarks.append(f"line {call.end_lineno}: not executed: ...{shown[-60:]}")
        self._trainer(source, values.get("reward_weights") or [])
        self._messages(source)
        return source

    def calls(self, name: str) -> list[ast.Call]:
        """Of a function or method of this name, in the order of the script."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        named = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == name]
        return sorted(named, key=lambda call: call.lineno)

    def meant(self, node: ast.expr) -> ast.expr:
        """What a name was assigned, where the script says it."""
        return self.assigned.get(node.id, node) if isinstance(node, ast.Name) else node

    def value(self, node: ast.expr | None) -> Any:
        """A literal, or the literal that a name stands for; None where it is neither."""
        try:
            return ast.literal_eval(self.meant(node)) if node else None
        except (ValueError, TypeError):
            return None

    def _data(self, call: ast.Call) -> list[str]:
        """The files of a call of load_dataset, or its hub id with what else it names."""
        named = {name: self.value(node) for name, node in _keywords(call)}
        files = named.get("data_files")
        if files:
            files = [files] if isinstance(files, str) else files
            names = files.values() if isinstance(files, dict) else files
            return [str(self.path.parent / name) for name in names]
        name, config = ([self.value(node) for node in call.args] + [None, None])[:2]
        parts = [
            name or named.get("path"),
            config or named.get("name") or "",
            named.get("split") or "",
        ]
        return [":".join(map(str, parts)).rstrip(":")] if parts[0] else []

    def _trainer(self, source: Source, weights: list[Any]) -> None:
        """The model and the reward functions of the call that makes a trainer."""
        for call in (node for node in self.nodes if isinstance(node, ast.Call)):
            arguments = dict(_keywords(call))
            if "reward_funcs" not in arguments:
                continue
            model = self.meant(arguments["model"]) if "model" in arguments else None
            if isinstance(model, ast.Call) and ast.unparse(model.func).endswith("from_pretrained"):
                model = model.args[0] if model.args else None
            if isinstance(path := self.value(model), str):
                local = self.path.parent / path
                source.settings["model.path"] = str(local) if local.is_dir() else path
            functions = self.meant(arguments["reward_funcs"])
            parts = functions.elts if isinstance(functions, ast.List | ast.Tuple) else [functions]
            for number, part in enumerate(parts):
                if isinstance(part, ast.Name) and part.id in self.top:
                    source.rewards[part.id] = (
                        float(weights[number]) if number < len(weights) else 1.0
                    )
                else:
                    remark = f"the reward {ast.unparse(part)} is no function of the script: not taken over"
                    source.remarks.append(remark)
            read = {
                "model",
                "reward_funcs",
                "args",
                "train_dataset",
                "eval_dataset",
                "processing_class",
            }
            others = sorted(arguments.keys() - read)
            if others:
                remark = f"arguments of the trainer that are not taken over: {', '.join(others)}"
                source.remarks.append(remark)
        source.code = self._needed(list(source.rewards))

    def _needed(self, names: list[str]) -> str:
        """The source of these functions and of what they name, in the order of the script."""
        nodes: set[ast.stmt] = set()
        while names:
            node = self.top.get(names.pop())
            if node and node not in nodes:
                nodes.add(node)
                names += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        return "\n\n\n".join(
            self._segment(node) for node in sorted(nodes, key=lambda node: node.lineno)
        )

    def _segment(self, node: ast.stmt) -> str:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return ast.unparse(node)
        decorators = [f"@{ast.unparse(part)}" for part in getattr(node, "decorator_list", [])]
        return "\n".join([*decorators, ast.get_source_segment(self.text, node) or ""])

    def _messages(self, source: Source) -> None:
        """The system message, and template and column of the user's message, where dictionaries
        state them."""
        for node in (node for node in self.nodes if isinstance(node, ast.Dict)):
            entry = {
                self.value(key): value
                for key, value in zip(node.keys, node.values, strict=True)
                if key
            }
            role = self.value(entry.get("role"))
            content = entry.get("content")
            if role == "system":
                source.system = self.value(content)
            elif role == "user" and content:
                columns: list[str] = []
                text = self._template(content, columns)
                source.template = text if len(columns) == 1 else "{prompt}"
                source.prompt = columns[0] if len(columns) == 1 else None
                if text is None or len(columns) != 1:
                    what = f"line {node.lineno}: the user's message"
                    source.remarks.append(f"{what} is not taken over: {ast.unparse(content)}")

    def _template(self, node: ast.expr, columns: list[str]) -> str | None:
        """Text with `{prompt}` for a column, whose name is added to `columns`; None where it is
        made in another way."""
        parts = (
            [node.value] if isinstance(node, ast.FormattedValue) else getattr(node, "values", [])
        )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.left, node.right]
        if isinstance(node, ast.Subscript) and isinstance(key := self.value(node.slice), str):
            columns.append(key)
            return "{prompt}"
        texts = [self._template(part, columns) for part in parts] or [self.value(node)]
        return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _keywords(call: ast.Call) -> list[tuple[str, ast.expr]]:
    return [(argument.arg, argument.value) for argument in call.keywords if argument.arg]
