"""A preview of a run's prompts, as its model will see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from rpg.config.model import PretrainedModel, located
from rpg.config.run_spec import RunSpec
from rpg.config.task import RewardVerifier, chat_of
from rpg.models.model_loading import load_tokenizer
from rpg.models.tokenizer import build_tokenizer, encode, rendered, set_chat_template
from rpg.models.warm_start_cache import warm_folder
from rpg.rewards import Item, grader_for
from rpg.tasks import Problem, characters_of, load_problems, verifier_of
from rpg.tasks.preparation import prepare_data, read_problems


@dataclass(frozen=True)
class PromptPreview:
    """One problem: the text of its prompt, the number of tokens, and how the verifier reads the gold answer."""

    problem: Problem
    text: str
    tokens: int
    read: str | None
    """The answer that the verifier extracts from a response with just the gold answer; None if it grades by reward."""
    accepted: bool
    """Whether it grades that response as correct."""


@dataclass(frozen=True)
class DataPreview:
    """The first problems, and the longest prompt of all `total` problems."""

    shown: list[PromptPreview]
    total: int
    longest: int
    limit: int


def preview_prompts(spec: RunSpec, home: Path, count: int = 5) -> DataPreview:
    """Preview the first problems of a run's training data. Raises DataError, ModelError, StoreError, GradingError."""
    problems = read_problems(prepare_data(spec, home).train)
    tokenizer = tokenizer_of(spec, home)
    texts = [rendered(tokenizer, problem.given()) for problem in problems]
    lengths = [len(ids) for ids in encode(tokenizer, texts)]
    rows = zip(problems, texts, lengths, _gold_answers(spec, problems[:count]), strict=False)
    shown = [PromptPreview(problem, text, tokens, *gold) for problem, text, tokens, gold in rows]
    return DataPreview(shown, len(problems), max(lengths), spec.rollout.max_prompt_tokens)


def _gold_answers(spec: RunSpec, problems: Sequence[Problem]) -> list[tuple[str | None, bool]]:
    """(extracted answer, accepted) of responses that consist of the gold answers."""
    verifier = verifier_of(spec.task)
    if isinstance(verifier, RewardVerifier):
        return [(None, True) for _ in problems]
    items = [Item(verifier.written(p.answer), p.answer, columns=p.columns) for p in problems]
    with grader_for(verifier) as grader:
        grades = grader.grade(items)
    return [(grade.extracted, grade.correct) for grade in grades]


def tokenizer_of(spec: RunSpec, home: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a run's model; does not build the model."""
    if isinstance(spec.model, PretrainedModel):
        tokenizer = load_tokenizer(located(spec.model.path, home) or spec.model.path, spec.model.revision)
    elif warm_folder(spec, home).is_dir():
        return load_tokenizer(warm_folder(spec, home))
    else:
        tokenizer = build_tokenizer(characters_of(spec.task, load_problems(spec.task)))
    set_chat_template(tokenizer, chat_of(spec.task))
    return tokenizer
