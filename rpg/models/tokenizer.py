"""A tokenizer with one token per character, and how prompts and responses pass through any tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from rpg.tasks import DataError

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


def encode_prompts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], limit: int) -> list[list[int]]:
    """Token ids of user messages, with the tokenizer's chat template where it has one.

    Raises:
        DataError: a prompt has no tokens, or more than `limit`.
    """
    encoded = _encode(tokenizer, prompts)
    if (wrong := outside(prompts, encoded, limit)) is not None:
        raise DataError(wrong)
    return encoded


def check_prompts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], limit: int) -> str | None:
    """What is wrong with the prompts of a run, in one line; None where all have between 1 and `limit` tokens."""
    # Hardly a token is less than a byte, so most prompts need not be encoded.
    around = len(_encode(tokenizer, ["a"])[0]) + _SPARE
    suspects = [prompt for prompt in prompts if len(prompt.encode()) + around > limit]
    return outside(suspects, _encode(tokenizer, suspects), limit) if suspects else None


def outside(prompts: Sequence[str], encoded: Sequence[Sequence[int]], limit: int) -> str | None:
    """Which of the prompts have too many tokens, or none."""
    wrong = [i for i, ids in enumerate(encoded) if not 1 <= len(ids) <= limit]
    if not wrong:
        return None
    worst = max(wrong, key=lambda i: len(encoded[i]))
    what = "a prompt has" if len(wrong) == 1 else f"{len(wrong):,} prompts are longer, the longest has"
    if not encoded[worst]:
        what = "a prompt has"
    return f"rollout.max_prompt_tokens: {limit}, but {what} {len(encoded[worst])} tokens: {prompts[worst][:80]!r}"


def _encode(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> list[list[int]]:
    if tokenizer.chat_template:
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
        return tokenizer(texts, add_special_tokens=False)["input_ids"]
    return tokenizer(list(prompts))["input_ids"]


def stop_tokens(tokenizer: PreTrainedTokenizerBase, model) -> list[int]:
    """Ids that end a response: those of the model's generation config and the tokenizer's end of sequence."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return sorted({i for i in (*ids, tokenizer.eos_token_id) if i is not None})
