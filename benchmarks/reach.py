"""Which data sets of Reasoning Gym a small model answers sometimes, after a short supervised start:
the share of right samples at temperature 1 on held-out problems, with a 95 % interval over
problems.

    # all of LADDER, those in the file left out
    python -m benchmarks.reach reach.jsonl --home rpg-data
    python -m benchmarks.reach reach.jsonl --only word_sorting countdown   # some of them
    # the table of docs/measured.md
    python -m benchmarks.reach reach.jsonl --table

One set takes a minute or two of processor time. Results are appended, so a stopped measurement goes
on where it was. Reinforcement learning needs groups with right and wrong responses: 10 to 60 % is
within reach.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rpg.config.load import read_mapping, resolve
from rpg.models import seeds
from rpg.models.decoding import SamplingPlan
from rpg.models.initial_policy import initial_policy
from rpg.models.tokenizer import encode_prompts
from rpg.stats import accuracy
from rpg.tasks import verifier_of
from rpg.tasks.preparation import prepare_data, read_problems
from rpg.tasks.rewards.scoring import Answered, Scorer

BASE = Path(__file__).parents[1] / "configs" / "runs" / "gym-lists.yaml"
LADDER: dict[str, tuple[str, dict[str, Any]]] = {
    "leg_counting": (
        "words",
        {"min_animals": 2, "max_animals": 2, "min_instances": 1, "max_instances": 4},
    ),
    "calendar_arithmetic": ("words", {}),
    "time_intervals": ("words", {}),
    "family_relationships": ("words", {}),
    "gsm_symbolic": ("words", {}),
    "chain_sum": ("symbols", {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}),
    "simple_equations": (
        "symbols",
        {"min_terms": 2, "max_terms": 2, "min_value": 1, "max_value": 9},
    ),
    "gcd": ("symbols", {"min_value": 1, "max_value": 40}),
    "letter_counting": ("symbols", {"min_words": 2, "max_words": 4}),
    "ab": ("symbols", {"length": 5}),
    "number_format": ("symbols", {"max_num_candidates": 3, "max_delta": 1000}),
    "spell_backward": ("symbols", {"min_word_len": 3, "max_word_len": 4}),
    "word_sequence_reversal": ("lists", {"min_words": 3, "max_words": 5}),
    "word_sorting": ("lists", {"min_words": 3, "max_words": 4}),
    "number_filtering": ("lists", {"min_numbers": 3, "max_numbers": 4, "max_decimals": 1}),
    "syllogism": ("logic", {}),
    "knights_knaves": ("logic", {}),
    "propositional_logic": (
        "logic",
        {"min_vars": 2, "max_vars": 3, "min_statements": 2, "max_statements": 3},
    ),
    "countdown": (
        "many answers",
        {"min_numbers": 3, "max_numbers": 3, "max_value": 12, "min_target": 5, "max_target": 40},
    ),
    "shortest_path": (
        "many answers",
        {"min_rows": 3, "max_rows": 3, "min_cols": 3, "max_cols": 3, "p_blocked": 0.2},
    ),
    "palindrome_generation": ("many answers", {"min_length": 3, "max_length": 5}),
}
"""Data set -> kind, and settings that make it as easy as its generator can."""


def measure(name: str, home: Path, problems: int, threads: int, device: str) -> dict[str, Any]:
    """Accuracy of the policy that reinforcement learning would begin with."""
    torch.set_num_threads(threads)
    kind, config = LADDER[name]
    given = read_mapping(BASE)
    given["task"] = {**given["task"], "datasets": [{"name": name, "config": config}]}
    given["backend"] = {"type": "local", "device": device}
    spec = resolve(given, str(BASE))
    began = time.process_time()
    policy = initial_policy(spec, home)
    started = time.process_time()
    held_out = read_problems(prepare_data(spec, home).benchmarks[name])[:problems]
    prompts = encode_prompts(policy.tokenizer, [p.given() for p in held_out], 4096)
    shown = [p.demonstration or "" for p in held_out]
    limit = 8 + max(map(len, policy.tokenizer(shown, add_special_tokens=False)["input_ids"]))
    plan = SamplingPlan(
        group_size=2,
        max_new_tokens=limit,
        uniforms=seeds.uniforms(2 * len(prompts), limit, 0, "rollout", 0, 0),
    )
    samples = policy.sample(prompts, plan)
    texts, cut, lengths = (
        policy.text(samples.batch),
        samples.truncated.tolist(),
        samples.batch.lengths.tolist(),
    )
    rows = [held_out[i // 2] for i in range(len(texts))]
    with Scorer(verifier_of(spec.task), spec.reward) as scorer:
        scored = scorer.score(
            [
                Answered(text, n, c, p.answer, p.asked(), p.columns)
                for text, n, c, p in zip(texts, lengths, cut, rows, strict=True)
            ]
        )
    right = [
        [scored[2 * i].grade.correct, scored[2 * i + 1].grade.correct] for i in range(len(held_out))
    ]
    return {
        "name": name,
        "kind": kind,
        "config": config,
        "right": right,
        "cut": float(np.mean(cut)),
        "score": float(np.mean([each.grade.score for each in scored])),
        "prompt_tokens": float(np.mean([len(p) for p in prompts])),
        "response_tokens": float(np.mean(lengths)),
        "start_seconds": started - began,
        "seconds": time.process_time() - started,
        "example": [held_out[0].text, texts[0], held_out[0].answer],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown, the most accurate first within each kind."""
    lines = [
        "| kind | data set | settings | right | score | tokens | within reach |",
        "|---|---|---|--:|--:|--:|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["kind"], -np.mean(row["right"]))):
        share = accuracy([np.array([np.mean(row["right"], axis=1)])])
        settings = (
            ", ".join(f"{key} {value}" for key, value in row["config"].items()) or "the package's"
        )
        lines.append(
            f"| {row['kind']} | `{row['name']}` | {settings} | {share.mean:.2f} "
            f"[{share.low:.2f}, {share.high:.2f}] | "
            f"{row['score']:.2f} | {row['prompt_tokens']:.0f} + {row['response_tokens']:.0f} | "
            f"{'yes' if 0.1 <= share.mean <= 0.6 else 'no'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--home", type=Path, default=Path("rpg-data"))
    parser.add_argument("--only", nargs="*", choices=LADDER, default=list(LADDER))
    parser.add_argument("--problems", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    rows = [json.loads(line) for line in lines]
    if options.table:
        print(table(rows))
        return
    for name in options.only:
        if name not in {row["name"] for row in rows}:
            row = measure(name, options.home, options.problems, options.threads, options.device)
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{name}: {np.mean(row['right']):.2f} right, {row['start_seconds']:.0f} + "
                f"{row['seconds']:.0f} s"
            )


if __name__ == "__main__":
    main()
