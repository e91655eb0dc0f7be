"""A tokenizer with one token per character; prompts, chat templates and stop strings for any
tokenizer."""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from jinja2 import TemplateError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from rpg.config.data_source import Chat
from rpg.models.special_tokens import encode, frame_of
from rpg.tasks import DataError
from rpg.tasks.problems import Given

PAD = "<pad>"
BOS = "<bos>"
EOS = "<eos>"
UNKNOWN = "<unk>"
_SPARE = 8
"""Special tokens that a tokenizer may add to a text."""
# The tiny model sees the bare problem after one begin token, instead of a chat.
_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer(characters: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token per character, in sorted order after <pad> <bos> <eos> <unk>; decode(encode(x)) ==
    x."""
    tokens = [PAD, BOS, EOS, UNKNOWN]
    tokens += sorted(set(characters))
    vocabulary = {token: number for number, token in enumerate(tokens)}
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
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Given],
    limit: int,
    tools: Sequence[Any] = (),
) -> list[list[int]]:
    """Token ids of user messages or conversations, formatted by the tokenizer's chat template if it
    has one, which is also given descriptions of `tools`.

    Raises DataError: a prompt has no tokens, or more than `limit`; the template cannot format a
    conversation.
    """
    encoded = encode(tokenizer, [rendered(tokenizer, prompt, tools) for prompt in prompts])
    problem = _outside_limit(prompts, encoded, limit)
    if problem is not None:
        raise DataError(problem)
    return encoded


def check_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Given], limit: int
) -> str | None:
    """Which prompts of a run have no tokens or more than `limit`, in one line; None if there are
    none."""
    texts = [rendered(tokenizer, prompt) for prompt in prompts]
    # A token is hardly ever less than a byte, so most prompts need not be encoded.
    suspects = [i for i, text in enumerate(texts) if len(text.encode()) + _SPARE > limit]
    if not suspects:
        return None
    encoded = encode(tokenizer, [texts[i] for i in suspects])
    return _outside_limit([prompts[i] for i in suspects], encoded, limit)


def _outside_limit(
    prompts: Sequence[Given], encoded: Sequence[Sequence[int]], limit: int
) -> str | None:
    outside = [i for i, ids in enumerate(encoded) if not 1 <= len(ids) <= limit]
    if not outside:
        return None
    worst = max(outside, key=lambda i: len(encoded[i]))
    prompt = prompts[worst]
    tokens = len(encoded[worst])
    several = len(outside) > 1 and tokens > 0
    subject = f"{len(outside):,} prompts are longer, the longest has" if several else "a prompt has"
    start = (prompt if isinstance(prompt, str) else prompt[-1]["content"])[:80]
    return f"rollout.max_prompt_tokens: {limit}, but {subject} {tokens} tokens: {start!r}"


def rendered(tokenizer: PreTrainedTokenizerBase, prompt: Given, tools: Sequence[Any] = ()) -> str:
    """The text that the model sees before its response. Raises DataError: a conversation without a
    template, or one that the template cannot format.
    """
    if not tokenizer.chat_template:
        if isinstance(prompt, str):
            return prompt
        raise DataError(
            "task.chat: the model's tokenizer has no chat template to format a conversation "
            "with; name one: "
            "task.chat.template: my.jinja"
        )
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    try:
        how = {"tools": list(tools) or None, "tokenize": False, "add_generation_prompt": True}
        text = tokenizer.apply_chat_template(messages, **how)
    except (TemplateError, ValueError, TypeError) as error:
        first = str(error).partition("\n")[0]
        raise DataError(
            f"task.chat: the chat template cannot format this conversation: {first}"
        ) from error
    return str(text)


def set_chat_template(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
    """Write a task's template, its options and the assistant's prefix into the tokenizer's chat
    template.

    They are then saved with every checkpoint and used by everybody: our engines, verl, vLLM, a
    user. Raises DataError: there is a prefix or an option, but no template.
    """
    if not changes_chat_template(chat):
        return
    template = _with_begin(tokenizer, chat.template) if chat.template else tokenizer.chat_template
    if not template:
        why = (
            "task.chat: the model's tokenizer has no chat template; name one: "
            "task.chat.template: my.jinja"
        )
        raise DataError(why)
    written = partial(
        json.dumps, ensure_ascii=False
    )  # Jinja does not join JSON's halves of a character
    options = "".join(
        f"{{%- set {name} = {written(value)} -%}}" for name, value in chat.options.items()
    )
    prefix = f"{{%- if add_generation_prompt %}}{{{{ {written(chat.prefix)} }}}}{{% endif -%}}"
    tokenizer.chat_template = options + template + (prefix if chat.prefix else "")


def _with_begin(tokenizer: PreTrainedTokenizerBase, template: str) -> str:
    """A task's template, behind the begin token that the tokenizer puts before every text, unless
    the template writes it itself."""
    bos = tokenizer.bos_token
    if not bos or frame_of(tokenizer).before != (tokenizer.bos_token_id,):
        return template
    return template if "bos_token" in template or str(bos) in template else BEGIN + template


BEGIN = "{{- bos_token -}}"


def changes_chat_template(chat: Chat) -> bool:
    """Whether a task needs another template than the tokenizer's own."""
    return bool(chat.template or chat.options or chat.prefix)


_MARGIN = 4
"""Tokens to decode beyond the bytes of a stop string: tokens may be parts of characters, or depend
on their neighbours."""


class Stopper:
    """Recognises responses that have just completed one of `texts`; special tokens count as text.

    Attributes:
        tail: how many of a response's last tokens are decoded.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]):
        self.tokenizer, self.texts = tokenizer, tuple(texts)
        self.tail = max(len(text.encode()) for text in texts) + _MARGIN

    def __call__(self, responses: list[list[int]]) -> list[bool]:
        """Whether the last token of each response (token ids; the last `tail` suffice) completes a
        stop string."""
        tails = [ids[-self.tail :] for ids in responses]
        completed = []
        for tail, text in zip(tails, self._decoded(tails), strict=True):
            contained = [stop for stop in self.texts if stop in text]
            before = self._decoded([tail[:-1]])[0] if contained else ""
            completed.append(any(_count(stop, text) > _count(stop, before) for stop in contained))
        return completed

    def _decoded(self, ids: list[list[int]]) -> list[str]:
        how = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        texts: list[str] = self.tokenizer.batch_decode(ids, **how)
        return texts


def _count(stop: str, text: str) -> int:
    """Occurrences, overlapping ones included: `aa` is twice in `aaa`."""
    return sum(text.startswith(stop, place) for place in range(len(text)))
