"""The protocol of the engines that generate responses: the local decoder, and vLLM.

Every sample has a key that determines its randomness, so a rerun gives the same samples, whichever
exist already.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rpg.errors import UserError
from rpg.models.truncated_sampling import Sampling
from rpg.tasks.problems import Given


class EngineError(UserError):
    """An engine that cannot start or continue; `str(error)` is one line."""


class Request(NamedTuple):
    """A sample to draw: the user's message or a conversation, and its randomness: seed, purpose,
    problem and k."""

    prompt: Given
    key: tuple[int, str, str, int]
    columns: Mapping[str, Any] = {}
    """The other columns of the problem, for an environment."""
    with_turns: bool = False
    """There is an environment: the response depends on the columns, too."""


class Completion(NamedTuple):
    """A response. `truncated`: the length limit ended it."""

    text: str
    ids: tuple[int, ...]
    """Its tokens, whoever wrote them, including the end token."""
    truncated: bool
    turns: Sequence[str] | None = None
    """Of a conversation: the policy's and the environment's in turn."""
    earned: float | None = None
    """What the environment's `get_reward` returned."""
    heard: tuple[int, ...] | None = None
    """Of a conversation: the places in `ids` of the tokens that the environment wrote."""
    prompt_ids: tuple[int, ...] | None = None
    """Of a conversation: the tokens of its prompt, to which the environment may have added."""

    @property
    def written(self) -> int:
        """The number of tokens that the policy wrote."""
        return len(self.ids) - len(self.heard or ())


class Engine(Protocol):
    """Generates responses, from one checkpoint after another."""

    sampling: Sampling
    tell: Callable[[int, int], None]
    """Called while responses are drawn together, with how many have ended and how long the others
    are; an engine that hands responses out one by one need not call it."""

    def load(self, model: str | Path, revision: str | None = None) -> None:
        """Switch to this model: a Hugging Face folder or hub id. Raises ModelError, EngineError."""

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        """Lists of (request's index, response), as they are finished. Raises DataError: a prompt is
        empty or too long."""

    def close(self) -> None:
        """Free what the engine holds."""
