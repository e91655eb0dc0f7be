"""The process in which a reward function of the user runs: `python -m
rpg.tasks.rewards.function_worker`.

A line of JSON in: first the source, then one batch each; a line of JSON out. What the function
prints goes to the log.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import linecache
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from rpg.system.processes import die_with_parent
from rpg.tasks.rewards.function_calls import BadReward, Batch, call, where


class _Kept(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from the texts that a run's manifest keeps, as if they lay where they were
    read."""

    def __init__(self, sources: Sequence[Mapping[str, str]]):
        self.sources = {source["module"]: source for source in sources}

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name not in self.sources:
            return None
        origin = self.sources[name]["path"]
        spec = importlib.machinery.ModuleSpec(
            name, self, origin=origin, is_package=self.is_package(name)
        )
        spec.has_location = True
        return spec

    def is_package(self, name: str) -> bool:
        return self.sources[name]["path"].endswith("__init__.py")

    def get_source(self, name: str) -> str:
        return self.sources[name]["text"]

    def exec_module(self, module: ModuleType) -> None:
        text = self.sources[module.__name__]["text"]
        path = self.sources[module.__name__]["path"]
        linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
        exec(compile(text, path, "exec"), module.__dict__)


def load(function: str, sources: Sequence[Mapping[str, str]]) -> Callable[..., Any]:
    """The function, from the source that is given. Raises BadReward: importing it fails, or it is
    none."""
    module, _, name = function.partition(":")
    sys.meta_path.insert(0, _Kept(sources))
    folder = os.path.dirname(sources[0]["path"])
    for _ in module.split(".")[1:]:
        folder = os.path.dirname(folder)
    sys.path.insert(0, folder)
    try:
        imported: Any = getattr(importlib.import_module(module), name)
    except BaseException as error:
        raise BadReward(f"{function}: cannot be imported: {where(error)}") from error
    if not callable(imported):
        raise BadReward(f"{function}: expected a function, found a {type(imported).__name__}")
    return imported  # type: ignore[no-any-return]  # what the user wrote


def serve(prepare: Callable[[Any], Callable[[Any], dict[str, Any]]]) -> None:
    """Answer questions until standard input ends. `prepare` is told the first and returns what
    answers the others; what it raises is the first answer, and the last. What is printed goes to
    the log, and memory is bounded."""
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", buffering=1)
    os.dup2(2, 1)  # what it prints is for the log, not for our protocol
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    setup = json.loads(sys.stdin.readline())
    if sys.platform == "linux":
        # What one process takes at once; what all take together, rpg.tasks.rewards.function_process
        # sees.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(setup["memory_gib"] * 2**30), hard))
    try:
        answer = prepare(setup)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        why = (
            str(error)
            if isinstance(error, BadReward)
            else f"{setup['function']}: raised {where(error)}"
        )
        replies.write(json.dumps({"error": why}) + "\n")
        return
    replies.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        replies.write(json.dumps(answer(json.loads(line)), ensure_ascii=False) + "\n")


def _prepare(setup: Any) -> Callable[[Any], dict[str, Any]]:
    function = load(setup["function"], setup["sources"])

    def answer(batch: Any) -> dict[str, Any]:
        try:
            return {"values": call(function, setup["function"], Batch(**batch))}
        except BadReward as error:
            return {"error": str(error), "row": error.row}

    return answer


if __name__ == "__main__":
    serve(_prepare)
