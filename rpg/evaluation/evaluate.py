"""Graded samples of one checkpoint on one benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rpg.backends.local import seeds
from rpg.backends.local.model import load_pretrained
from rpg.backends.local.policy import Policy
from rpg.backends.local.tokenizer import encode_prompts
from rpg.config.spec import MarkerVerifier
from rpg.data import read_problems
from rpg.rewards import grade
from rpg.tasks import Problem

_ROWS = 512
"""Responses decoded at a time."""


def evaluate_checkpoint(
    checkpoint: Path,
    benchmark: Path,
    *,
    samples_per_problem: int,
    temperature: float,
    seed: int,
    verifier: MarkerVerifier,
    max_prompt_tokens: int,
    max_response_tokens: int,
    device: str = "cpu",
    bfloat16: bool = False,
) -> list[dict[str, Any]]:
    """One row per sample, with the columns of rpg.store.run.EVAL_COLUMNS.

    `checkpoint` is a Hugging Face model folder, `benchmark` a Parquet file of rpg.data. Temperature 0 is greedy (all
    samples of a problem are then equal, so there is one). Sample k of a problem depends on the seed, the problem's id
    and k alone: a rerun, another order of problems or more samples per problem give the same ones.

    Raises:
        ModelError, DataError
    """
    model, tokenizer = load_pretrained(checkpoint)
    policy = Policy(model.to(device), tokenizer, bfloat16=bfloat16)
    return evaluate_policy(
        policy,
        read_problems(benchmark),
        samples_per_problem=samples_per_problem,
        temperature=temperature,
        seed=seed,
        verifier=verifier,
        max_prompt_tokens=max_prompt_tokens,
        max_response_tokens=max_response_tokens,
    )


def evaluate_policy(
    policy: Policy,
    problems: Sequence[Problem],
    *,
    samples_per_problem: int,
    temperature: float,
    seed: int,
    verifier: MarkerVerifier,
    max_prompt_tokens: int,
    max_response_tokens: int,
) -> list[dict[str, Any]]:
    """The same for a policy in memory."""
    greedy = temperature == 0
    count = 1 if greedy else samples_per_problem
    encoded = encode_prompts(policy.tokenizer, [p.prompt for p in problems], max_prompt_tokens)
    chunk = max(1, _ROWS // count)
    rows = []
    for start in range(0, len(problems), chunk):
        part = problems[start : start + chunk]
        uniforms = None
        if not greedy:
            draws = [
                seeds.uniforms(1, max_response_tokens, seed, "evaluation", p.id, k)
                for p in part
                for k in range(count)
            ]
            uniforms = torch.cat(draws)
        samples = policy.sample(
            encoded[start : start + chunk],
            group_size=count,
            max_new_tokens=max_response_tokens,
            uniforms=uniforms,
            temperature=temperature or 1.0,
        )
        lengths, cut = samples.batch.lengths.tolist(), samples.truncated.tolist()
        for row, text in enumerate(policy.text(samples.batch)):
            problem = part[row // count]
            found = grade(verifier, text, problem.answer, cut[row])
            rows.append(
                {
                    "problem_id": problem.id,
                    "sample": row % count,
                    "problem": problem.text,
                    "answer": problem.answer,
                    "response": text,
                    "extracted": found.extracted,
                    "correct": found.correct,
                    "reason": found.reason,
                    "tokens": lengths[row],
                    "truncated": cut[row],
                }
            )
    return rows
