"""What a file, folder, hub id, TRL script or verl command names: its data, model, prompt, rewards and settings, as data."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.auditing.foreign_settings import read_settings
from rpg.errors import UserError

DATA = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_HELD_OUT = re.compile(r"test|valid|dev|eval|held", re.IGNORECASE)
_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_TRL = {
    "max_steps": "training.steps", "learning_rate": "training.optimizer.learning_rate",
    "lr_scheduler_type": "training.optimizer.schedule", "warmup_steps": "training.optimizer.warmup_steps",
    "weight_decay": "training.optimizer.weight_decay", "num_iterations": "training.epochs",
    "num_generations": "rollout.group_size", "max_completion_length": "rollout.max_response_tokens",
    "max_prompt_length": "rollout.max_prompt_tokens", "temperature": "rollout.temperature", "top_p": "rollout.top_p",
    "top_k": "rollout.top_k", "min_p": "rollout.min_p", "beta": "algorithm.beta", "epsilon": "algorithm.clip.low",
    "epsilon_high": "algorithm.clip.high",
}  # fmt: skip
_VERL = {
    "actor_rollout_ref.model.path": "model.path", "actor_rollout_ref.rollout.n": "rollout.group_size",
    "actor_rollout_ref.rollout.temperature": "rollout.temperature", "data.max_prompt_length": "rollout.max_prompt_tokens",
    "data.max_response_length": "rollout.max_response_tokens", "data.train_batch_size": "training.prompts_per_step",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "training.mini_batch_prompts",
    "actor_rollout_ref.actor.optim.lr": "training.optimizer.learning_rate",
    "actor_rollout_ref.actor.kl_loss_coef": "algorithm.beta", "trainer.total_training_steps": "training.steps",
    "trainer.test_freq": "evaluation.every",
}  # fmt: skip
_ADVANTAGES = {"grpo": "grpo", "rloo": "rloo", "reinforce_plus_plus": "reinforce-pp", "gae": "ppo"}
_LOSSES = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
"""TRL's loss types differ in how they average; dynamic sampling and the rest of DAPO are not among TRL's."""


@dataclass
class Source:
    """`train` and `held_out`: files, or ids of data sets on the hub. settings: dotted field of a run -> value. prompt: the
    column asked for; template and system: the messages around it, where a script states them. rewards: functions in `code`, with their weights. remarks:
    what was not taken over, and why."""

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


def read_source(given: str) -> Source:
    """What `given` names; scripts are read as text and never executed. Raises UserError: there is no such thing, or no data
    in it."""
    path = Path(given).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in DATA)
        held_out = [str(file) for file in files if _HELD_OUT.search(file.stem)]
        source = Source(path.resolve().name, [str(f) for f in files if str(f) not in held_out], held_out)
    elif path.suffix == ".py" and path.is_file():
        source = _trl(path)
    elif path.suffix == ".sh" and path.is_file():
        source = _verl(path)
    elif path.is_file():
        source = Source(path.stem, [given])
    elif _HUB.fullmatch(given) and path.suffix not in (*DATA, ".py", ".sh"):
        source = Source(given.rpartition("/")[2], [given])
    else:
        raise UserError(
            f"{given}: no such file; expected {', '.join(DATA)}, a folder of these, a hub id, a .py or a .sh"
        )
    if not source.train:
        raise UserError(f"{given}: names no data; expected files that end in {', '.join(DATA)}, or a hub id")
    return source


def _verl(path: Path) -> Source:
    given = read_settings(path)
    if given.trainer != "verl":
        raise UserError(
            f"{path}: starts {given.trainer}; accepted are commands of verl (overrides a.b=value)"
        )
    files = {key: given.values.get(f"data.{key}_files", []) for key in ("train", "val")}
    train, held_out = ([str(f) for f in ([v] if isinstance(v, str) else v)] for v in files.values())
    source = Source(path.stem, train, held_out)
    _take(source, given.values, _VERL, {"data.train_files", "data.val_files", "algorithm.adv_estimator"})
    source.settings["algorithm.name"] = _ADVANTAGES.get(
        str(given.values.get("algorithm.adv_estimator")), "grpo"
    )
    source.remarks += [f"{key}: {why}" for key, why in given.unresolved.items()]
    return source


def _trl(path: Path) -> Source:
    given, tree = read_settings(path), ast.parse(path.read_text("utf-8"))
    reader = _Script(tree)
    values = dict(given.values)
    for node in reader.calls("GRPOConfig"):
        values |= {
            k.arg: reader.value(k.value) for k in node.keywords if k.arg and reader.value(k.value) is not None
        }
    source = Source(path.stem, [])
    read = "loss_type per_device_train_batch_size gradient_accumulation_steps reward_weights"
    _take(source, values, _TRL, set(read.split()))
    loss = str(values.get("loss_type", "dapo"))  # TRL 1.16's default, as that of beta below
    name = "dr-grpo" if loss == "dr_grpo" else "grpo"
    source.settings = {"algorithm.name": name, "algorithm.beta": 0.0, **source.settings}
    if source.settings["algorithm.beta"] > 0:
        source.settings["algorithm.reference"] = "fixed"
    if loss in _LOSSES:
        source.settings["algorithm.loss_agg_mode"] = _LOSSES[loss]
    else:
        source.remarks.append(f"loss_type {loss!r} is not known here: GRPO stands for it")
    if source.settings.get("training.steps", 1) < 1:
        del source.settings["training.steps"]
    group = int(values.get("num_generations", 8))
    rows = int(values.get("per_device_train_batch_size", 8)) * int(
        values.get("gradient_accumulation_steps", 1)
    )
    source.settings |= {"training.prompts_per_step": max(1, rows // group), "rollout.group_size": group}
    source.settings["training.mini_batch_prompts"] = source.settings["training.prompts_per_step"]
    for node in reader.calls("load_dataset"):
        source.train += reader.data(node, path.parent)
    source.train, source.held_out = source.train[:1], source.train[1:]
    for node in reader.calls("map"):
        source.remarks.append(
            f"line {node.lineno}: {ast.unparse(node)[:60]}... is not executed; check columns and template"
        )
    _trainer(source, reader, path.parent, values.get("reward_weights") or [])
    source.code = reader.needed(source.rewards)
    source.system, asked = reader.messages()
    if asked:
        source.template, source.prompt = asked
    return source


def _trainer(source: Source, reader: _Script, folder: Path, weights: list[Any]) -> None:
    """The model and the reward functions of the call that makes a trainer."""
    for call in (node for node in ast.walk(reader.tree) if isinstance(node, ast.Call)):
        arguments = {k.arg: k.value for k in call.keywords}
        if "reward_funcs" not in arguments:
            continue
        if isinstance(model := reader.value(arguments.get("model", ast.Constant(None))), str):
            local = folder / model
            source.settings["model.path"] = str(local.resolve()) if local.is_dir() else model
        functions = [n.id for n in ast.walk(arguments["reward_funcs"]) if isinstance(n, ast.Name)]
        source.rewards = dict(zip(functions, map(float, weights or [1.0] * len(functions)), strict=False))


def _take(source: Source, values: dict[str, Any], table: dict[str, str], read: set[str]) -> None:
    source.settings = {table[key]: value for key, value in values.items() if key in table}
    if others := sorted(values.keys() - table.keys() - read):
        source.remarks.append(f"settings that are not taken over: {', '.join(others)}")


class _Script:
    """A Python script as text: the values, calls and functions in it."""

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.top: dict[str, ast.stmt] = {}
        for node in tree.body:
            names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
            names += [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            if isinstance(node, ast.Import | ast.ImportFrom):
                names += [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
            self.top |= dict.fromkeys(names, node)

    def calls(self, name: str) -> list[ast.Call]:
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return [node for node in nodes if ast.unparse(node.func).rpartition(".")[2] == name]

    def value(self, node: ast.expr) -> Any:
        """A literal, or the literal that a name of the module stands for; None where it is neither."""
        if isinstance(node, ast.Name) and isinstance(at := self.top.get(node.id), ast.Assign):
            node = at.value
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            return None

    def data(self, node: ast.Call, folder: Path) -> list[str]:
        """The files of a call of load_dataset, or its hub id."""
        files = next((self.value(k.value) for k in node.keywords if k.arg == "data_files"), None)
        files = list(files.values()) if isinstance(files, dict) else files
        names = [files] if isinstance(files, str) else files or [self.value(a) for a in node.args[:1]]
        return [str(folder / name) if files else name for name in names if isinstance(name, str)]

    def needed(self, names: dict[str, float]) -> str:
        """The source of these functions and of what they name, in the order of the script."""
        nodes: set[ast.stmt] = set()
        open_ = [self.top[name] for name in names if name in self.top]
        while open_:
            if (node := open_.pop()) not in nodes:
                nodes.add(node)
                used = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
                open_ += [self.top[name] for name in used if name in self.top]
        return "\n\n\n".join(ast.unparse(node) for node in self.tree.body if node in nodes)

    def messages(self) -> tuple[str | None, tuple[str, str] | None]:
        """The system message, and (template, column) of the user's message, where a dictionary states them."""
        system, asked = None, None
        for node in (node for node in ast.walk(self.tree) if isinstance(node, ast.Dict)):
            entry = {self.value(k): v for k, v in zip(node.keys, node.values, strict=True) if k}
            role, content = (entry.get(name, ast.Constant(None)) for name in ("role", "content"))
            if self.value(role) == "system":
                system = self.value(content)
            elif self.value(role) == "user":
                columns: list[str] = []
                text = self._template(content, columns)
                asked = (text, columns[0]) if text and len(columns) == 1 else asked
        return system, asked

    def _template(self, node: ast.expr, columns: list[str]) -> str | None:
        """Text with `{prompt}` for a column, whose name is added to `columns`; None where it is made in another way."""
        parts = [node.value] if isinstance(node, ast.FormattedValue) else getattr(node, "values", [])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.left, node.right]
        if isinstance(node, ast.Subscript) and isinstance(key := self.value(node.slice), str):
            columns.append(key)
            return "{prompt}"
        texts = [self._template(part, columns) for part in parts] or [self.value(node)]
        return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None
