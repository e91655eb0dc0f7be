"""Arithmetic word problems in English: two steps, within reach of a small pretrained model.

    prompt    Anna has 12 apples. Ben gives Anna 7 more. Then Anna loses 4. How many apples does Anna have left?
              Give the steps, then the result after "Answer:".
    response  12+7=19
              19-4=15
              Answer:15

A template (see STORIES) is a text with numbers a, b, c; `{n}` and `{m}` are two different first names, `{t}` is a thing
that can be counted. `steps` is worked off from left to right, every step on the result so far: "a + b - c" is (a + b) - c.
Those with `held_out` are never trained on; every kind of `steps` among them occurs among the others too, in other words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rpg.config.task import MarkerVerifier, WordsTask
from rpg.tasks.problems import DataError, Problem, ProblemDemonstrations, Splits, TaskKind

VERSION = 1
"""Part of the data's digest: raise it when the same settings would give other problems."""
ASK = 'Give the steps, then the result after "Answer:".'
_VERIFIER = MarkerVerifier(marker="Answer:", match="number")
_SMALLEST, _FACTOR, _LARGEST_RESULT = 2, 9, 4
"""Smallest number; largest factor; largest result as a multiple of the largest number."""
_TRIES = 100


@dataclass(frozen=True)
class Story:
    text: str
    steps: str
    held_out: bool


def _stories(steps: str, trained: tuple[str, ...], held_out: tuple[str, ...]) -> tuple[Story, ...]:
    return tuple(Story(text, steps, text in held_out) for text in (*trained, *held_out))


NAMES = (
    "Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo", "Maria", "Noah",
    "Olivia", "Paul", "Rosa", "Sam", "Tina", "Victor",
)  # fmt: skip
THINGS = (
    "apples", "marbles", "books", "pencils", "stickers", "cards", "coins", "shells", "cookies", "stamps", "balloons",
    "oranges", "buttons", "flowers", "stones", "beads",
)  # fmt: skip

STORIES = (
    *_stories(  # More, then more.
        "a + b + c",
        trained=(
            "{n} has {a} {t}. {n} finds {b} more and then buys another {c}. How many {t} does {n} have now?",
            "There are {a} {t} in a red box, {b} in a blue box and {c} in a green box. How many {t} are there in all?",
            "{n} read {a} pages on Monday, {b} on Tuesday and {c} on Wednesday. How many pages did {n} read?",
            "A train has {a} passengers. {b} get on at the first stop and {c} at the second. How many are on the train?",
            "{n} saves {a} dollars in May, {b} dollars in June and {c} dollars in July. How many dollars are that in total?",
        ),
        held_out=(
            "{n} picks {a} {t}, {m} picks {b} and their mother picks {c}. How many {t} do they pick together?",
            "A baker sells {a} rolls in the morning, {b} at noon and {c} in the evening. How many rolls are sold that day?",
        ),
    ),
    *_stories(  # More, then fewer.
        "a + b - c",
        trained=(
            "{n} has {a} {t}. {m} gives {n} {b} more. Then {n} loses {c}. How many {t} does {n} have left?",
            "A bus carries {a} people. At a stop {b} people get on and {c} get off. How many people are on the bus now?",
            "{n} had {a} dollars, earned {b} dollars and spent {c} dollars. How many dollars does {n} have?",
            "A shop has {a} {t}. A truck brings {b} more, and {c} are sold. How many {t} are in the shop?",
            "{n} bakes {a} cookies and {m} bakes {b}. Their friends eat {c} of them. How many cookies are left?",
            "There were {a} birds in a tree. {b} birds came and later {c} flew away. How many birds are in the tree?",
        ),
        held_out=(
            "A farmer has {a} hens and buys {b} more. A fox takes {c}. How many hens does the farmer still have?",
            "{n} collects {a} {t} in the morning, {b} in the afternoon, and gives {c} to {m}. How many {t} are left?",
        ),
    ),
    *_stories(  # Fewer, then more.
        "a - b + c",
        trained=(
            "{n} has {a} {t} and gives {b} to {m}. Then {n} finds {c} more. How many {t} does {n} have now?",
            "A library had {a} books on a shelf. {b} were borrowed and {c} were brought back. How many books are on it?",
            "There are {a} cars in a car park. {b} cars leave and {c} cars arrive. How many cars are there now?",
            "{n} had {a} dollars. {n} spent {b} dollars on lunch and got {c} dollars from {m}. How many are there now?",
            "A tank holds {a} litres of water. {b} litres are used and {c} litres are added. How many litres are there?",
        ),
        held_out=(
            "{n} blew up {a} balloons, but {b} of them burst, so {n} blew up {c} more. How many balloons are there?",
        ),
    ),
    *_stories(  # Fewer, then fewer.
        "a - b - c",
        trained=(
            "{n} has {a} {t}. {n} gives {b} to {m} and loses {c}. How many {t} does {n} have left?",
            "A rope is {a} metres long. {n} cuts off {b} metres and then {c} metres. How many metres of rope are left?",
            "A book has {a} pages. {n} reads {b} pages today and {c} pages tomorrow. How many pages are left to read?",
            "There are {a} children in a park. {b} go home at four and {c} go home at five. How many children stay?",
            "{n} had {a} dollars, paid {b} dollars for a book and {c} dollars for a ticket. How many dollars are left?",
        ),
        held_out=(
            "A basket holds {a} eggs. {b} eggs break and {c} eggs are eaten. How many eggs remain in the basket?",
        ),
    ),
    *_stories(  # Groups, then more.
        "a * b + c",
        trained=(
            "{n} has {a} bags with {b} {t} in each, and {c} more {t} in a pocket. How many {t} does {n} have?",
            "A class has {a} rows of {b} chairs, and {c} extra chairs. How many chairs are there?",
            "{n} buys {a} packs of {b} {t}. {m} gives {n} {c} more. How many {t} does {n} have?",
        ),
        held_out=(
            "Each of {a} boxes holds {b} {t}. Beside them lie {c} loose {t}. How many {t} are there in all?",
        ),
    ),
    *_stories(  # Groups, then fewer.
        "a * b - c",
        trained=(
            "{n} has {a} boxes with {b} {t} in each and gives away {c}. How many {t} are left?",
            "A baker makes {a} trays of {b} rolls and sells {c} of the rolls. How many rolls are left?",
            "There are {a} teams of {b} players. {c} players are ill. How many players can play?",
        ),
        held_out=(
            "{n} plants {a} rows of {b} flowers, but {c} of the flowers die. How many flowers are still alive?",
        ),
    ),
    *_stories(  # Added, then multiplied.
        "a + b * c",
        trained=(
            "{n} earns {a} dollars in the morning and {b} in the evening. How many dollars are that in {c} days?",
            "A lunch box holds {a} nuts and {b} grapes. How many nuts and grapes are in {c} lunch boxes together?",
            "{n} runs {a} laps and swims {b} laps in every training. How many laps are that in {c} trainings?",
        ),
        held_out=("{n} puts {a} red and {b} blue {t} into each of {c} jars. How many {t} does {n} need?",),
    ),
)


def make(task: WordsTask) -> Splits:
    """All problems, no text twice, the same for the same settings. Raises DataError: the settings have too few
    different problems.
    """
    rng = random.Random(f"words {task.data_seed} {task.largest}")
    taken: set[str] = set()
    trained = [story for story in STORIES if not story.held_out]
    new = [story for story in STORIES if story.held_out]
    count = task.benchmark_problems
    benchmarks = {
        "words-known": _problems(trained, "known", count, task.largest, rng, taken),
        "words-new": _problems(new, "new", count, task.largest, rng, taken),
    }
    return Splits(_problems(trained, "train", task.train_problems, task.largest, rng, taken), benchmarks)


def _problems(
    stories: Sequence[Story], kind: str, count: int, largest: int, rng: random.Random, taken: set[str]
) -> list[Problem]:
    """`count` problems of these templates in turn, none of which is in `taken`; adds them to it."""
    problems = []
    for number in range(count):
        for _ in range(_TRIES):
            text, answer, steps = _tell(stories[number % len(stories)], largest, rng)
            if text not in taken:
                break
        else:
            raise DataError(f"task.largest: {largest} leaves too few different problems for {count} of them")
        taken.add(text)
        prompt, shown = f"{text}\n{ASK}", f"{steps}\n{_VERIFIER.written(answer)}"
        problems.append(Problem(f"words-{kind}-{number:05d}", text, prompt, answer, f"words-{kind}", shown))
    return problems


def _tell(story: Story, largest: int, rng: random.Random) -> tuple[str, str, str]:
    """A problem of a template: its text, its answer, and the steps to it, a line each."""
    first, *rest = story.steps.split()
    steps = list(zip(rest[::2], rest[1::2], strict=True))
    while True:
        numbers = {letter: rng.randint(_SMALLEST, largest) for letter in "abc"}
        if steps[0][0] == "-":
            numbers[first] = rng.randint(_SMALLEST, 2 * largest)
        for (before, _), (operator, letter) in zip([("", first), *steps], steps, strict=False):
            if operator == "*":
                numbers[letter] = rng.randint(_SMALLEST, _FACTOR)
                if before == "":  # groups of equal size: both are factors
                    numbers[first] = rng.randint(_SMALLEST, _FACTOR)
        results = [numbers[first]]
        for operator, letter in steps:
            results.append(_apply(results[-1], operator, numbers[letter]))
        if all(0 < value <= _LARGEST_RESULT * largest for value in results):
            break
    lines = [
        f"{before}{operator}{numbers[letter]}={result}"
        for (operator, letter), before, result in zip(steps, results, results[1:], strict=False)
    ]
    name, friend = rng.sample(NAMES, 2)
    words = {"n": name, "m": friend, "t": rng.choice(THINGS), **numbers}
    return story.text.format(**words), str(results[-1]), "\n".join(lines)


def _apply(value: int, operator: str, number: int) -> int:
    return value + number if operator == "+" else value - number if operator == "-" else value * number


KIND = TaskKind(
    problems=make,
    data=lambda _task: {"generator": VERSION},
    verifier=lambda _task: _VERIFIER,
    demonstrations=lambda _task, splits: ProblemDemonstrations("task.type: words", _VERIFIER, splits),
)
