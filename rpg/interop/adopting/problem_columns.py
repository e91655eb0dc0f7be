"""A problem of somebody's rows: which columns it is in, and how they become one prompt and one
answer.

A file may hold the question in one column and what it needs in others: facts (`body`, `context`),
choices. Rules join them, and say so; text that is left is named.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rpg.errors import UserError
from rpg.json_text import DuplicateKeyError, read_json, refuse_duplicates
from rpg.tasks.checks import WORKED
from rpg.tasks.problems import shortened
from rpg.tasks.rows import value_at

Row = dict[str, Any]
PROMPTS = "prompt question problem messages input instruction query text".split()
ANSWERS = (
    "reward_model.ground_truth answer gold target ground_truth final_answer solution label "
    "answerKey "
    "output response"
).split()
FACTS = "context passage body background story premise paragraph article facts table input".split()
"""Columns that a question needs, in the order in which they are put before it."""
CHOICES = "choices options endings answer_choices".split()
LETTERS = "ABCDEFGHIJ"
JOINED = "adopted_prompt"
CHOSEN = "adopted_answer"
"""Columns that are added to the rows."""
_ONE_EACH = (
    [f"{letter}" for letter in LETTERS],
    [f"option_{letter.lower()}" for letter in LETTERS],
    [f"choice_{letter.lower()}" for letter in LETTERS],
    [f"op{letter.lower()}" for letter in LETTERS],
)
"""Names of columns with one choice each."""


@dataclass(frozen=True)
class Columns:
    """Where a problem is. prompt, answer, demonstration: column expressions of the rows as they are
    written. paragraphs and choices: columns that are joined; named_by: the column that names one of
    the choices, and first_choice: the number of the first. rules: sentences about what was done;
    unused: columns with text that no rule takes."""

    prompt: str
    answer: str | None
    demonstration: str | None = None
    paragraphs: Sequence[str] = ()
    choices: Sequence[str] = ()
    named_by: str | None = None
    first_choice: int = 0
    rules: list[str] = field(default_factory=list)
    unused: Sequence[str] = ()

    def expressions(self) -> dict[str, str]:
        """As `task.columns` has them."""
        named = {"prompt": self.prompt, "answer": self.answer, "demonstration": self.demonstration}
        return {name: column for name, column in named.items() if column is not None}


def parsed_texts(rows: Sequence[Row]) -> list[str]:
    """Replace JSON that is stored as text by what it says, in columns where most rows have it; the
    names of the columns."""
    names = dict.fromkeys(name for row in rows for name in row)
    found = []
    for name in names:
        filled = [row for row in rows if row.get(name) is not None]
        contents = [_from_text(row[name]) for row in filled]
        if 2 * sum(content is not None for content in contents) <= max(1, len(filled)):
            continue
        found.append(name)
        for row, content in zip(filled, contents, strict=True):
            if isinstance(content, DuplicateKeyError):
                raise UserError(f"column {name}: {content}: {shortened(row[name])}")
            if content is not None:
                row[name] = content
    return found


def _from_text(value: Any) -> Any:
    """A list or mapping that a text holds, in JSON's or Python's form; the error where an object in
    it has a key twice; None for any other."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return None
    for read in (read_json, _read_literal):
        try:
            content = read(value)
        except DuplicateKeyError as error:
            return error
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        messages = isinstance(content, list) and content and isinstance(content[0], dict)
        texts = isinstance(content, list) and all(isinstance(part, str) for part in content)
        if messages or (texts and len(content) > 1) or (isinstance(content, dict) and content):
            return content
    return None


def _read_literal(text: str) -> Any:
    """A literal of Python. Raises DuplicateKeyError, and what ast.literal_eval raises."""
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            refuse_duplicates(ast.unparse(key) for key in node.keys if key is not None)
    return ast.literal_eval(tree)


def find_columns(
    name: str, rows: Sequence[Row], asked_for: str | None, has_rewards: bool, complaint: str
) -> Columns:
    """The columns of most rows. `asked_for`: the prompt's, where a script states it. Raises
    UserError: no column holds prompts, or nothing says what is right."""
    prompt = _first(rows, [asked_for] if asked_for else [], PROMPTS)
    answer = _first(rows, [], [column for column in ANSWERS if column != prompt])
    if prompt is None or (answer is None and not has_rewards):
        answers = ("answers, and no function gives rewards", ANSWERS)
        what, names = ("prompts", PROMPTS) if prompt is None else answers
        existing = ", ".join(_names(rows)) or "none"
        raise UserError(
            f"{name}: no column holds {what}; looked for {', '.join(names)}; columns: {existing}"
            f"{complaint}"
        )
    if asked_for:
        return _stated(rows, prompt, answer)
    return _joined(name, rows, prompt, answer)


def _stated(rows: Sequence[Row], prompt: str, answer: str | None) -> Columns:
    """As a script says: nothing is joined."""
    gold, demonstration = _gold(rows, answer)
    return Columns(prompt, gold, demonstration)


def _joined(name: str, rows: Sequence[Row], prompt: str, answer: str | None) -> Columns:
    """With the columns that the question needs."""
    rules = list[str]()
    first = 0
    texts = [column for column in _names(rows) if _is_text(rows, column)]
    if prompt == "input" and "instruction" in texts:
        prompt = "instruction"
    plain_prompt = _is_text(rows, prompt)
    facts = [
        column
        for fact in FACTS
        for column in texts
        if column.lower() == fact and column not in (prompt, answer)
    ]
    facts = facts if plain_prompt else []
    choices = _choice_columns(rows, answer) if plain_prompt else []
    gold, demonstration = _gold(rows, answer)
    if facts:
        rules.append(f"the prompt is {' and '.join(_in_order(prompt, facts))}, a paragraph each")
    if choices:
        rules.append(f"the choices in {', '.join(choices)} follow, a line each, with letters")
        rules.append(f"the answer is the letter of the choice that {answer} names")
        first = _first_choice(name, rows, choices, answer)
        gold = CHOSEN
        demonstration = None
    used = {prompt, answer, demonstration, *facts, *choices}
    unused = [column for column in texts if column not in used and _is_told(rows, column)]
    return Columns(
        prompt=JOINED if facts or choices else prompt,
        answer=gold,
        demonstration=demonstration,
        paragraphs=_in_order(prompt, facts),
        choices=choices,
        named_by=answer if choices else None,
        first_choice=first,
        rules=rules,
        unused=unused,
    )


def _in_order(prompt: str, facts: Sequence[str]) -> list[str]:
    """Facts before the question; the input of an instruction follows it."""
    behind = [fact for fact in facts if fact.lower() == "input"]
    return [*(fact for fact in facts if fact not in behind), prompt, *behind]


def join(columns: Columns, row: Row) -> Row:
    """The row with the columns that are added; an answer that names none of the choices is null."""
    if columns.prompt != JOINED:
        return row
    parts = [str(value_at(row, column) or "").strip() for column in columns.paragraphs]
    added: Row = {}
    if columns.choices:
        texts = choices_of(row, columns.choices)
        lettered = [f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=False)]
        parts.append("\n".join(lettered))
        added[CHOSEN] = _letter(row, columns, texts)
    added[JOINED] = "\n\n".join(part for part in parts if part)
    return row | added


def choices_of(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """The texts of a row's choices."""
    if len(columns) > 1:
        return [str(row[column]) for column in columns if row.get(column) not in (None, "")]
    value = row.get(columns[0])
    if isinstance(value, Mapping):
        value = value.get("text", list(value.values()))
    return [str(part) for part in value] if isinstance(value, list | tuple) else []


def _labels(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """What a row calls its choices, where it says it."""
    value = row.get(columns[0])
    if len(columns) == 1 and isinstance(value, Mapping):
        return [str(label) for label in value.get("label", [key for key in value if key != "text"])]
    return []


def _letter(row: Row, columns: Columns, texts: list[str]) -> str | None:
    """The letter of the choice that the answer names: by its label, letter, text or number."""
    value = value_at(row, columns.named_by) if columns.named_by else None
    said = str(value).strip()
    labels = _labels(row, columns.choices)
    if said in labels:
        return LETTERS[labels.index(said)]
    if len(said) == 1 and said.upper() in LETTERS[: len(texts)]:
        return said.upper()
    if texts.count(said) == 1:
        return LETTERS[texts.index(said)]
    if said.isdigit():
        place = int(said) - columns.first_choice
        return LETTERS[place] if 0 <= place < len(texts) else None
    return None


def _first_choice(
    name: str, rows: Sequence[Row], columns: Sequence[str], answer: str | None
) -> int:
    """The number of the first choice, where answers are numbers. Raises UserError: that is not
    known."""
    numbers = []
    longest = 0
    for row in rows:
        said = str(value_at(row, answer) if answer else "").strip()
        texts = choices_of(row, columns)
        if said.isdigit() and said not in texts and said not in _labels(row, columns):
            numbers.append(int(said))
            longest = max(longest, len(texts))
    if not numbers or min(numbers) == 0:
        return 0
    if max(numbers) < longest:
        raise UserError(
            f"{name}: column {answer}: the answers are numbers from {min(numbers)} to "
            f"{max(numbers)}; whether the first choice is 0 or 1 is not known. Give letters"
        )
    return 1


def _choice_columns(rows: Sequence[Row], answer: str | None) -> list[str]:
    names = _names(rows)
    for name in names:
        if name.lower() not in CHOICES or name == answer:
            continue
        with_choices = sum(len(choices_of(row, [name])) > 1 for row in rows)
        if 2 * with_choices > len(rows):
            return [name]
    for series in _ONE_EACH:
        present = [name for name in series if name in names]
        if len(present) > 1 and present == series[: len(present)]:
            return present
    return []


def _gold(rows: Sequence[Row], answer: str | None) -> tuple[str | None, str | None]:
    """The expression of the answer, and the column of demonstrations if that is a worked
    solution."""
    if answer is None:
        return None, None
    for part, form in ((WORKED, f'after("{WORKED}", {answer})'), ("\\boxed{", f"boxed({answer})")):
        if _has(rows, answer, part):
            return form, answer
    return answer, None


def _first(rows: Sequence[Row], exact: Iterable[str], names: Iterable[str]) -> str | None:
    """The first of these columns that most rows have, whatever the case of its letters."""
    candidates = list(exact)
    existing = _names(rows)
    for name in names:
        candidates.append(name)
        candidates += [other for other in existing if other.lower() == name.lower()]
    return next((name for name in candidates if _has(rows, name)), None)


def _has(rows: Sequence[Row], column: str, part: str = "") -> bool:
    """Whether most rows have the column, with a text that contains `part`."""
    values = [value_at(row, column) for row in rows]
    texts = [str(value) for value in values if value is not None]
    return 2 * sum(part in text and text != "" for text in texts) > len(rows)


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_text(rows: Sequence[Row], column: str) -> bool:
    """Whether most rows that have the column hold text in it."""
    values = [value for row in rows if (value := value_at(row, column)) not in (None, "")]
    return bool(values) and 2 * sum(isinstance(value, str) for value in values) > len(values)


def _is_told(rows: Sequence[Row], column: str) -> bool:
    """Whether a column holds more than a label: texts of several words, not one for all rows."""
    values = [str(row.get(column)) for row in rows if row.get(column)]
    return len(set(values)) > 1 and any(len(value.split()) > 2 for value in values)
