"""Stop texts: where a response ends although the model would go on."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_MARGIN = 4
"""Tokens more than a stop text has bytes: some are a part of a character, or change beside others."""


class Stopper:
    """Knows which responses have just come to one of `texts`; special tokens are text here.

    Attributes:
        tail: how many of a response's last tokens are looked at.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]):
        self.tokenizer, self.texts = tokenizer, tuple(texts)
        self.tail = max(len(text.encode()) for text in texts) + _MARGIN

    def __call__(self, responses: list[list[int]]) -> list[bool]:
        """For each response (token ids; the last `tail` will do), whether its last token completes a stop text."""
        ends = [ids[-self.tail :] for ids in responses]
        found = []
        for end, text in zip(ends, self._shown(ends), strict=True):
            there = [stop for stop in self.texts if stop in text]
            before = self._shown([end[:-1]])[0] if there else ""
            found.append(any(_times(stop, text) > _times(stop, before) for stop in there))
        return found

    def _shown(self, ids: list[list[int]]) -> list[str]:
        return self.tokenizer.batch_decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _times(stop: str, text: str) -> int:
    """How often it stands there; `aa` twice in `aaa`."""
    return sum(text.startswith(stop, place) for place in range(len(text)))
