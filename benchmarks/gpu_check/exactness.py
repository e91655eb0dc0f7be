"""The adapters' gap, and what is repeated: rollouts with the same random numbers, and a training
that was stopped."""

import importlib.util
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.activations import Tokenizer
from benchmarks.gpu_check.lines import Line, Size, random_model
from benchmarks.gpu_check.step import policy_of, spec_of, trainer_of
from rpg.backends.local.roundings import fits_in_float32
from rpg.backends.local.training_loop import train
from rpg.config.load import resolve
from rpg.config.model import Lora
from rpg.config.run_spec import RunSpec
from rpg.models import seeds
from rpg.models.block_decoding import BlockEngine
from rpg.models.decoding import SamplingPlan, generate
from rpg.models.lora import adapt, merged
from rpg.models.policy import Policy
from rpg.store import Layout
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import write_manifest

FUSED = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
]
NEAR = 0.003
"""On a GPU some kernels add in no fixed order: a weight may differ by so much."""


def decoding(size: Size) -> list[Line]:
    """A slow kernel of attention would be an error here."""
    lines: list[Line] = []
    uniforms = seeds.uniforms(32, 32, "decoding")
    for dtype in (torch.float32, torch.bfloat16):
        model = random_model(size.shape, size.device).to(dtype)
        drawn = []
        for graphs in (size.cuda, False):
            engine = BlockEngine(model)
            engine.graphs = graphs
            plan = SamplingPlan(group_size=16, max_new_tokens=32, uniforms=uniforms)
            try:
                with sdpa_kernel(FUSED):
                    drawn.append(generate(engine, [[1, 2, 3], [4] * 20], plan, stop=(0,)))
            except RuntimeError as error:
                figure = str(error).splitlines()[0][:100]
                return [*lines, Line(f"fused attention, {dtype}", figure, False)]
            if engine.graphs != graphs:
                lines.append(Line(f"CUDA graphs, {dtype}", "capture failed", False))
        same = drawn[0].batch.tokens.equal(drawn[1].batch.tokens)
        figure = "fused attention; with and without CUDA graphs the same tokens"
        lines.append(Line(f"decoding, {dtype}", figure if same else "other tokens", same))
    return lines


def repeats(size: Size) -> list[Line]:
    """The same random numbers twice, at several numbers of rows."""
    policy = Policy(random_model(size.shape, size.device), Tokenizer(), bfloat16=size.cuda)
    lines = []
    for rows in size.rows:
        uniforms = seeds.uniforms(rows, size.tokens, "repeats", rows)
        plan = SamplingPlan(group_size=rows, max_new_tokens=size.tokens, uniforms=uniforms)
        first, second = (policy.sample([[1, 5, 6, 7]], plan) for _ in range(2))
        same = first.batch.tokens.equal(second.batch.tokens)
        bits = same and first.log_prob.equal(second.log_prob)
        share = float((first.batch.tokens == second.batch.tokens).float().mean()) if same else 0.0
        figure = "the same bits" if bits else f"same tokens: {same}, {share:.1%} of places"
        lines.append(Line(f"repeated with {rows} rows", figure, bits))
    return lines


def adapters(size: Size) -> list[Line]:
    """Three steps with adapters: what is exported has all of what was learnt."""
    if importlib.util.find_spec("peft") is None:
        return [Line("adapters", "not here: the package peft is missing", None)]
    with tempfile.TemporaryDirectory() as folder:
        random_model(size.shape, "meta").config.save_pretrained(folder)
        spec = spec_of(size, Path(folder), lora={"rank": 16, "alpha": 32})
    policy = policy_of(spec, size)
    adapt(policy.model, Lora(rank=16, alpha=32), 0)
    trainer = trainer_of(spec, policy)
    row: dict[str, float] = {}
    for step in (1, 2, 3):
        row = trainer.step(step)
    gaps: dict[str, float] = {}
    if fits_in_float32(policy):
        gaps = trainer.export_gap(merged(policy.model, trainer.optimizer.weights()))
    learnt = row.get("kl_old_to_new", 0.0)
    lines = []
    for name in ("kl_trained_to_evaluated", "kl_sampler_to_policy"):
        value = gaps.get(name, row.get(name))
        if value is None:
            lines.append(Line(f"adapters, {name}", "no room for float32 weights", None))
            continue
        figure = f"{value:.2g} nats a token; an update moved {learnt:.2g}"
        lines.append(Line(f"adapters, {name}", figure, value < 0.05))
    exported = "kl_trained_to_exported" not in gaps
    return [*lines, Line("adapters, exported", "the bits that are trained", exported)]


def chain_spec(size: Size, steps: int) -> RunSpec:
    """A tiny model that is rewarded for short responses."""
    run: dict[str, Any] = {
        "task": {"type": "chain", "tiers": {"one": 1}, "benchmark_problems": 2},
        "model": {"type": "tiny", "warm_start": None},
        "training": {"steps": steps, "prompts_per_step": 4, "mini_batch_prompts": 2},
        "rollout": {"group_size": 8, "max_prompt_tokens": 16, "max_response_tokens": 12},
        "reward": [{"type": "length", "zero": 12}],
        "evaluation": {"every": 100, "early": False},
        "backend": {"device": size.device},
    }
    return resolve(run, "gpu_check")


def run_of(home: Path, name: str, spec: RunSpec) -> RunFolder:
    folder = Layout(home).run("gpu-check", name)
    manifest: dict[str, Any] = {
        "run_id": name,
        "variant": name,
        "algorithm": spec.algorithm.name,
        "display_name": spec.algorithm.display_name,
        "seed": spec.seed,
        "axes": {},
        "baseline": None,
        "spec": spec.model_dump(mode="json"),
        "versions": {},
        "git_revision": None,
        "machine": {},
        "created": time.time(),
        "steps": spec.training.steps,
        "eval_steps": list(spec.eval_steps()),
        "benchmarks": list(spec.benchmarks()),
    }
    write_manifest(folder, manifest)
    return folder


class _StoppedError(Exception):
    pass


def resumed(size: Size) -> list[Line]:
    """A training that is stopped after its second step, and one that is not."""
    spec = chain_spec(size, steps=4)

    def stop(line: str) -> None:
        if "step 2/" in line:
            raise _StoppedError

    with tempfile.TemporaryDirectory() as home:
        whole = run_of(Path(home), "whole", spec)
        parts = run_of(Path(home), "parts", spec)
        train(whole, Path(home), lambda line: None)
        with suppress(_StoppedError):
            train(parts, Path(home), stop)
        train(parts, Path(home), lambda line: None)
        files = [run.checkpoint(4) / "model.safetensors" for run in (whole, parts)]
        first, second = (load_file(file) for file in files)
        rows = [len(run.read_metrics()) for run in (whole, parts)]
        attempts = parts.attempts()
    off = max(float((value - second[name]).abs().max()) for name, value in first.items())
    figure = "the same bits" if off == 0 else f"weights differ by {off:.2g} at most"
    figure += f"; steps {rows}, attempts {attempts}"
    near = off == 0 or (size.cuda and off < NEAR)
    return [Line("resumed", figure, near and rows == [4, 4] and attempts == [1, 2])]
