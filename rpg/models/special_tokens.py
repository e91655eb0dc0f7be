"""What a prompt begins and ends with, and what ends a turn: decided here, for every engine and
trainer.

Three things have a say, and they need not agree: the chat template, which writes special tokens as
text; the tokenizer's post-processor, which adds some to every text; and the generation config,
which lists tokens that end a response. What is changed here is said (`notes`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import GenerationConfig, PreTrainedTokenizerBase

_PROBE = "x"
"""A text of no meaning, to see what stands around a text."""


@dataclass(frozen=True)
class Frame:
    """The tokens that a tokenizer puts around a text by itself."""

    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()


def frame_of(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """What the tokenizer's post-processor adds to a text."""
    bare: list[int] = tokenizer(_PROBE, add_special_tokens=False)["input_ids"]
    whole: list[int] = tokenizer(_PROBE)["input_ids"]
    for start in range(len(whole) - len(bare) + 1):
        end = start + len(bare)
        if whole[start:end] == bare:
            return Frame(tuple(whole[:start]), tuple(whole[end:]))
    return Frame()


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """Token ids of prompts as text.

    A chat template writes special tokens itself. Without one the tokenizer's post-processor adds
    them, but what it puts behind a text is left out: a response cannot follow the end of a text.
    """
    options = {"add_special_tokens": False} if tokenizer.chat_template else {}
    ids: list[list[int]] = tokenizer(texts, **options)["input_ids"]
    if tokenizer.chat_template:
        return ids
    added = len(frame_of(tokenizer).behind)
    return [row[: len(row) - added] for row in ids]


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that ends a turn of the model: the added token that the chat template writes right
    behind what the assistant says. None without a template, or where it writes none there.
    """
    if not tokenizer.chat_template:
        return None
    said = [{"role": "user", "content": _PROBE}, {"role": "assistant", "content": _PROBE * 2}]
    try:
        text = str(tokenizer.apply_chat_template(said, tokenize=False))
    except (TemplateError, ValueError, TypeError):  # it is shown where a prompt is rendered
        return None
    _, found, behind = text.rpartition(_PROBE * 2)
    ids: list[int] = tokenizer(behind.lstrip(), add_special_tokens=False)["input_ids"]
    added = set(tokenizer.added_tokens_decoder) | set(tokenizer.all_special_ids)
    if found and ids and ids[0] in added:
        return ids[0]
    return None


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that are no text."""
    added = tokenizer.added_tokens_decoder.items()
    special = {number for number, token in added if token.special}
    return special | set(tokenizer.all_special_ids)


def last_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that a demonstration ends with."""
    end = end_of_turn(tokenizer)
    return int(tokenizer.eos_token_id) if end is None else end


def stop_tokens(
    tokenizer: PreTrainedTokenizerBase, generation_config: GenerationConfig | None
) -> list[int]:
    """Ids that end a response: those of a model's generation config, the tokenizer's end of
    sequence, and what ends a turn in the chat template."""
    ids = {*_configured(generation_config), tokenizer.eos_token_id, end_of_turn(tokenizer)}
    return sorted(number for number in ids if number is not None)


def _configured(generation_config: GenerationConfig | None) -> list[int]:
    configured = getattr(generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return [number for number in ids if number is not None]


def notes(
    tokenizer: PreTrainedTokenizerBase, generation_config: GenerationConfig | None
) -> list[str]:
    """What is done otherwise than the model's files say, and what is missing; a line each."""
    lines = []
    frame = frame_of(tokenizer)
    end = end_of_turn(tokenizer)
    if frame.behind and not tokenizer.chat_template:
        lines.append(
            f"the tokenizer puts {_names(tokenizer, frame.behind)} behind every text; "
            "it is left out behind a prompt, which a response follows"
        )
    if frame.before and tokenizer.chat_template and not _writes(tokenizer, frame.before):
        lines.append(
            f"the tokenizer puts {_names(tokenizer, frame.before)} before every text, and the chat "
            "template does not write it: prompts begin without it, as in vLLM and verl"
        )
    listed = {*_configured(generation_config), tokenizer.eos_token_id}
    if end is not None and end not in listed:
        lines.append(
            f"the chat template ends a turn with {_names(tokenizer, [end])}, which is in no "
            "list of "
            "end tokens; it ends responses, too"
        )
    if not stop_tokens(tokenizer, generation_config):
        lines.append("warning: no token ends a response; it goes on to rollout.max_response_tokens")
    return lines


def _writes(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> bool:
    """Whether prompts of the chat template begin with these tokens."""
    asked = [{"role": "user", "content": _PROBE}]
    try:
        text = str(tokenizer.apply_chat_template(asked, tokenize=False))
    except (TemplateError, ValueError, TypeError):
        return True
    begin: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return begin[: len(ids)] == list(ids)


def _names(tokenizer: Any, ids: Sequence[int]) -> str:
    return " ".join(map(str, tokenizer.convert_ids_to_tokens(list(ids))))


def marked(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """A prompt with its special tokens in square quotes, as text between them."""
    special = special_ids(tokenizer)
    parts: list[str] = []
    plain: list[int] = []
    for number in [*ids, None]:
        if number is not None and number not in special:
            plain.append(number)
            continue
        if plain:
            parts.append(str(tokenizer.decode(plain)))
            plain = []
        if number is not None:
            parts.append(f"⟦{_names(tokenizer, [number])}⟧")
    return "".join(parts)
