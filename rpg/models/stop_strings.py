"""Stop strings: texts that end a response although the model would continue."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_MARGIN = 4
"""Tokens to decode beyond the bytes of a stop string: tokens may be parts of characters, or depend on their neighbours."""


class Stopper:
    """Recognises responses that have just completed one of `texts`; special tokens count as text.

    Attributes:
        tail: how many of a response's last tokens are decoded.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]):
        self.tokenizer, self.texts = tokenizer, tuple(texts)
        self.tail = max(len(text.encode()) for text in texts) + _MARGIN

    def __call__(self, responses: list[list[int]]) -> list[bool]:
        """For each response (token ids; the last `tail` suffice), whether its last token completes a stop string."""
        tails = [ids[-self.tail :] for ids in responses]
        completed = []
        for tail, text in zip(tails, self._decoded(tails), strict=True):
            contained = [stop for stop in self.texts if stop in text]
            before = self._decoded([tail[:-1]])[0] if contained else ""
            completed.append(any(_count(stop, text) > _count(stop, before) for stop in contained))
        return completed

    def _decoded(self, ids: list[list[int]]) -> list[str]:
        texts: list[str] = self.tokenizer.batch_decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return texts


def _count(stop: str, text: str) -> int:
    """Occurrences, overlapping ones included: `aa` is twice in `aaa`."""
    return sum(text.startswith(stop, place) for place in range(len(text)))
