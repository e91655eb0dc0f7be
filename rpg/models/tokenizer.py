"""A tokenizer with one token per character, and how prompts and responses pass through any tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from rpg.tasks import DataError

PAD, BOS, EOS, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
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
    if tokenizer.chat_template:
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
        encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    else:
        encoded = tokenizer(list(prompts))["input_ids"]
    for prompt, ids in zip(prompts, encoded, strict=True):
        if not 1 <= len(ids) <= limit:
            raise DataError(
                f"rollout.max_prompt_tokens: {limit}, but a prompt has {len(ids)} tokens: {prompt[:80]!r}"
            )
    return encoded


def stop_tokens(tokenizer: PreTrainedTokenizerBase, model) -> list[int]:
    """Ids that end a response: those of the model's generation config and the tokenizer's end of sequence."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return sorted({i for i in (*ids, tokenizer.eos_token_id) if i is not None})
