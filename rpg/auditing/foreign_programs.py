"""Which program a file of settings is for: said with the evidence, or refused with what it looks
like.

Settings of different trainers share names (`beta`, `loss_type`, `learning_rate`), and so do the
files of one trainer's programs. A file is read only where something says whose it is.
"""

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any


class OtherProgram(ValueError):
    """The settings are for a program that is not read; the message says for which."""


class NoTraining(OtherProgram):
    """The program prepares data, merges weights, generates or evaluates."""


@dataclass(frozen=True)
class Program:
    """A trainer's program, and what says so. `arguments` are the words behind it in a command."""

    trainer: str
    entry: str
    evidence: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Entry:
    """A module, script or command by which a program is started; without `trainer` it is refused
    as `what`."""

    pattern: re.Pattern[str]
    trainer: str
    what: str = ""


def _entries(*rows: tuple[str, str, str]) -> list[_Entry]:
    return [_Entry(re.compile(pattern), trainer, what) for pattern, trainer, what in rows]


# The first row that fits a module or script counts. Paths are matched with dots for slashes.
_ENTRIES = _entries(
    (r"(.*\.)?verl\.trainer\.main_ppo(_sync)?", "verl", ""),
    (r"(.*\.)?recipe\.(rpg|dapo)\.(src\.)?main_\w+", "verl", ""),
    (r"(.*\.)?verl\..*(sft|fsdp_sft)\w*", "", "verl's supervised fine-tuning"),
    (
        r"(.*\.)?verl\.(experimental|recipe)\..*(async|off_policy)\w*.*",
        "",
        "verl's asynchronous training",
    ),
    (r"(.*\.)?recipe\..*(async|off_policy)\w*.*", "", "verl's asynchronous training"),
    (r"(.*\.)?(verl|recipe)\..*", "", "a program of verl with an algorithm of its own"),
    (r"(.*\.)?open_instruct\.grpo\w*", "open-instruct", ""),
    (r"(.*\.)?open_instruct\..*", "", "open-instruct's other training"),
    (r"(.*\.)?openrlhf\.cli\.\w+", "", "OpenRLHF"),
    (r"(.*\.)?trl\.scripts\.grpo", "trl", ""),
    (r"(.*\.)?trl\.scripts\.\w+", "", "another trainer of TRL"),
    (r"(.*\.)?swift\.(cli|megatron|llm)\..*", "", "ms-swift"),
    (r"(.*\.)?tinker_cookbook\..*", "", "tinker-cookbook"),
    (
        r"(.*\.)?nemo_rl\..*|(.*\.)?examples\.run_(grpo|dpo|sft|ppo|distillation|rm)\w*",
        "",
        "NeMo-RL",
    ),
    (r"(.*\.)?prime_rl\..*", "", "prime-rl, whose settings stand in a TOML file: give that file"),
    (r"(.*\.)?skyrl(_train)?\..*", "", "SkyRL"),
    (r"(.*\.)?areal\..*", "", "AReaL"),
    (r"(.*\.)?slime\..*", "", "slime"),
    (r"(.*\.)?rllm\..*", "", "rLLM"),
    (r"(.*\.)?roll\..*", "", "ROLL"),
    (r"(.*\.)?start_\w+_pipeline", "", "ROLL, whose settings stand in a YAML file"),
    (r"(.*\.)?\w*(async|sft|dpo|kto|rloo|distil|gkd|opd)\w*", "", "a script of another training"),
    (r"(.*\.)?\w*(grpo|gspo)\w*", "trl?", ""),
)
_WITHOUT_TRAINING = re.compile(
    r"(.*\.)?(verl|recipe)\.(.*\.)?(main_(generation|eval)\w*|model_merger|\w*(process|merge)\w*)"
)
_COMMANDS = {
    ("trl", "grpo"): ("trl", ""),
    ("trl", ""): ("", "another trainer of TRL"),
    ("swift", ""): ("", "ms-swift"),
    ("megatron", ""): ("", "ms-swift on Megatron"),
    ("rl", ""): ("", "prime-rl, whose settings stand in a TOML file: give that file"),
    ("sft", ""): ("", "prime-rl's supervised fine-tuning"),
    ("llamafactory-cli", ""): ("", "LLaMA-Factory"),
    ("axolotl", ""): ("", "axolotl"),
}
"""(command, subcommand; "" for any other) -> trainer, or what is refused."""
_SUBCOMMANDS = {
    "trl": "grpo rloo sft dpo kto reward bco cpo orpo gkd gold xpo".split(),
    "swift": "sft pt rlhf infer deploy rollout eval export sample app".split(),
    "megatron": "sft pt rlhf".split(),
    "axolotl": "train preprocess".split(),
    "llamafactory-cli": "train chat export".split(),
}

GRPO_KEYS = frozenset(
    "num_generations max_completion_length num_iterations epsilon epsilon_high delta scale_rewards "
    "importance_sampling_level steps_per_generation generation_batch_size reward_weights "
    "mask_truncated_completions use_bias_correction_kl off_policy_mask_threshold "
    "top_entropy_quantile vllm_importance_sampling_correction reward_funcs".split()
)
"""Arguments of TRL's GRPOConfig and its script that other configurations of TRL lack, but for those
of trainers that are named by a key of _OTHERS."""
GRPO_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
_OTHERS = {
    "TRL's RLOO": "rloo_k normalize_advantages reward_clip_range token_level_kl kl_coef",
    "TRL's asynchronous GRPO": "max_staleness max_inflight_tasks weight_sync_steps",
    "TRL's distillation": "teacher_model_name_or_path lmbda rkl_advantage rkl_ratio seq_kd",
    "TRL's online DPO": "max_new_tokens judge missing_eos_penalty",
    "supervised fine-tuning": "packing dataset_text_field assistant_only_loss completion_only_loss",
    "preference training": "rejected_column precompute_ref_log_probs desirable_weight",
    "ms-swift": "rlhf_type tuner_type train_type",
    "LLaMA-Factory": "finetuning_type",
    "axolotl": "base_model",
    "AReaL": "gconfig allocation_mode trial_name",
    "ROLL": "actor_train actor_infer sft_train student_train system_envs",
    "SkyRL": "generator",
    "torchforge": "replay_buffer off_by_n rollout_threads",
}
_OTHER_FLAGS = {"slime": "--advantage-estimator --num-rollout --rm-type --rollout-batch-size"}
"""Flags of commands whose script has any name."""
_OTHER_OVERRIDES = {
    "rllm": "rLLM, which computes advantages of its own",
    "agent_proxy": "RAGEN, which computes advantages of its own",
    "es_manager": "RAGEN, which computes advantages of its own",
    "generator": "SkyRL",
}
"""Sections of other trainers, some of which have verl's beside them."""
_VERL_SECTIONS = frozenset(
    "actor_rollout_ref algorithm critic custom_reward_function data defaults distillation "
    "global_profiler hydra profiler ray_init ray_kwargs reward reward_model sandbox_fusion skip "
    "trainer transfer_queue".split()
)
"""Sections of the configurations of verl's main_ppo, of older versions, too."""
_NEMO_ALGORITHMS = frozenset("grpo ppo dpo sft rm distillation loss_fn".split())
_NEMO = _NEMO_ALGORITHMS | {"policy", "cluster", "checkpointing"}
_PRIME_RL_PARTS = frozenset(
    "ckpt client environment inference log loss model monitors optim rollout_transport "
    "scheduler trainer transport wandb weight_broadcast".split()
)
_DICTIONARIES = re.compile(r"\w+_kwargs|(fsdp|accelerator|deepspeed|liger_kernel)_config|deepspeed")
"""Arguments of transformers and TRL that hold keys and values: no sections."""
_SHOWN = 6


def of_command(words: list[str]) -> Program | None:
    """The training program that a command starts, of several the last one; None where it starts
    none. Raises OtherProgram."""
    found: Program | None = None
    for position, word in enumerate(words):
        entry = _entry(words, position)
        if entry is not None:
            found = _program(entry, tuple(words[position + 1 :]))
        elif word in _SUBCOMMANDS and words[position + 1 : position + 2]:
            subcommand = words[position + 1]
            if subcommand in _SUBCOMMANDS[word]:
                found = _of_console(word, subcommand, tuple(words[position + 2 :]))
        elif word in ("rl", "sft") and words[position - 2 : position] == ["uv", "run"]:
            found = _of_console(word, "", tuple(words[position + 1 :]))
    return found


def _entry(words: list[str], position: int) -> str | None:
    """The module or script at this place of a command."""
    word = words[position]
    before = words[position - 1] if position else ""
    if before in {"--module", "-m"}:
        return word if re.fullmatch(r"[\w.]+", word) else None
    return word if re.fullmatch(r"[^\s=-][^\s=]*\.py", word) else None


def script_of(words: list[str]) -> str:
    """The last module or script that a command starts, whichever it is; "" for none."""
    entries = [_entry(words, position) for position in range(len(words))]
    return next((entry for entry in reversed(entries) if entry is not None), "")


def unknown_entry(words: list[str]) -> str:
    """The module that a command starts, where a branch or the environment decides which; "" for
    none."""
    for flag, module in pairwise(words):
        if flag in {"--module", "-m"} and "$" in module:
            return module
    return ""


def started(words: list[str]) -> str:
    """The module or script of a command as far as it is known; "" for none."""
    return script_of(words) or unknown_entry(words)


def refuse_flags(words: list[str]) -> None:
    """Raises OtherProgram: flags of a command are those of a trainer that is not read."""
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    for other, theirs in _OTHER_FLAGS.items():
        named = sorted(flags & set(theirs.split()))
        if named:
            raise OtherProgram(f"it looks like {other} ({', '.join(named)})")


def refuse_overrides(words: list[str]) -> None:
    """Raises OtherProgram: a command of a program that is not verl's own has settings that verl
    lacks, and so is a trainer on top of it."""
    overrides = [re.match(r"[+~]*([A-Za-z_]\w*)(?:[./]\w+)+=", word) for word in words]
    sections = list(dict.fromkeys(override[1] for override in overrides if override))
    _refuse_named(sections)
    _refuse_sections(sections)


def _refuse_named(sections: Iterable[str]) -> None:
    """Raises OtherProgram: a section is that of a trainer which is known."""
    for section in sections:
        if section in _OTHER_OVERRIDES:
            raise OtherProgram(f"it looks like {_OTHER_OVERRIDES[section]} (section {section})")


def _refuse_sections(sections: Collection[str]) -> None:
    """Raises OtherProgram: verl's main_ppo has no such sections beside actor_rollout_ref."""
    others = sorted(set(sections) - _VERL_SECTIONS)
    if "actor_rollout_ref" in sections and others:
        raise OtherProgram(
            "it looks like a program on top of verl, or another one of verl's: main_ppo has no "
            f"sections {_listed(others)}"
        )


def _program(entry: str, arguments: tuple[str, ...]) -> Program | None:
    name = entry.removesuffix(".py").removeprefix("./").replace("/", ".")
    if _WITHOUT_TRAINING.fullmatch(name):
        raise NoTraining(
            f"it starts {entry}, which prepares data, merges, generates or evaluates: no training"
        )
    row = next((row for row in _ENTRIES if row.pattern.fullmatch(name)), None)
    if row is None:
        return None
    if not row.trainer:
        raise OtherProgram(f"it starts {entry}: {row.what}")
    if row.trainer == "trl?":
        flags = {word[2:].partition("=")[0] for word in arguments if word.startswith("--")}
        evidence = of_keys(flags, entry)
        return Program("trl", entry, f"it starts {entry} with {evidence}", arguments)
    return Program(row.trainer, entry, f"it starts {entry}", arguments)


def _of_console(command: str, subcommand: str, arguments: tuple[str, ...]) -> Program:
    either = (command, subcommand) if (command, subcommand) in _COMMANDS else (command, "")
    trainer, what = _COMMANDS[either]
    shown = f"{command} {subcommand}".strip()
    if not trainer:
        raise OtherProgram(f"it starts `{shown}`: {what}")
    return Program(trainer, shown, f"it starts `{shown}`", arguments)


def of_keys(keys: Collection[str], name: str, loss_type: Any = None) -> str:
    """The evidence that flat settings are those of TRL's GRPOConfig. Raises OtherProgram."""
    for other, theirs in _OTHERS.items():
        named = sorted(set(keys) & set(theirs.split()))
        if named:
            raise OtherProgram(f"it looks like {other} ({', '.join(named)})")
    if "rloo" in name.lower():
        raise OtherProgram(f"it looks like TRL's RLOO ({name})")
    named = sorted(GRPO_KEYS & set(keys))
    if named:
        return f"GRPOConfig's {', '.join(named[:_SHOWN])}"
    if loss_type in GRPO_LOSSES:
        return f"GRPOConfig's loss_type {loss_type}"
    raise OtherProgram(f"nothing says for which trainer it is ({_listed(keys)})")


def of_document(content: Mapping[str, Any], name: str) -> Program:
    """The program of a YAML or JSON file. Raises OtherProgram."""
    keys = [str(key) for key in content]
    sections = [str(key) for key, value in content.items() if isinstance(value, Mapping)]
    if "actor_rollout_ref" in content:
        _refuse_named(sections)
        _refuse_sections(sections)
        return Program("verl", "", "it has the section actor_rollout_ref")
    nested = [key for key in sections if not _DICTIONARIES.fullmatch(key)]
    for other, theirs in _OTHERS.items():
        named = sorted(set(keys) & set(theirs.split()))
        if named:
            raise OtherProgram(f"it looks like {other} ({', '.join(named)})")
    nemo = sorted(_NEMO & set(nested))
    # NeMo-RL's own `defaults` is the name of a file, Hydra's is a list.
    inherits = isinstance(content.get("defaults"), str)
    if nemo and (len(nemo) > 1 or inherits or _NEMO_ALGORITHMS & set(nemo)):
        raise OtherProgram(f"it looks like NeMo-RL (sections {', '.join(nemo)})")
    if "defaults" in content or nested:
        listed = _listed(nested or keys)
        raise OtherProgram(f"nothing says for which trainer it is (sections {listed})")
    evidence = of_keys(keys, name, content.get("loss_type"))
    return Program("trl", "", f"it has {evidence}")


def of_toml(content: Mapping[str, Any]) -> Program:
    """The program of a TOML file. Raises OtherProgram."""
    tables = [key for key, value in content.items() if isinstance(value, Mapping)]
    trainer = content.get("trainer")
    if "orchestrator" in tables or (isinstance(trainer, Mapping) and "loss" in trainer):
        which = [name for name in ("orchestrator", "trainer") if name in tables]
        return Program("prime-rl", "", f"it has the tables {', '.join(which)} of prime-rl's `rl`")
    if "data" in tables:
        what = "prime-rl's supervised fine-tuning, or its trainer alone"
        raise OtherProgram(f"it looks like {what} (tables {_listed(tables)})")
    if _PRIME_RL_PARTS & set(tables):
        raise OtherProgram(
            "it has no table orchestrator, and looks like a part of prime-rl's settings "
            f"({_listed(tables)}): give the file that `rl` gets"
        )
    raise OtherProgram(f"nothing says for which trainer it is ({_listed(content)})")


def of_script(tree: ast.Module) -> Program:
    """The program of a Python script for TRL. Raises OtherProgram."""
    imported = dict(_imports(tree))
    for module in imported.values():
        if module.split(".")[0] in ("tinker", "tinker_cookbook"):
            raise OtherProgram(f"it imports {module}: tinker-cookbook")
        if module.split(".")[0] == "unsloth":
            raise OtherProgram(f"it imports {module}, which puts a loss and defaults into TRL")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [ast.unparse(call.func).rpartition(".")[2] for call in calls]
    others = sorted({name for name in called if name.endswith(("Trainer", "Config"))})
    other_trainers = [name for name in others if name.endswith("Trainer")]
    for parser in ("TrlParser", "HfArgumentParser", "ArgumentParser"):
        if "GRPOTrainer" not in called and other_trainers:
            break
        if parser in called and "GRPOConfig" not in called:
            raise OtherProgram(
                f"its settings come from the command line ({parser}): give the command, or the "
                "YAML file of the run"
            )
    _own_loss(tree)
    for name in ("GRPOTrainer", "GRPOConfig"):
        if name in called:
            module = imported.get(name, "trl")
            if module.split(".")[0] != "trl":
                raise OtherProgram(f"its {name} is that of {module}")
            return Program("trl", "GRPOTrainer", f"it calls {name}")
    what = f"it calls {', '.join(others[:_SHOWN])}" if others else "it calls no trainer"
    raise OtherProgram(f"{what}; read are GRPOConfig and GRPOTrainer of TRL")


def _imports(tree: ast.Module) -> Iterable[tuple[str, str]]:
    """(name, module) of what a script imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, node.module or "."
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name, alias.name


def _own_loss(tree: ast.Module) -> None:
    """A trainer that computes its loss in the script has another one than TRL's."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        own = methods & {"_compute_loss", "compute_loss"}
        if "GRPOTrainer" in bases and own:
            raise OtherProgram(f"its {node.name} has a loss of its own ({', '.join(sorted(own))})")


def _listed(keys: Iterable[str]) -> str:
    keys = sorted(keys)
    more = f", and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"{', '.join(keys[:_SHOWN])}{more}" if keys else "no keys"


def shown(path: Path) -> str:
    """A file's name with the two folders it is in, which say what it is for."""
    return "/".join(path.parts[-3:])
