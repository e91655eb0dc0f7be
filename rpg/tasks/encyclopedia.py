"""An environment that ships: questions about an invented country, and the encyclopedia in which its places stand.

prompt    Through which town does the river Tovimi flow?
response  <<Tovimi>> ... Tovimi is a river. It flows through Sanoka. ... Answer: Sanoka
"""

from __future__ import annotations

import random

from rpg.config.task import EnvironmentTask
from rpg.tasks.problems import DataError, Problem, Splits, demonstrated

_SYLLABLES = "ba de fi go ka lu mi no pa re sa ti vo zu".split()
_ENTRIES = 2_000


def _entries() -> dict[str, str]:
    """River -> the town it flows through: two thousand of them, always the same."""
    rng, names = random.Random("encyclopedia"), dict[str, None]()
    while len(names) < 2 * _ENTRIES:
        names["".join(rng.choices(_SYLLABLES, k=rng.choice((3, 4)))).capitalize()] = None
    rivers = list(names)
    return dict(zip(rivers[:_ENTRIES], rivers[_ENTRIES:], strict=True))


_TOWNS = _entries()


class Encyclopedia:
    """Looks up names."""

    def reset(self, **_columns: object) -> None:
        """There is nothing to prepare."""

    def search(self, name: str) -> str:
        """Look up a name.

        Args:
            name: The name of a river.

        Returns:
            Its entry, or that there is none.
        """
        return entry(name.strip())


def entry(name: str) -> str:
    """What the encyclopedia says about a name."""
    if name in _TOWNS:
        return f"{name} is a river. It flows through {_TOWNS[name]}."
    near = sorted(river for river in _TOWNS if name[:3] and river.startswith(name[:3].capitalize()))[:3]
    return f"There is no entry {name[:40]!r}." + (f" See {', '.join(near)}." if near else "")


def make(task: EnvironmentTask) -> Splits:
    """A question for every river that is asked for. Raises DataError: there are not enough."""
    count = task.benchmark_problems + task.train_problems
    if count > _ENTRIES:
        raise DataError(f"task.train_problems + benchmark_problems: {count}, accepted: at most {_ENTRIES}")
    rivers = random.Random(f"encyclopedia {task.data_seed}").sample(sorted(_TOWNS), count)
    problems = [_problem(task, number, river) for number, river in enumerate(rivers)]
    held_out = problems[: task.benchmark_problems]
    return Splits(problems[task.benchmark_problems :], {"encyclopedia": held_out})


def _problem(task: EnvironmentTask, number: int, river: str) -> Problem:
    text, answer = f"Through which town does the river {river} flow?", _TOWNS[river]
    shown = demonstrated(task, {"search": {"name": river}}, entry(river), task.verifier.written(f" {answer}"))
    return Problem(f"encyclopedia-{number:05d}", text, f"{text}\n", answer, "encyclopedia", shown)
