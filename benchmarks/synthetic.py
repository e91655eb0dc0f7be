"""Invented run folders for benchmarks and tests of what reads them. Never a result: every manifest
says so.

The curves imitate the shape of real ones (saturating accuracy, falling entropy, heavy-tailed
gradient norms), so that tables and figures made from them show whether they can be read.
"""

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from rpg.metrics import METRICS
from rpg.store import Layout, RunFolder
from rpg.store.run_writer import write_done, write_manifest
from rpg.store.samples import EVAL_COLUMNS

VARIANTS = (
    "grpo",
    "dapo",
    "reinforce-pp",
    "rpg-ufkl",
    "rpg-urkl",
    "rpg-reinforce-ufkl",
    "rpg-reinforce-urkl",
)
NAMES = {"reinforce-pp": "REINFORCE++"}
SCHEMA = pyarrow.schema(
    [(name, pyarrow.type_for_alias(kind)) for name, kind in EVAL_COLUMNS.items()]
)


@dataclass(frozen=True)
class Shape:
    """Size of one sweep's runs. `metrics`: how many measurements per step, the first of
    rpg.metrics."""

    steps: int = 40
    eval_every: int = 20
    problems: int = 24
    samples: int = 4
    benchmarks: tuple[str, ...] = ("chain-easy", "chain-medium", "chain-hard")
    metrics: int = len(METRICS)

    @property
    def eval_steps(self) -> list[int]:
        return list(range(0, self.steps + 1, self.eval_every))


def write_sweep(
    home: Path,
    name: str,
    variants: Sequence[str] = VARIANTS,
    seeds: Sequence[int] = (0, 1),
    shape: Shape = Shape(),
    baseline: str | None = None,
) -> Layout:
    """Write a finished sweep of every variant with every seed; variant i gains 0.05 * i more."""
    layout = Layout.at(home)
    runs = [
        re.sub(r"[\s/\\]", "-", f"{variant}-seed{seed}") for variant in variants for seed in seeds
    ]
    layout.write_sweep(
        {
            "name": name,
            "source": f"name: {name}\n",
            "baseline": baseline or variants[0],
            "created": 1.7e9,
            "runs": runs,
            "benchmarks": list(shape.benchmarks),
        }
    )
    for index, variant in enumerate(variants):
        for seed in seeds:
            run = layout.run(name, runs[index * len(seeds) + list(seeds).index(seed)])
            write_run(run, variant, seed, 0.3 + 0.05 * index, shape, baseline or variants[0])
    return layout


def write_run(
    run: RunFolder, variant: str, seed: int, gain: float, shape: Shape, baseline: str | None
) -> None:
    """Write one finished run whose accuracy rises by about `gain`."""
    plain = re.match(r"[a-z-]+(?=[ (]|$)", variant)
    algorithm = plain[0] if plain else variant.split(" ")[0]
    display = NAMES.get(algorithm, algorithm if "<" in algorithm else algorithm.upper())
    axes = dict(axis.split("=", 1) for axis in variant.split(" ")[1:] if "=" in axis)
    write_manifest(
        run,
        {
            "run_id": f"{zlib.crc32(f'{run.sweep}/{run.name}'.encode()):08x}",
            "variant": variant,
            "algorithm": algorithm,
            "display_name": display,
            "seed": seed,
            "axes": {"algorithm": algorithm, "seed": seed, **axes},
            "baseline": baseline,
            "spec": {
                "algorithm": {"name": algorithm, **axes},
                "training": {"steps": shape.steps},
                "seed": seed,
            },
            "versions": {"synthetic": "not a real run"},
            "git_revision": None,
            "machine": {"synthetic": True},
            "created": 1.7e9,
            "steps": shape.steps,
            "eval_steps": shape.eval_steps,
            "benchmarks": list(shape.benchmarks),
        },
    )
    rng = np.random.default_rng([seed, len(variant), *variant.encode()])
    _write_metrics(run, rng, gain, shape)
    for number, benchmark in enumerate(shape.benchmarks):
        # The same problems for every run: that is what makes paired comparisons sharp.
        ease = np.random.default_rng(number).normal(0.9 - 0.5 * number, 0.8, shape.problems)
        drift = rng.normal(0, 0.15)
        for step in shape.eval_steps:
            _write_eval(
                run, rng, benchmark, step, ease + drift + 4 * gain * _rise(step, shape) - 1, shape
            )
    write_done(run, seconds=0.7 * shape.steps, attempts=1)


def _rise(step, shape: Shape):
    return 1 - np.exp(-3 * np.asarray(step) / shape.steps)


def _write_metrics(run: RunFolder, rng: np.random.Generator, gain: float, shape: Shape) -> None:
    step = np.arange(1, shape.steps + 1)
    rise = _rise(step, shape)
    noise = rng.normal(0, 1, (len(METRICS) + shape.metrics, shape.steps))
    accuracy = np.clip(0.3 + gain * rise + 0.02 * noise[0], 0, 1)
    kl = 2e-3 * np.exp(0.3 * noise[1])
    length = 30 + 25 * rise + noise[2]
    columns = dict.fromkeys(METRICS, np.zeros(shape.steps)) | {
        "reward": 2 * accuracy - 1,
        "accuracy": accuracy,
        "entropy": 0.2 + 0.6 * np.exp(-2 * step / shape.steps) + 0.01 * noise[3],
        "loss": 0.01 * noise[4],
        "kl_old_to_policy": kl,
        "kl_policy_to_old": kl * (1 + 0.1 * noise[5]),
        "kl_ref_to_policy": kl * 2,
        "kl_policy_to_ref": kl * 2.1,
        "ratio_mean": 1 + 1e-3 * noise[6],
        "ratio_max": 1 + np.exp(noise[7] - 1),
        "ess": np.clip(0.97 + 0.01 * noise[8], 0, 1),
        "clip_fraction": np.clip(0.02 + 0.005 * noise[9], 0, 1),
        "grad_norm": np.exp(0.4 * noise[10] - rise),
        "grad_norm_max": 2 * np.exp(0.4 * noise[11]),
        "response_length": length,
        "tokens": np.cumsum(64 * length),
        "groups_sampled": np.full(shape.steps, 40),
        "groups_kept": np.full(shape.steps, 32),
        "seconds_step": 0.7 + 0.02 * np.abs(noise[12]),
    }
    columns |= {f"extra_{index}": noise[index] for index in range(len(METRICS), shape.metrics)}
    names = list(columns)[: shape.metrics]
    lines = [
        json.dumps(
            {
                "step": index + 1,
                "optimizer_step": 4 * (index + 1),
                "attempt": 1,
                "time": 1.7e9 + index,
                **row,
            }
        )
        for index, row in enumerate(
            dict(zip(names, values, strict=True))
            for values in zip(*(columns[name].tolist() for name in names), strict=True)
        )
    ]
    run.metrics_path(1).write_text("\n".join(lines) + "\n")


def _write_eval(
    run: RunFolder,
    rng: np.random.Generator,
    benchmark: str,
    step: int,
    logits: np.ndarray,
    shape: Shape,
) -> None:
    correct = rng.random((shape.problems, shape.samples)) < 1 / (1 + np.exp(-logits[:, None]))
    correct = correct.ravel().tolist()
    problems = [number for number in range(shape.problems) for _ in range(shape.samples)]
    size = len(problems)
    answers = [
        str(number % 7) if right else str(number % 7 + 1)
        for number, right in zip(problems, correct, strict=True)
    ]
    columns = {
        "problem_id": [f"{benchmark}-{number}" for number in problems],
        "sample": list(range(shape.samples)) * shape.problems,
        "problem": [f"Compute problem {number} of {benchmark}." for number in problems],
        "answer": [str(number % 7) for number in problems],
        "response": [f"Thinking about it.\nAnswer: {answer}" for answer in answers],
        "extracted": answers,
        "correct": correct,
        "reason": ["match" if right else "different" for right in correct],
        "tokens": rng.integers(20, 60, size).tolist(),
        "truncated": [False] * size,
    }
    path = run.eval_path(benchmark, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns, SCHEMA), path, compression="zstd")
