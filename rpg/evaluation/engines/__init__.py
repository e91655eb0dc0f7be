"""What produces responses, behind one protocol: the local decoder, Hugging Face generate, vLLM.

Each sample has a key of its own, from which its randomness comes, so a rerun gives the same samples whatever was
already there. The local decoder and Hugging Face draw from the same numbers in the same way: their samples are equal
but for rounding. vLLM draws with a seed per sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from rpg.config.evaluation import EngineSpec, OnRay, Place
from rpg.errors import UserError


class EngineError(UserError):
    """An engine that cannot be had or cannot go on; `str(error)` is one line."""


class Request(NamedTuple):
    """One sample to draw: the user's message, and the key that all of its randomness comes from."""

    prompt: str
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


def start_engine(
    spec: EngineSpec,
    sampling: Sampling,
    device: str = "cpu",
    bfloat16: bool = False,
    place: Place | None = None,
    say: Callable[[str], None] = print,
) -> Engine:
    """An engine of the kind that `spec` names, in this process or where `place` says; its model comes with `load`.

    On a Ray cluster the place decides about the device. `say` gets lines about what the cluster does.

    Raises:
        EngineError: the engine's package is not installed, or the cluster cannot be had.
    """
    if isinstance(place, OnRay):
        from rpg.evaluation.engines.ray import RayEngine

        return RayEngine(sampling, spec, place, bfloat16, say)
    if spec.type in ("local", "huggingface") and device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise EngineError("device: 'cuda', but torch sees no GPU here; accepted on this machine: 'cpu'")
    if spec.type == "local":
        from rpg.evaluation.engines.local import LocalEngine

        return LocalEngine(sampling, device, bfloat16, spec.rows)
    if spec.type == "huggingface":
        from rpg.evaluation.engines.huggingface import HuggingFaceEngine

        return HuggingFaceEngine(sampling, device, bfloat16, spec.rows)
    from rpg.evaluation.engines.vllm import VllmEngine

    return VllmEngine(sampling, spec, bfloat16)
