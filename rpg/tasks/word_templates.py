"""The templates of the arithmetic word problems: a text with numbers a, b, c, and what is done with them.

`{n}` and `{m}` are two different first names, `{t}` is a thing that can be counted. `steps` is worked off from left to
right, every step on the result so far: "a + b - c" is (a + b) - c. Those with `held_out` are never trained on; every
kind of `steps` among them occurs among the others too, in other words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Story:
    """One template."""

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
