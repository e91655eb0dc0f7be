"""What a check says: a line with a figure, and whether it held."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rpg.planning.model_shapes import Shape

SHAPES = {
    "qwen3-0.6b": Shape(28, 1024, 16, 8, 128, 3072, 151936, tied=True, qk_norm=True),
    "tiny": Shape(2, 128, 4, 2, 32, 192, 512, tied=True, qk_norm=True),
}


@dataclass(frozen=True)
class Line:
    """`held` is None where the check could not be done here."""

    name: str
    figure: str
    held: bool | None

    def __str__(self) -> str:
        mark = {True: "ok", False: "NO", None: "--"}[self.held]
        return f"{mark}  {self.name}: {self.figure}"


@dataclass(frozen=True)
class Size:
    """How large the checks are."""

    device: str
    shape: Shape
    prompts: int
    tokens: int
    """Per response."""
    rows: tuple[int, ...]
    """Of the repeated rollouts."""

    @property
    def cuda(self) -> bool:
        return self.device == "cuda"


CARD = Size("cuda", SHAPES["qwen3-0.6b"], prompts=32, tokens=384, rows=(8, 44, 128))
DRY = Size("cpu", SHAPES["tiny"], prompts=4, tokens=16, rows=(8, 44, 128))


def random_model(shape: Shape, device: str, seed: int = 0) -> Qwen3ForCausalLM:
    """A Qwen3 of this shape with random weights: nothing depends on the hub."""
    config = Qwen3Config(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocabulary,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    torch.manual_seed(seed)
    with torch.device(device):
        return Qwen3ForCausalLM(config).eval()


def seconds(function: Callable[[], Any], size: Size, repeats: int = 1) -> float:
    """Seconds of one call, all of its work on the device included."""
    if size.cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    if size.cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats
