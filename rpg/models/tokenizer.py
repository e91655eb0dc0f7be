"""A tokenizer with one token per character, and how prompts and responses pass through any tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from jinja2 import TemplateError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from rpg.config.data_source import Chat
from rpg.tasks import DataError
from rpg.tasks.problems import Given

PAD, BOS, EOS, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
_SPARE = 8
"""Tokens that a tokenizer may add to a text of its own accord."""
# The tiny model sees the bare problem: what a chat is to larger models is one begin token here.
_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer(characters: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token per character, in sorted order after <pad> <bos> <eos> <unk>; decode(encode(x)) == x."""
    vocabulary = {token: i for i, token in enumerate((PAD, BOS, EOS, UNKNOWN, *sorted(set(characters))))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=_TEMPLATE,
    )


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Given], limit: int
) -> list[list[int]]:
    """Token ids of user messages or conversations, with the tokenizer's chat template where it has one.

    Raises:
        DataError: a prompt has no tokens, or more than `limit`; a conversation that cannot be shown.
    """
    encoded = _encode(tokenizer, prompts)
    if (wrong := outside(prompts, encoded, limit)) is not None:
        raise DataError(wrong)
    return encoded


def check_prompts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Given], limit: int) -> str | None:
    """What is wrong with the prompts of a run, in one line; None where all have between 1 and `limit` tokens."""
    # Hardly a token is less than a byte, so most prompts need not be encoded.
    suspects = [prompt for prompt in prompts if len(rendered(tokenizer, prompt).encode()) + _SPARE > limit]
    return outside(suspects, _encode(tokenizer, suspects), limit) if suspects else None


def outside(prompts: Sequence[Given], encoded: Sequence[Sequence[int]], limit: int) -> str | None:
    """Which of the prompts have too many tokens, or none."""
    wrong = [i for i, ids in enumerate(encoded) if not 1 <= len(ids) <= limit]
    if not wrong:
        return None
    worst = max(wrong, key=lambda i: len(encoded[i]))
    what = "a prompt has" if len(wrong) == 1 else f"{len(wrong):,} prompts are longer, the longest has"
    if not encoded[worst]:
        what = "a prompt has"
    return f"rollout.max_prompt_tokens: {limit}, but {what} {len(encoded[worst])} tokens: {_shown(prompts[worst])!r}"


def _shown(prompt: Given) -> str:
    return (prompt if isinstance(prompt, str) else prompt[-1]["content"])[:80]


def _encode(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Given]) -> list[list[int]]:
    own = {"add_special_tokens": False} if tokenizer.chat_template else {}  # a template writes them itself
    return tokenizer([rendered(tokenizer, prompt) for prompt in prompts], **own)["input_ids"]


def rendered(tokenizer: PreTrainedTokenizerBase, prompt: Given) -> str:
    """The text that the model is given, up to where its response begins.

    Raises:
        DataError: a conversation without a template, or a template that cannot show it.
    """
    if not tokenizer.chat_template:
        if isinstance(prompt, str):
            return prompt
        raise DataError(
            "task.chat: the model's tokenizer has no chat template to show a conversation with; name one: "
            "task.chat.template: my.jinja"
        )
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except (TemplateError, ValueError, TypeError) as error:
        first = str(error).partition("\n")[0]
        raise DataError(f"task.chat: the chat template cannot show this conversation: {first}") from error
    return str(text)


def dress(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
    """Make template, options and the assistant's prefix of a task part of the tokenizer's chat template.

    They are then saved with every checkpoint, and whoever asks it is given them: our engines, verl, vLLM, a user.

    Raises:
        DataError: there is a prefix or an option, and no template to put it into.
    """
    if not dresses(chat):
        return
    template = chat.template or tokenizer.chat_template
    if not template:
        raise DataError(
            "task.chat: the model's tokenizer has no chat template; name one: task.chat.template: my.jinja"
        )
    told = "".join(f"{{%- set {name} = {_literal(value)} -%}}" for name, value in chat.options.items())
    begun = (
        f"{{%- if add_generation_prompt %}}{{{{ {_literal(chat.prefix)} }}}}{{% endif -%}}"
        if chat.prefix
        else ""
    )
    tokenizer.chat_template = told + template + begun


def dresses(chat: Chat) -> bool:
    """Whether a task asks for another template than the tokenizer's own."""
    return bool(chat.template or chat.options or chat.prefix)


def _literal(value: bool | int | float | str) -> str:
    """A value as Jinja writes it."""
    return json.dumps(value) if not isinstance(value, bool) else str(value).lower()


def stop_tokens(tokenizer: PreTrainedTokenizerBase, model) -> list[int]:
    """Ids that end a response: those of the model's generation config and the tokenizer's end of sequence."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return sorted({i for i in (*ids, tokenizer.eos_token_id) if i is not None})
