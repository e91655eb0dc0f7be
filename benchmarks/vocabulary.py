"""Log-probabilities over a large vocabulary, with their gradient: time and memory, beside the plain
way.

    python benchmarks/vocabulary.py [--positions 2048 8192] [--vocabulary 151936] [--hidden 1024]
    [--plain 2048]

Forward and backward pass of `rpg.models.chunked_log_prob` on a number of positions, on one thread,
each in its own process: processor seconds, and peak memory beyond hidden states and weights (their
gradients are in it). The plain way (product, log_softmax, gather) is measured up to `--plain`
positions; it takes 2.3 GiB per 1,000.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from rpg.models.chunked_log_prob import chosen_log_prob


def plain(
    hidden: Tensor, weight: Tensor, position: Tensor, token: Tensor, temperature: float
) -> Tensor:
    return (hidden @ weight.t() / temperature).log_softmax(-1)[position, token]


WAYS = {"in parts": lambda *given: chosen_log_prob(*given)[0], "plain": plain}


def peak() -> float:
    """Most memory this process has had, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(way: str, positions: int, vocabulary: int, width: int) -> dict[str, float]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(positions, width, requires_grad=True)
    weight = torch.randn(vocabulary, width).mul_(width**-0.5).requires_grad_()
    position = torch.arange(positions)
    token = torch.randint(0, vocabulary, (positions,))
    slope = torch.randn(positions)
    before, began = peak(), time.process_time()
    values = WAYS[way](hidden, weight, position, token, 0.9)
    (values * slope).sum().backward()
    assert weight.grad is not None
    checksum = float(weight.grad.abs().sum())
    return {"seconds": time.process_time() - began, "GiB": peak() - before, "checksum": checksum}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--positions", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--plain", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        way, positions = options.only
        print(json.dumps(measure(way, int(positions), options.vocabulary, options.hidden)))
        return
    sizes = ["--vocabulary", str(options.vocabulary), "--hidden", str(options.hidden)]
    for positions in options.positions:
        for _ in range(options.rounds):
            for way in WAYS:
                if way == "plain" and positions > options.plain:
                    continue
                command = [sys.executable, __file__, *sizes, "--only", way, str(positions)]
                out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                row = json.loads(out)
                print(
                    f"{positions:6} positions, {way:8}: {row['seconds']:7.2f} cpu s, "
                    f"{row['GiB']:5.2f} GiB, "
                    f"sum of |gradient| {row['checksum']:.6g}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
