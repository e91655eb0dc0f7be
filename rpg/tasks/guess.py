"""An environment that ships: a game of two turns for the tiny model, small enough to enumerate (rpg audit --turns).

prompt    4-6:        the hidden number is 4, 5 or 6
response  <5>         the first guess
          +           the hidden number is larger (-: smaller, =: the same)
          <6>         the second guess, which is what counts
"""

from __future__ import annotations

import random

from rpg.config.task import EnvironmentTask
from rpg.tasks.problems import Problem, Splits, demonstrated

_NUMBERS = 3


class Guess:
    """Hides a number, another one in each conversation."""

    def reset(self, first: int, **_columns: object) -> None:
        """Hide a number."""
        self._hidden = random.randrange(first, first + _NUMBERS)
        self._guesses: list[int] = []

    def guess(self, number: int) -> str:
        """Guess the hidden number.

        Args:
            number: The guess.

        Returns:
            + if the hidden number is larger, - if it is smaller, = if it is the same; nothing after the second guess.
        """
        self._guesses.append(number)
        if len(self._guesses) > 1:
            return ""
        return sign(self._hidden, number)

    def get_reward(self) -> float:
        """1 if the second guess is right."""
        return float(self._guesses[1:2] == [self._hidden])


def sign(hidden: int, number: int) -> str:
    """What the game says to a first guess."""
    return "=" if number == hidden else "+" if hidden > number else "-"


def make(task: EnvironmentTask) -> Splits:
    """A problem for each range of three digits; training repeats them with other demonstrations, which guess at random."""
    rng = random.Random(f"guess {task.data_seed}")
    starts = range(10 - _NUMBERS + 1)
    train = [_problem(task, number, rng.choice(starts), rng) for number in range(task.train_problems)]
    return Splits(train, {"guess": [_problem(task, -1 - first, first, rng) for first in starts]})


def _problem(task: EnvironmentTask, number: int, first: int, rng: random.Random) -> Problem:
    hidden, guess, again = (rng.randrange(first, first + _NUMBERS) for _ in range(3))
    calls: dict[str, dict[str, object]] = {"guess": {"number": guess}}
    shown = demonstrated(task, calls, sign(hidden, guess), {"guess": {"number": again}}, "", "")
    text = f"{first}-{first + _NUMBERS - 1}:"
    name = f"guess-train-{number:05d}" if number >= 0 else f"guess-{first}"
    return Problem(name, text, text, "", "guess", shown, {"first": first})
