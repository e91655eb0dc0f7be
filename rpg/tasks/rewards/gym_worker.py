"""The process in which Reasoning Gym's `score_answer` runs, within the limits of
rpg.tasks.rewards.comparison_worker.

Some scorers evaluate what they are given with `eval` or sympy's `parse_expr`. Here the first reads
literals only, and the second refuses every name that is not of a mathematical function or a
variable.
"""

import ast
import hashlib
import importlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from rpg.tasks.rewards.comparison_worker import serve

LITERALS = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
"""Data sets whose scorers apply `eval` to an answer."""
EXPRESSIONS = ("countdown", "puzzle24")
"""Data sets whose modules import `parse_expr`; others use it as `sympy.parse_expr`."""
_FUNCTIONS = set("a?(sin|cos|tan|cot|sec|csc)h? exp log ln sqrt Abs pi".split())
_NAMES = re.compile(rf"[A-Za-z]\d*|{'|'.join(_FUNCTIONS)}")


def _harmless(parse: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(text: str, *rest: Any, **named: Any) -> Any:
        names = re.findall(r"[^\W\d]\w*", text)
        if re.search(r"""['"\[\]{}:;@=]|\.\s*[^\W\d]""", text) or not all(
            map(_NAMES.fullmatch, names)
        ):
            raise ValueError("not an expression of mathematics")
        return parse(text, *rest, **named)

    return guarded


def _prepare() -> Callable[..., tuple[float | None, str]]:
    import reasoning_gym  # noqa: PLC0415 - what its imports print must not reach the pipe
    import sympy  # noqa: PLC0415

    parse = _harmless(sympy.parse_expr)
    sympy.parse_expr = parse
    guards = dict.fromkeys(LITERALS, ("eval", ast.literal_eval))
    for name, (function, guarded) in (
        guards | dict.fromkeys(EXPRESSIONS, ("parse_expr", parse))
    ).items():
        kind = reasoning_gym.factory.DATASETS[name][0]
        setattr(importlib.import_module(kind.__module__), function, guarded)

    @cache
    def dataset(name: str, config: str) -> Any:
        return reasoning_gym.create_dataset(name, **ast.literal_eval(config))

    @cache
    def entry(name: str, config: str, index: int) -> Any:
        return dataset(name, config)[index]

    def score(columns: dict[str, Any], answer: str) -> tuple[float | None, str]:
        key = columns["dataset"], repr(columns["config"])
        problem = entry(*key, columns["index"])
        if hashlib.sha256(problem["question"].encode()).hexdigest()[:16] != columns["digest"]:
            why = "another problem than in the data; another version of reasoning-gym?"
            return None, f"{columns['dataset']}: {why}"
        value = min(1.0, max(0.0, float(dataset(*key).score_answer(answer, problem))))
        return value, f"score {value:.6g}"

    return score


if __name__ == "__main__":
    serve(_prepare)
