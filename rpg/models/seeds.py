"""Counter-based random numbers: (seed, purpose, step, ...) always gives the same numbers.

No generator's state has to be saved, and runs with the same seed see the same prompts and the same
uniforms whatever their algorithm.
"""

import hashlib

import torch
from torch import Tensor


def number(*key: object) -> int:
    """63 bits that depend on all parts of the key."""
    text = "\0".join(map(str, key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def uniforms(rows: int, columns: int, *key: object) -> Tensor:
    """(rows, columns) in [0, 1)."""
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(number(*key)))


def permutation(size: int, *key: object) -> Tensor:
    """(size,) a random order."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(number(*key)))
