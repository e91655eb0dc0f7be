"""Whoever asks is told. `python asking.py` writes the problems beside this file.

prompt    k:          a box; what is in it can only be learned by asking
response  <?>7        the policy asks, the environment answers
          <7>         the policy answers, which ends the conversation
"""

import json
import random
from pathlib import Path


class Box:
    """A box with a digit in it, another one in each conversation."""

    def reset(self, **_columns: object) -> None:
        self._digit = str(random.randrange(10))
        self._answer = ""

    def say(self, text: str) -> str:
        """Ask with a question mark, or answer with a digit.

        Args:
            text: What is said.

        Returns:
            The digit, to a question; nothing to an answer.
        """
        if text == "?":
            return self._digit
        self._answer = text
        return ""

    def get_reward(self) -> float:
        """1 if the last answer is right."""
        return float(self._answer == self._digit)


def write(folder: Path) -> None:
    """Problems whose demonstrations ask in one case of four, and guess in the others."""
    rng = random.Random("asking")
    for name, letters in {"train": "abcdefghijklmnopqrstuvwx", "held-out": "yz"}.items():
        rows = []
        for letter in letters:
            for number in range(8):
                digit = str(rng.randrange(10))
                turns = (
                    ["<?>", digit, f"<{digit}>", "", ""]
                    if number % 4 == 0
                    else [f"<{digit}>", "", ""]
                )
                rows.append({"prompt": f"{letter}{number}:", "demonstration": json.dumps(turns)})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    write(Path(__file__).parent)
