"""A step of the embedded trainer on random weights of a real shape: its rates and its memory."""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_check.lines import Line, Size, random_model, seconds
from rpg.backends.local.rollout import Roller
from rpg.backends.local.trainer import Trainer
from rpg.backends.local.training_loop import configure_torch
from rpg.config.load import resolve
from rpg.config.run_spec import RunSpec
from rpg.models.policy import Policy
from rpg.models.tokenizer import build_tokenizer
from rpg.planning.bench.our_step import Even
from rpg.planning.space import CONTEXT, memory
from rpg.tasks import characters_of, load_problems

SHARE = 0.1
"""Of the rate of a large product, which an update has to reach (an H100: an eighth)."""
ABOVE = 1.15
"""A peak may be so much of its forecast; below it, the forecast is for the longest responses."""
GROUP = 8
UPDATE = 6
"""Operations per weight and token."""


def spec_of(size: Size, folder: Path, **model: Any) -> RunSpec:
    run = {
        "task": {"type": "chain"},
        "model": {"type": "pretrained", "path": str(folder), "dtype": "bfloat16", **model},
        "algorithm": {"name": "rpg-reinforce-urkl", "beta": 0.01, "dynamic_sampling": False},
        "training": {
            "steps": 100,
            "prompts_per_step": size.prompts,
            "mini_batch_prompts": size.prompts // 2,
            "optimizer": {"type": "adamw", "learning_rate": 1e-5},
        },
        "rollout": {
            "group_size": GROUP,
            "max_prompt_tokens": 160,
            "max_response_tokens": size.tokens,
        },
        "backend": {"type": "local", "device": size.device},
    }
    return resolve(run, "gpu_check")


def trainer_of(spec: RunSpec, policy: Policy) -> Trainer:
    """A trainer that rewards an even number of characters, and of which no response ends early."""
    problems = load_problems(spec.task)
    policy.stop = []
    roller = Roller(spec, problems.train)
    roller.scorer = Even(roller.scorer, defaultdict(float))
    return Trainer(spec, policy, roller)


def policy_of(spec: RunSpec, size: Size) -> Policy:
    tokenizer = build_tokenizer(characters_of(spec.task, load_problems(spec.task)))
    return Policy(random_model(size.shape, size.device), tokenizer, bfloat16=True)


def product_rate(size: Size) -> float:
    """Operations a second of a large product in bfloat16."""
    width = 8192 if size.cuda else 512
    x = torch.randn(width, width, device=size.device, dtype=torch.bfloat16)
    seconds(lambda: x @ x, size, 3)  # the first ones choose kernels
    return 2 * width**3 / seconds(lambda: x @ x, size, 10)


def check(size: Size) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        random_model(size.shape, "meta").config.save_pretrained(folder)
        spec = spec_of(size, Path(folder))
        room = torch.cuda.get_device_properties(0).total_memory if size.cuda else 1e11
        foretold = memory(spec, float(room))
    assert foretold is not None
    configure_torch(spec)
    policy = policy_of(spec, size)
    weights = sum(weight.numel() for weight in policy.model.parameters())
    trainer = trainer_of(spec, policy)
    trainer.step(1)  # kernels are chosen and memory is taken
    if size.cuda:
        torch.cuda.reset_peak_memory_stats()
    row: dict[str, float] = {}
    whole = seconds(lambda: row.update(trainer.step(2)), size)
    drawn = size.prompts * GROUP * size.tokens
    rate = UPDATE * weights * drawn / row["seconds_update"]
    share = rate / product_rate(size)
    lines = [
        Line("step", f"{drawn:,} tokens in {whole:.2f} s, {drawn / whole:,.0f} tokens/s", True),
        Line("rollout", f"drawn at {drawn / row['seconds_rollout']:,.0f} tokens/s", True),
        Line(
            "update",
            f"{rate / 1e12:.3g} TFLOP/s, {share:.0%} of a large product (at least {SHARE:.0%})",
            share >= SHARE if size.cuda else None,
        ),
    ]
    if not size.cuda:
        return [*lines, Line("memory", "counted on a GPU only", None)]
    peak = torch.cuda.max_memory_allocated()
    expected = foretold.most - CONTEXT
    figure = f"{peak / 1e9:.1f} GB at most, {expected / 1e9:.1f} GB foretold"
    return [*lines, Line("memory", figure, peak <= ABOVE * expected)]
