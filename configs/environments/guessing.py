"""A game of two turns for the tiny model (docs/turns.md).

    prompt    k4-6:       the hidden number is 4, 5 or 6; the letter only makes the problem another one
    response  <5>         the first guess
              +           the hidden number is larger (-: smaller, =: the same)
              <6>         the second guess, which is what counts

Whoever guesses the middle first always wins; without the first answer one in three is won.
`python configs/environments/guessing.py` writes the problems beside this file.
"""

import json
import random
from pathlib import Path

NUMBERS = 3


class Guess:
    """Hides a number, another one in each conversation."""

    def reset(self, first: int, **_columns: object) -> None:
        """Hide a number."""
        self._hidden = random.randrange(first, first + NUMBERS)
        self._guesses: list[int] = []

    def guess(self, number: int) -> str:
        """Guess the hidden number.

        Args:
            number: The guess.

        Returns:
            + if the hidden number is larger, - if it is smaller, = if it is the same; nothing to the second guess.
        """
        self._guesses.append(number)
        return sign(self._hidden, number) if len(self._guesses) == 1 else ""

    def get_reward(self) -> float:
        """1 if the second guess is right."""
        return float(self._guesses[1:2] == [self._hidden])


def sign(hidden: int, number: int) -> str:
    """The answer to a first guess."""
    return "=" if number == hidden else "+" if hidden > number else "-"


def problem(letter: str, first: int, rng: random.Random) -> dict[str, object]:
    """A row of the data; its demonstration guesses at random."""
    hidden, guess, again = (rng.randrange(first, first + NUMBERS) for _ in range(3))
    turns = [f"<{guess}>", sign(hidden, guess), f"<{again}>", "", ""]
    prompt = f"{letter}{first}-{first + NUMBERS - 1}:"
    return {"prompt": prompt, "first": first, "demonstration": json.dumps(turns)}


def write(folder: Path) -> None:
    """Training problems with 24 letters, and others with two."""
    rng = random.Random("guess")
    for name, letters in {"guessing-train": "abcdefghijklmnopqrstuvwx", "guessing": "yz"}.items():
        rows = [problem(letter, first, rng) for letter in letters for first in range(11 - NUMBERS)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    write(Path(__file__).parent)
