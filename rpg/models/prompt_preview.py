"""A run's prompts, as its model will see them."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from rpg.config.model import PretrainedModel, located
from rpg.config.run_spec import RunSpec
from rpg.config.task import chat_of
from rpg.models.model_loading import load_tokenizer
from rpg.models.tokenizer import build_tokenizer, encode, rendered, set_chat_template
from rpg.models.warm_start_cache import warm_folder
from rpg.tasks import Problem, characters_of, load_problems
from rpg.tasks.preparation import prepare_data, read_problems


def preview_prompts(spec: RunSpec, home: Path) -> list[tuple[Problem, str, int]]:
    """Every training problem with the text of its prompt and its length in tokens. Raises DataError, ModelError,
    StoreError.
    """
    problems = read_problems(prepare_data(spec, home).train)
    tokenizer = tokenizer_of(spec, home)
    texts = [rendered(tokenizer, problem.given()) for problem in problems]
    return list(zip(problems, texts, map(len, encode(tokenizer, texts)), strict=True))


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
