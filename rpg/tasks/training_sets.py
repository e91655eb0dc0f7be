"""Training sets as data: shipped ones are rpg/tasks/sets/training/*.yaml; a user's is a file of
problems or such a YAML.

Repeats are collapsed; problems in other languages and problems with two answers are left out, each
with its reason.
"""

import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from rpg.answers.typesetting import normalise, squeeze
from rpg.config.task import is_name
from rpg.tasks.benchmarks import Columns, ProblemSet, Source, digest, read_pairs, read_set, shipped
from rpg.tasks.checks import words
from rpg.tasks.problems import DataError, Dropped, Problem

_SETS = Path(__file__).parent / "sets" / "training"
_FILE_COLUMNS = Columns(
    problem=("extra_info.raw_problem", "problem", "question", "asked(prompt)"),
    answer=("reward_model.ground_truth", "answer", "final_answer", "solution"),
)

FOREIGN = 0.01
"""A problem is English when at most this share of its letters is of a script that English does not
use."""
_SCRIPTS = (
    "CJK HIRAGANA KATAKANA HANGUL BOPOMOFO CYRILLIC ARABIC HEBREW DEVANAGARI BENGALI THAI".split()
)


class TrainingSet(ProblemSet):
    """Problems to train on."""

    language: Literal["any", "english"] = "any"
    """`english` leaves out problems in which more than 1 % of the letters are Chinese, Cyrillic,
    Arabic and so on."""


@dataclass(frozen=True)
class LoadedTraining:
    """The problems kept of a training set, in the order of its source, and those dropped."""

    problems: list[Problem]
    digest: str
    source: str
    rows: int
    distinct: int
    """Different texts among the rows, white space apart: those kept and those dropped."""
    dropped: list[Dropped]
    notes: tuple[str, ...] = ()


def training_set(name: str) -> TrainingSet:
    """The training set of that name, of a YAML file, or of a file of problems itself. Raises
    ConfigError: an unknown name, or a YAML file that is not a training set.
    """
    if is_name(name) or name.endswith((".yaml", ".yml")):
        chosen = read_set(TrainingSet, shipped(_SETS, name, "training set"))
    else:
        chosen = TrainingSet(name="train", source=Source(path=Path(name)), columns=_FILE_COLUMNS)
    return chosen.model_copy(update={"name": "train"})


def load_training(chosen: TrainingSet, folder: str | Path | None = None) -> LoadedTraining:
    """Distinct, usable problems of a training set; `folder` holds local copies (default: $RPG_DATA,
    then the hub).

    Two problems are the same when their words are (typesetting, case and punctuation apart): the
    first is kept. If their answers differ none is, because nothing says which is right.

    Raises:
        DataError: no source is there, a row lacks a text or an answer, or nothing is left. It names
            file, row, field.
    """
    source, rows = read_pairs(chosen, folder)
    texts: dict[tuple[str, str], None] = {}
    count = 0
    for row in rows:
        count += 1
        texts.setdefault((row.problem, row.answer))
    kept: dict[str, Problem] = {}
    dropped: list[Dropped] = []
    torn: dict[str, Problem] = {}
    for text, answer in texts:
        problem = chosen.problem(text, answer)
        key = " ".join(words(text)) or text
        if chosen.language == "english" and (share := foreign(text)) > FOREIGN:
            detail = f"{share:.0%} of its letters are of other scripts"
            dropped.append(Dropped(problem.id, "language", detail, text))
        elif key not in kept:
            kept[key] = problem
        elif squeeze(normalise(kept[key].answer)) != squeeze(normalise(answer)):
            torn.setdefault(key, kept[key])
            detail = f"answer {answer!r}, but {kept[key].answer!r} in an earlier row"
            dropped.append(Dropped(problem.id, "two answers", detail, text))
        elif kept[key].id != problem.id:
            dropped.append(
                Dropped(problem.id, "repeated", f"the same words as {kept[key].id}", text)
            )
    for key, problem in torn.items():
        dropped.append(
            Dropped(problem.id, "two answers", "other rows have another answer", problem.text)
        )
        del kept[key]
    problems = list(kept.values())
    if not problems:
        why = ", ".join(
            f"{n:,} {reason}" for reason, n in Counter(d.reason for d in dropped).items()
        )
        raise DataError(
            f"{source}: no problem is left of {count:,} rows ({why or 'the file is empty'})"
        )
    problems_digest = digest(problems)
    distinct = len({problem.id for problem in problems} | {drop.problem for drop in dropped})
    notes = tuple(chosen.digest_notes(source, problems_digest))
    return LoadedTraining(problems, problems_digest, source, count, distinct, dropped, notes)


def foreign(text: str) -> float:
    """Share of a text's letters that are of a script English does not use; formulas and Greek do
    not count as such."""
    letters = sum(c.isalpha() for c in text)
    return sum(map(_foreign_letter, text)) / letters if letters and not text.isascii() else 0.0


@lru_cache(maxsize=65536)
def _foreign_letter(c: str) -> bool:
    return c.isalpha() and not c.isascii() and unicodedata.name(c, "").split(" ")[0] in _SCRIPTS
