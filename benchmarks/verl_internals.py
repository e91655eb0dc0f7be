"""Which of verl's internals we rely on, and which of them another version of verl has moved.

    python -m benchmarks.verl_internals            a line for each that is gone, or takes other
        arguments than it did
    python -m benchmarks.verl_internals --write    record those of the version that is installed
    python -m benchmarks.verl_internals --purposes what they are for, and how many each
    make verl-main VERL=verl==0.9.0                the first in an environment with that version,
    and the tests of overrides

benchmarks/verl_internals.yaml is the record: {`module:name`: digest and text of its parameters}.
The names are read from our sources: what they import of verl, and what classes of ours override or
use of the classes of verl that they extend.
"""

import ast
import hashlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from enum import EnumType
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_suffix(".yaml")
SOURCES = (
    "rpg/backends/verl/*.py",
    "rpg/interop/integrations/verl.py",
    "rpg/auditing/peers.py",
    "verl-cpu/verl_cpu/*.py",
)
NOT_HERE = "vllm"  # its modules need an environment of their own
PURPOSES = {
    "verl's losses, which the audit computes": ("rpg/auditing/",),
    "our losses and logs in verl's own trainer": ("rpg/interop/",),
    "the start of a job": ("rpg/backends/verl/task_runner.py",),
    "responses and rewards": (
        "rpg/backends/verl/agent_loops.py",
        "rpg/backends/verl/agent_turns.py",
        "rpg/backends/verl/reward_manager.py",
    ),
    "trainer mode: prompts, rollouts, steps, checkpoints": (
        "rpg/backends/verl/trainer.py",
        "rpg/backends/verl/rollout.py",
        "rpg/backends/verl/prefetch.py",
    ),
    "workers: update, micro-batches, reference, critic": ("rpg/backends/verl/",),
    "what verl lacks on a CPU": ("verl-cpu/",),
}
"""By the sources that use them: an internal belongs to the first that names it."""
BY_OBJECT = {
    "verl.workers.engine_workers:TrainingWorker.set_loss_fn",
    "verl.workers.rollout.llm_server:LLMServerClient.generate",
    "verl.workers.engine.base:BaseEngine.train_batch",
    "verl.workers.engine.base:BaseEngine.get_per_tensor_param",
    "verl.utils.checkpoint.fsdp_checkpoint_manager:FSDPCheckpointManager.load_checkpoint",
    "verl.utils.checkpoint.fsdp_checkpoint_manager:FSDPCheckpointManager.should_save_hf_model",
}
"""Used of objects that verl hands us, or that it makes itself (docs/verl.md)."""


def names() -> set[str]:
    """`module:name` of everything in use, as far as the installed version has it."""
    paths = [path for pattern in SOURCES for path in sorted(ROOT.glob(pattern))]
    found = {name for path in paths for name in _used(ast.parse(path.read_text("utf-8")))}
    return {
        name
        for name in found | BY_OBJECT
        if NOT_HERE not in name.lower() and not isinstance(_now(name), LookupError)
    }


def purposes() -> dict[str, list[str]]:
    """The recorded internals by what they are for; those that objects have, under the workers'."""
    left: set[str] = set(yaml.safe_load(RECORD.read_text("utf-8")))
    paths = [path for pattern in SOURCES for path in sorted(ROOT.glob(pattern))]
    used = {path: set(_used(ast.parse(path.read_text("utf-8")))) for path in paths}
    groups: dict[str, list[str]] = {}
    for purpose, places in PURPOSES.items():
        group: set[str] = set()
        for path, names_used in used.items():
            if path.relative_to(ROOT).as_posix().startswith(places):
                group |= left & names_used
        if "rpg/backends/verl/" in places:
            group |= left & BY_OBJECT
        groups[purpose] = sorted(group)
        left -= group
    return groups


def _used(tree: ast.Module) -> Iterator[str]:
    ours: dict[str, str] = {}  # name in this file -> `module:name`
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "verl":
            ours |= {
                alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names
            }
    yield from ours.values()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ours
        ):
            yield f"{ours[node.value.id]}.{node.attr}"
        if isinstance(node, ast.ClassDef):
            bases = [
                ast.unparse(base).partition(".__ray_metadata__")[0].partition(".")
                for base in node.bases
            ]
            for base in (ours[name] + dot + rest for name, dot, rest in bases if name in ours):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{base}.{inner.name}"
                    if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) in (
                        "self",
                        "super()",
                    ):
                        yield f"{base}.{inner.attr}"


def _now(name: str) -> str | LookupError:
    """The digest and text of its parameters, or the kind of what has none; why it cannot be had."""
    module, _, path = name.partition(":")
    try:
        value: Any = import_module(module)
        for part in path.split("."):
            metadata = getattr(value, "__ray_metadata__", None)  # an actor's class
            value = metadata.modified_class if metadata is not None else value
            is_module = inspect.ismodule(value) and not hasattr(value, part)
            value = import_module(f"{value.__name__}.{part}") if is_module else getattr(value, part)
    except Exception as error:  # noqa: BLE001 (another version may fail in any way)
        return LookupError(
            f"gone ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
        )
    text = type(value).__name__
    if callable(value) and not isinstance(value, EnumType):
        with suppress(TypeError, ValueError):  # of what is written in C
            text = f"({', '.join(map(_shown, inspect.signature(value).parameters.values()))})"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:12]} {text}"


def _shown(parameter: inspect.Parameter) -> str:
    """A parameter without annotation and default, which versions of Python print differently:
    `data`, `*args`, `step=`."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**", "KEYWORD_ONLY": "*, "}
    return (
        stars.get(parameter.kind.name, "")
        + parameter.name
        + "=" * (parameter.default is not parameter.empty)
    )


def moved() -> list[str]:
    """A line for each internal that is not as it is recorded."""
    record = yaml.safe_load(RECORD.read_text("utf-8"))
    lines = [
        f"{name}: in use and not recorded, so new there or here"
        for name in sorted(names() - {*record})
    ]
    for name, was in record.items():
        now = _now(name)
        if isinstance(now, LookupError):
            lines.append(f"{name}: {now}")
        elif now != was:
            lines.append(f"{name}: was {was.partition(' ')[2]}, is {now.partition(' ')[2]}")
    return lines


def main() -> int:
    warnings.simplefilter("ignore")
    with suppress(
        Exception
    ):  # on a machine without a GPU parts of verl ask for the platform when they are imported
        from verl.plugin.platform import set_platform
        from verl_cpu.platform import CPUPlatform

        set_platform(CPUPlatform())
    if "--purposes" in sys.argv[1:]:
        for purpose, group in purposes().items():
            print(f"{len(group):4d}  {purpose}")
        return 0
    if "--write" in sys.argv[1:]:
        record = {name: str(_now(name)) for name in names()}
        RECORD.write_text(yaml.safe_dump(record, width=10_000), "utf-8")
        return 0
    lines = moved()
    print(*lines, f"verl {version('verl')}: {len(lines)} internals have moved", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
