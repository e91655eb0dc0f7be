"""Arithmetic word problems in English: two steps, within reach of a small pretrained model.

    prompt    Anna has 12 apples. Ben gives Anna 7 more. Then Anna loses 4. How many apples does
              Anna have left? Give the steps, then the result after "Answer:".
    response  12+7=19
              19-4=15
              Answer:15

A template (sets/stories/arithmetic.yaml) is a text with numbers a, b, c; `{n}` and `{m}` are two
different first names, `{t}` is a thing that can be counted. `steps` is worked off from left to
right, every step on the result so far: "a + b - c" is (a + b) - c. Those that are `held_out` are
never trained on; every kind of steps among them occurs among the others too, in other words.
"""

import operator
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rpg.config.load import read_mapping
from rpg.config.task import MarkerVerifier, WordsTask
from rpg.tasks.problems import DataError, Problem, ProblemDemonstrations, Splits, TaskKind

VERSION = 1
"""Part of the data's digest: raise it when the same settings would give other problems."""
ASK = 'Give the steps, then the result after "Answer:".'
_VERIFIER = MarkerVerifier(marker="Answer:", match="number")
_SMALLEST = 2
_FACTOR = 9
_LARGEST_RESULT = 4
"""Smallest number; largest factor; largest result as a multiple of the largest number."""
_TRIES = 100
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True)
class Story:
    text: str
    steps: str
    held_out: bool


_DATA = read_mapping(Path(__file__).parent / "sets" / "stories" / "arithmetic.yaml")
NAMES = tuple(_DATA["names"])
THINGS = tuple(_DATA["things"])
STORIES = tuple(
    Story(text, steps, use == "held_out")
    for steps, uses in _DATA["stories"].items()
    for use, texts in uses.items()
    for text in texts
)


def make(task: WordsTask) -> Splits:
    """All problems, no text twice, the same for the same settings. Raises DataError: the settings
    have too few."""
    rng = random.Random(f"words {task.data_seed} {task.largest}")
    taken: set[str] = set()
    trained = [story for story in STORIES if not story.held_out]
    new = [story for story in STORIES if story.held_out]
    count = task.benchmark_problems
    benchmarks = {
        "words-known": _problems(trained, "known", count, task.largest, rng, taken),
        "words-new": _problems(new, "new", count, task.largest, rng, taken),
    }
    return Splits(
        _problems(trained, "train", task.train_problems, task.largest, rng, taken), benchmarks
    )


def _problems(
    stories: Sequence[Story],
    kind: str,
    count: int,
    largest: int,
    rng: random.Random,
    taken: set[str],
) -> list[Problem]:
    """`count` problems of these templates in turn, none of which is in `taken`; adds them to it."""
    problems = []
    for number in range(count):
        for _ in range(_TRIES):
            story = stories[number % len(stories)]
            text, answer, steps = _tell(story, largest, rng)
            if text not in taken:
                break
        else:
            raise DataError(
                f"task.largest: {largest} leaves too few different problems for {count} of them"
            )
        taken.add(text)
        prompt = f"{text}\n{ASK}"
        shown = f"{steps}\n{_VERIFIER.written(answer)}"
        problems.append(
            Problem(
                id=f"words-{kind}-{number:05d}",
                text=text,
                prompt=prompt,
                answer=answer,
                group=f"words-{kind}",
                demonstration=shown,
                cluster=f"template-{STORIES.index(story):02d}",
            )
        )
    return problems


def _tell(story: Story, largest: int, rng: random.Random) -> tuple[str, str, str]:
    """A problem of a template: its text, its answer, and the steps to it, a line each."""
    first, *rest = story.steps.split()
    steps = list(zip(rest[::2], rest[1::2], strict=True))
    while True:
        numbers = {letter: rng.randint(_SMALLEST, largest) for letter in "abc"}
        if steps[0][0] == "-":
            numbers[first] = rng.randint(_SMALLEST, 2 * largest)
        for (before, _), (sign, letter) in zip([("", first), *steps], steps, strict=False):
            if sign == "*":
                numbers[letter] = rng.randint(_SMALLEST, _FACTOR)
                if before == "":  # groups of equal size: both are factors
                    numbers[first] = rng.randint(_SMALLEST, _FACTOR)
        results = [numbers[first]]
        for sign, letter in steps:
            results.append(_OPERATIONS[sign](results[-1], numbers[letter]))
        if all(0 < value <= _LARGEST_RESULT * largest for value in results):
            break
    lines = [
        f"{before}{sign}{numbers[letter]}={result}"
        for (sign, letter), before, result in zip(steps, results, results[1:], strict=False)
    ]
    name, friend = rng.sample(NAMES, 2)
    words = {"n": name, "m": friend, "t": rng.choice(THINGS), **numbers}
    return story.text.format(**words), str(results[-1]), "\n".join(lines)


KIND = TaskKind(
    problems=make,
    data=lambda _task: {"generator": VERSION},
    verifier=lambda _task: _VERIFIER,
    demonstrations=lambda _task, splits: ProblemDemonstrations(
        "task.type: words", _VERIFIER, splits
    ),
)
