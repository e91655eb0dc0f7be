"""What produces responses, behind one protocol: the local decoder, Hugging Face generate, vLLM.

Each sample has a key of its own, from which its randomness comes, so a rerun gives the same samples whatever was
already there. The local decoder and Hugging Face draw from the same numbers in the same way: their samples are equal
but for rounding. vLLM draws with a seed per sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rpg.errors import UserError
from rpg.models.truncated_sampling import WHOLE, Restriction
from rpg.tasks.problems import Given


class EngineError(UserError):
    """An engine that cannot be had or cannot go on; `str(error)` is one line."""


class Request(NamedTuple):
    """One sample to draw: the user's message or a conversation, and the key that all of its randomness comes from."""

    prompt: Given
    key: tuple


class Completion(NamedTuple):
    """One response. `ids` are its tokens, with the one that ended it; `truncated`: the length limit ended it."""

    text: str
    ids: tuple[int, ...]
    truncated: bool


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn. Temperature 0 is greedy."""

    temperature: float = 1.0
    max_prompt_tokens: int = 2048
    max_response_tokens: int = 2048
    restriction: Restriction = WHOLE
    """Which tokens can be drawn, and what ends a response besides end tokens."""

    def record(self) -> dict[str, Any]:
        """As plain data, by which evaluations are told apart."""
        found = asdict(self)
        found["restriction"]["stop"] = list(self.restriction.stop)
        if self.restriction == WHOLE:  # as it was before there was one
            del found["restriction"]
        return found


class Engine(Protocol):
    """Draws responses from one checkpoint after the other."""

    sampling: Sampling

    def load(self, model: str | Path, revision: str | None = None) -> None:
        """Use this model from now on: a Hugging Face folder or hub id.

        Raises:
            ModelError, EngineError
        """

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        """(index of the request, response) pairs in lists, as they are finished, in any order.

        Raises:
            DataError: a prompt is empty or too long.
        """

    def close(self) -> None:
        """Free what the engine holds."""
