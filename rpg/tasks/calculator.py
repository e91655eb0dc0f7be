"""An environment that ships: products of two-digit numbers, and a calculator.

prompt    What is 37 times 58?
response  <<37*58>>        the model calls the tool
          =2146            what the tool returns
          Answer: 2146     the model again
"""

from __future__ import annotations

import random
import re

from rpg.config.task import EnvironmentTask
from rpg.tasks.problems import DataError, Problem, Splits, demonstrated

_SMALLEST, _LARGEST = 11, 99


class Calculator:
    """Calculates with integers."""

    def reset(self, **_columns: object) -> None:
        """There is nothing to prepare."""

    def calculate(self, expression: str) -> str:
        """Calculate with two integers.

        Args:
            expression: Two integers with +, - or * between them, for example 12*34.

        Returns:
            The result.
        """
        parts = re.fullmatch(r"\s*(-?\d{1,9})\s*([-+*])\s*(-?\d{1,9})\s*", expression)
        if parts is None:
            raise ValueError("expected two integers with +, - or * between them, e.g. 12*34")
        left, operator, right = int(parts[1]), parts[2], int(parts[3])
        return str(left + right if operator == "+" else left - right if operator == "-" else left * right)


def make(task: EnvironmentTask) -> Splits:
    """Different ordered pairs of factors. Raises DataError: there are not enough."""
    pairs = [(a, b) for a in range(_SMALLEST, _LARGEST + 1) for b in range(_SMALLEST, _LARGEST + 1)]
    count = task.benchmark_problems + task.train_problems
    if count > len(pairs):
        raise DataError(f"task.train_problems + benchmark_problems: {count}, accepted: at most {len(pairs)}")
    drawn = random.Random(f"calculator {task.data_seed}").sample(pairs, count)
    problems = [_problem(task, number, *pair) for number, pair in enumerate(drawn)]
    held_out = problems[: task.benchmark_problems]
    return Splits(problems[task.benchmark_problems :], {"calculator": held_out})


def _problem(task: EnvironmentTask, number: int, a: int, b: int) -> Problem:
    text, answer = f"What is {a} times {b}?", str(a * b)
    shown = demonstrated(
        task, {"calculate": {"expression": f"{a}*{b}"}}, answer, task.verifier.written(f" {answer}")
    )
    return Problem(f"calculator-{number:05d}", text, f"{text}\n", answer, "calculator", shown)
