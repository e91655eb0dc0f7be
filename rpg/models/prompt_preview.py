"""A few problems of a run as its model will see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from rpg.config.model import PretrainedModel
from rpg.config.pretrained import located
from rpg.config.run_spec import RunSpec
from rpg.config.task import RewardVerifier, chat_of
from rpg.models.model_loading import load_tokenizer
from rpg.models.tokenizer import build_tokenizer, dress, rendered
from rpg.models.warm_start_cache import warm_folder
from rpg.rewards import Item, grader_for
from rpg.tasks import Problem, characters_of, load_problems, verifier_of
from rpg.tasks.preparation import prepare_data, read_problems


@dataclass(frozen=True)
class Look:
    """One problem, the text the model is given, its tokens, and what the verifier makes of the gold answer."""

    problem: Problem
    text: str
    tokens: int
    read: str | None
    """The answer that the verifier finds where a response holds just the gold answer; None where it grades by reward."""
    accepted: bool
    """Whether it takes that response for right."""


@dataclass(frozen=True)
class Looked:
    """Some problems, and the longest prompt of all `total` of them."""

    shown: list[Look]
    total: int
    longest: int
    limit: int


def look(spec: RunSpec, home: Path, count: int = 5) -> Looked:
    """The first problems of a run's training data.

    Raises:
        DataError, ModelError, StoreError, GradingError
    """
    problems = read_problems(prepare_data(spec, home).train)
    tokenizer = tokenizer_of(spec, home)
    texts = [rendered(tokenizer, problem.given()) for problem in problems]
    own = {"add_special_tokens": False} if tokenizer.chat_template else {}
    lengths = [len(ids) for ids in tokenizer(texts, **own)["input_ids"]]
    found = _read(spec, problems[:count])
    shown = [
        Look(*one, *gold)
        for one, gold in zip(zip(problems, texts, lengths, strict=True), found, strict=False)
    ]
    return Looked(shown, len(problems), max(lengths), spec.rollout.max_prompt_tokens)


def _read(spec: RunSpec, problems: Sequence[Problem]) -> list[tuple[str | None, bool]]:
    verifier = verifier_of(spec.task)
    if isinstance(verifier, RewardVerifier):
        return [(None, True) for _ in problems]
    with grader_for(verifier) as grader:
        grades = grader.grade(
            [Item(verifier.written(problem.answer), problem.answer) for problem in problems]
        )
    return [(grade.extracted, grade.correct) for grade in grades]


def tokenizer_of(spec: RunSpec, home: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that the run's model will have; of a tiny model without making the model."""
    if isinstance(spec.model, PretrainedModel):
        tokenizer = load_tokenizer(located(spec.model.path, home) or spec.model.path, spec.model.revision)
    elif warm_folder(spec, home).is_dir():
        return load_tokenizer(warm_folder(spec, home))
    else:
        tokenizer = build_tokenizer(characters_of(spec.task, load_problems(spec.task)))
    dress(tokenizer, chat_of(spec.task))
    return tokenizer
