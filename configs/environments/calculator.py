"""Products of two-digit numbers, and a calculator: an environment as TRL's GRPOTrainer takes it (docs/turns.md).

    prompt    What is 37 times 58?
    response  <<37*58>>        the model calls the tool
              =2146            what the tool returns
              Answer: 2146     the model again

`python configs/environments/calculator.py` writes the problems beside this file.
"""

import json
import random
import re
from pathlib import Path


class Calculator:
    """Calculates with two integers."""

    def reset(self, **columns: object) -> None:
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


def problem(a: int, b: int) -> dict[str, str]:
    """A row of the data: the demonstration is a list of turns, the model's, the tool's and the model's."""
    product = str(a * b)
    turns = [f"<<{a}*{b}>>", product, f"Answer: {product}"]
    return {"prompt": f"What is {a} times {b}?", "answer": product, "demonstration": json.dumps(turns)}


def write(folder: Path) -> None:
    """400 problems for training and 64 others, always the same."""
    factors = range(11, 100)
    pairs = random.Random("calculator").sample([(a, b) for a in factors for b in factors], 464)
    for name, part in {"calculator-train": pairs[64:], "calculator": pairs[:64]}.items():
        rows = "".join(json.dumps(problem(a, b)) + "\n" for a, b in part)
        (folder / f"{name}.jsonl").write_text(rows)


if __name__ == "__main__":
    write(Path(__file__).parent)
