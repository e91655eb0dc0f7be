"""A script that trains with TRL's GRPOTrainer, as text: its data, model, messages, reward functions
and settings. Nothing in it is executed."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpg.auditing.foreign_settings import read_settings
from rpg.interop.adopting.taken_over import TABLES, Source, taken_over

_OF_DATA = ("map", "filter", "select", "train_test_split")
"""Methods of a data set that change its rows; map is also a function."""
_READ_ARGUMENTS = frozenset(
    "model reward_funcs args train_dataset eval_dataset processing_class".split()
)
_OTHER_DATA = frozenset("tools environment_factory rollout_func".split())
"""Arguments of the trainer with which the responses come from elsewhere."""


def read_script(path: Path) -> Source:
    """What a script names. Raises UserError."""
    return _Script(path).read()


class _Script:
    """The values, calls and functions in a script."""

    def __init__(self, path: Path):
        self.path = path
        self.given = read_settings(path)
        self.text = path.read_text("utf-8")
        tree = ast.parse(self.text)
        self.nodes = list(ast.walk(tree))
        self.assigned: dict[str, ast.expr] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.assigned[target.id] = node.value
        self.top: dict[str, ast.stmt] = {}
        for statement in tree.body:
            self._note_names(statement)

    def _note_names(self, statement: ast.stmt) -> None:
        """The names that a statement at the top of the script defines."""
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                self.top[name] = statement
            case ast.Assign(targets=targets):
                for target in targets:
                    for node in ast.walk(target):
                        if isinstance(node, ast.Name):
                            self.top[node.id] = statement
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                # Of an import of several names, the one that is needed.
                for alias in aliases:
                    alone = type(statement)(**(vars(statement) | {"names": [alias]}))
                    name = (alias.asname or alias.name).partition(".")[0]
                    self.top[name] = ast.copy_location(alone, statement)

    def read(self) -> Source:
        self._resolve_names()
        values = self.given.values
        source = taken_over(self.given, self.path, TABLES["only"]["trl"])
        _take_loss(source, values)
        _take_correction(source, values)
        _take_steps(source, values)
        _take_optimizer(source, values)
        _note_untranslated(source)
        self._take_data(source)
        self._take_trainer(source, values.get("reward_weights") or [])
        self._take_messages(source)
        source.refuse_untranslated(self.path)
        return source

    def _resolve_names(self) -> None:
        """Settings whose value is a name that the script assigns a literal."""
        unread = {}
        for call in self.calls("GRPOConfig"):
            for name, node in _keywords(call):
                unread[name] = self.value(node)
        for name in list(self.given.unresolved):
            if unread.get(name) is not None:
                self.given.values[name] = unread[name]
                del self.given.unresolved[name]

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
        if node is None:
            return None
        try:
            return ast.literal_eval(self.meant(node))
        except (ValueError, TypeError):
            return None

    def _take_data(self, source: Source) -> None:
        sets = [name for call in self.calls("load_dataset") for name in self._data(call)]
        source.train = sets[:1]
        source.held_out = sets[1:]
        calls = [call for name in _OF_DATA for call in self.calls(name)]
        for call in calls:
            if isinstance(call.func, ast.Attribute):
                shown = " ".join(ast.unparse(call).split())
                source.remarks.append(f"line {call.end_lineno}: not executed: ...{shown[-60:]}")

    def _data(self, call: ast.Call) -> list[str]:
        """The files of a call of load_dataset, or its hub id with what else it names."""
        named = {name: self.value(node) for name, node in _keywords(call)}
        files = named.get("data_files")
        if files:
            files = [files] if isinstance(files, str) else files
            names = files.values() if isinstance(files, dict) else files
            return [str(self.path.parent / name) for name in names]
        positional = [self.value(node) for node in call.args]
        path = positional[0] if positional else None
        path = path or named.get("path")
        if not path:
            return []
        config = positional[1] if len(positional) > 1 else None
        config = config or named.get("name") or ""
        split = named.get("split") or ""
        return [f"{path}:{config}:{split}".rstrip(":")]

    def _take_trainer(self, source: Source, weights: list[Any]) -> None:
        """The model and the reward functions of the call that makes a trainer."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        for call in calls:
            arguments = dict(_keywords(call))
            if "reward_funcs" not in arguments:
                continue
            if "model" in arguments:
                self._take_model(source, self.meant(arguments["model"]))
            functions = self.meant(arguments["reward_funcs"])
            parts = functions.elts if isinstance(functions, ast.List | ast.Tuple) else [functions]
            for number, part in enumerate(parts):
                weight = float(weights[number]) if number < len(weights) else 1.0
                self._take_reward(source, part, weight)
            others = sorted(arguments.keys() - _READ_ARGUMENTS - _OTHER_DATA)
            if others:
                named = ", ".join(others)
                source.remarks.append(f"arguments of the trainer that are not taken over: {named}")
            for name in sorted(arguments.keys() & _OTHER_DATA):
                source.untranslated.append(f"the trainer's {name}")
        source.code = self._needed(list(source.rewards))

    def _take_model(self, source: Source, model: ast.expr) -> None:
        if isinstance(model, ast.Call) and ast.unparse(model.func).endswith("from_pretrained"):
            model = model.args[0] if model.args else model
        path = self.value(model)
        if isinstance(path, str):
            local = self.path.parent / path
            source.settings["model.path"] = str(local) if local.is_dir() else path

    def _take_reward(self, source: Source, part: ast.expr, weight: float) -> None:
        """A function of the script, or the reward model that a text names."""
        model = self.value(part)
        if isinstance(part, ast.Name) and part.id in self.top and not isinstance(model, str):
            source.rewards[part.id] = weight
        elif isinstance(model, str):
            source.reward_models[model] = weight
        else:
            source.untranslated.append(
                f"the reward {ast.unparse(part)}, which is not a function of the script"
            )

    def _needed(self, names: list[str]) -> str:
        """The source of these functions and of what they name, in the order of the script."""
        nodes: set[ast.stmt] = set()
        while names:
            node = self.top.get(names.pop())
            if node and node not in nodes:
                nodes.add(node)
                names += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        in_order = sorted(nodes, key=lambda node: node.lineno)
        return "\n\n\n".join(self._segment(node) for node in in_order)

    def _segment(self, node: ast.stmt) -> str:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return ast.unparse(node)
        decorators = [f"@{ast.unparse(part)}" for part in getattr(node, "decorator_list", [])]
        return "\n".join([*decorators, ast.get_source_segment(self.text, node) or ""])

    def _take_messages(self, source: Source) -> None:
        """The system message, and template and column of the user's message, where dictionaries
        state them."""
        for node in self.nodes:
            if not isinstance(node, ast.Dict):
                continue
            entry: dict[Any, ast.expr] = {}
            for key, value in zip(node.keys, node.values, strict=True):
                if key:
                    entry[self.value(key)] = value
            role = self.value(entry.get("role"))
            content = entry.get("content")
            if role == "system":
                source.system = self.value(content)
            elif role == "user" and content:
                self._take_user_message(source, node, content)

    def _take_user_message(self, source: Source, node: ast.Dict, content: ast.expr) -> None:
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
        match node:
            case ast.Subscript(slice=index) if isinstance(key := self.value(index), str):
                columns.append(key)
                return "{prompt}"
            case ast.FormattedValue(value=value):
                parts = [value]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                parts = [left, right]
            case _:
                parts = getattr(node, "values", [])
        texts = [self._template(part, columns) for part in parts] or [self.value(node)]
        return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _take_loss(source: Source, values: Mapping[str, Any]) -> None:
    """TRL's loss_type and ratios, as our surrogate, clip and average."""
    settings = source.settings
    average = source.counterpart(values, "loss_type", "losses", "dapo")
    loss = values.get("loss_type", "dapo")
    level = values.get("importance_sampling_level", "token")
    # What names the algorithm comes first in the file.
    source.settings = settings = {
        "algorithm.name": "grpo",
        "algorithm.loss_agg_mode": average,
        **settings,
    }
    _take_clip(settings, values, loss)
    if loss == "sapo":
        settings["algorithm.surrogate"] = "gated"
        settings["algorithm.gate"] = {
            "type": "sigmoid",
            "positive": values.get("sapo_temperature_pos", 1.0),
            "negative": values.get("sapo_temperature_neg", 1.05),
        }
    elif loss == "vespo":
        settings["algorithm.surrogate"] = "gated"
        settings["algorithm.ratio"] = "sequence"
        settings["algorithm.gate"] = {
            "type": "gamma",
            "positive": [values.get("vespo_k_pos", 2.0), values.get("vespo_lambda_pos", 3.0)],
            "negative": [values.get("vespo_k_neg", 3.0), values.get("vespo_lambda_neg", 2.0)],
        }
    elif loss == "cispo":
        settings["algorithm.surrogate"] = "cispo"
    elif level == "sequence":
        settings["algorithm.surrogate"] = "gspo_joint"
        settings["algorithm.ratio"] = "sequence"
    if level not in ("token", "sequence") or (level == "sequence" and loss in _PER_TOKEN):
        source.untranslated.append(f"importance_sampling_level={level} with loss_type={loss}")
    if loss == "luspo" and level != "sequence":
        source.untranslated.append("loss_type=luspo with ratios per token")
    scale = values.get("scale_rewards", "group")
    settings["algorithm.advantage.std"] = scale not in (False, "none")
    if scale not in (True, False, "group", "none"):
        source.untranslated.append(f"scale_rewards={scale}")


_PER_TOKEN = ("cispo", "sapo", "vespo")


def _take_clip(settings: dict[str, Any], values: Mapping[str, Any], loss: str) -> None:
    """TRL's epsilon and epsilon_high; cispo's is a bound of the ratio itself."""
    low = values.get("epsilon", 0.2)
    high = values.get("epsilon_high")
    high = low if high is None else high
    for name in ("low", "high", "c"):
        settings.pop(f"algorithm.clip.{name}", None)
    if loss in ("sapo", "vespo"):
        settings["algorithm.clip"] = None
    elif loss == "cispo":
        settings["algorithm.clip"] = {"low": 1.0, "high": high - 1.0, "c": None}
    else:
        settings["algorithm.clip"] = {"low": low, "high": high, "c": values.get("delta")}


def _take_correction(source: Source, values: Mapping[str, Any]) -> None:
    """TRL's weights for samples of vLLM, which rounds otherwise."""
    if not values.get("use_vllm") or not values.get("vllm_importance_sampling_correction", True):
        return
    mode = values.get("vllm_importance_sampling_mode", "sequence_mask")
    kind = source.counterpart(
        values, "vllm_importance_sampling_mode", "corrections", "sequence_mask"
    )
    cap = values.get("vllm_importance_sampling_cap")
    if cap is None:
        cap = values.get("vllm_importance_sampling_clip_max", 3.0)
    least = values.get("vllm_importance_sampling_clip_min")
    correction: dict[str, Any] = {"type": kind, "level": str(mode).partition("_")[0]}
    if kind == "truncate":
        correction["cap"] = cap
        if least is not None:
            source.untranslated.append(f"vllm_importance_sampling_clip_min={least} with {mode}")
    else:
        correction["low"] = 0.0 if least is None else least
        correction["high"] = cap
    source.settings["algorithm.rollout_correction"] = correction


def _take_steps(source: Source, values: Mapping[str, Any]) -> None:
    """Batches: what TRL counts as several steps between two rollouts is one step here."""
    settings = source.settings
    group = settings["rollout.group_size"]
    rows = int(values.get("per_device_train_batch_size", 8))
    step_rows = rows * int(values.get("gradient_accumulation_steps", 1))
    drawn = int(values.get("steps_per_generation") or 0) * rows
    drawn = drawn or int(values.get("generation_batch_size") or 0)
    updates = max(1, drawn // step_rows)
    mini = max(1, step_rows // group)
    settings["training.prompts_per_step"] = updates * mini
    settings["training.mini_batch_prompts"] = mini
    source.remarks.append(
        "prompts_per_step and mini_batch_prompts are those of one device: multiply them"
    )
    steps = settings.get("training.steps")
    if steps is not None:
        updates *= settings.get("training.epochs", 1)
        settings["training.steps"] = -(-steps // updates)


def _take_optimizer(source: Source, values: Mapping[str, Any]) -> None:
    settings = source.settings
    if "adam_beta1" in values or "adam_beta2" in values:
        betas = [values.get("adam_beta1", 0.9), values.get("adam_beta2", 0.999)]
        settings["training.optimizer.betas"] = betas
    ratio = values.get("warmup_ratio")
    if ratio and values.get("max_steps", -1) > 0:
        settings["training.optimizer.warmup_steps"] = round(ratio * values["max_steps"])
    elif ratio:
        source.remarks.append(
            f"decides the training, and is not taken over: warmup_ratio={ratio} (of steps that the "
            "script does not name)"
        )


def _note_untranslated(source: Source) -> None:
    """Whatever else decides the loss or the data."""
    assert source.foreign is not None
    accepted = TABLES["only"]["trl"]
    for key, value in source.foreign.values.items():
        kept = accepted.get(key, "any")
        if value is not None and kept != "any" and value not in kept:
            source.untranslated.append(f"{key}={value}")
    decided = set(TABLES["read"]["trl"]) | set(accepted)
    for key, field in TABLES["trl"].items():
        if field.startswith("algorithm."):
            decided.add(key)
    for key, why in source.foreign.unresolved.items():
        if key in decided:
            source.untranslated.append(f"{key} ({why})")


def _keywords(call: ast.Call) -> list[tuple[str, ast.expr]]:
    return [(argument.arg, argument.value) for argument in call.keywords if argument.arg]
