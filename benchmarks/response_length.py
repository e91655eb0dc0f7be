"""What a step costs as responses get longer: processor seconds of sampling and of an update, one thread.

    python -m benchmarks.response_length [--lengths 42 128 512 1024] [--prompts 8] [--group 8]

A tiny model with random weights answers with as many tokens as it may (nothing ends a response), so all responses of a group
part early and little is shared: the worst case. Printed are seconds, and the exponent of the whole between the shortest and
the longest: 1 would be as many times the work as there are tokens, 2 that of attention alone.
"""

from __future__ import annotations

import argparse
import math
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from rpg.backends.local.passes import Limits, micro_batches
from rpg.config.model import TinyModel
from rpg.config.training import Training
from rpg.models.device import configure_device
from rpg.models.loading import build_tiny
from rpg.models.policy import Policy
from rpg.models.seeds import uniforms
from rpg.models.tokenizer import build_tokenizer
from rpg.processes import keep_memory


def measure(length: int, prompts: int, group: int) -> tuple[float, float]:
    """(processor seconds of sampling, of a forward and a backward pass as the trainer divides it)."""
    tokenizer = build_tokenizer("0123456789+-*/=#. abcdefgh")
    policy = Policy(build_tiny(TinyModel(max_positions=2048), tokenizer, seed=0), tokenizer)
    policy.stop = []
    numbers = torch.Generator().manual_seed(0)
    asked = [torch.randint(4, 20, (12,), generator=numbers).tolist() for _ in range(prompts)]
    began = time.process_time()
    samples = policy.sample(
        asked, group_size=group, max_new_tokens=length, uniforms=uniforms(prompts * group, length, "length"),
        temperature=1.0,
    )  # fmt: skip
    sampled = time.process_time()
    advantages = torch.ones(samples.batch.tokens.shape)
    for rows in micro_batches(samples.batch, advantages, Limits.of(Training(), policy)):
        policy.log_probs(samples.batch.rows(rows), 1.0).sum().backward()
    return sampled - began, time.process_time() - sampled


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[42, 128, 512, 1024])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2, help="of each length; the quickest counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    configure_device("cpu")
    keep_memory()  # as a training does
    measure(16, options.prompts, options.group)  # what is done once
    found = {}
    for length in options.lengths:
        rounds = [measure(length, options.prompts, options.group) for _ in range(options.rounds)]
        sampling, update = map(min, zip(*rounds, strict=True))
        found[length] = sampling + update
        print(f"{length:6} tokens: sampling {sampling:7.3f} s, update {update:7.3f} s", flush=True)
    short, long = min(found), max(found)
    print(f"exponent {short} to {long}: {math.log(found[long] / found[short]) / math.log(long / short):.2f}")


if __name__ == "__main__":
    main()
