"""`python -m rpg.planning.bench.our_step`: steps of the embedded trainer by phase, the limit of
each, and `generate` beside them.

No response ends before its length, so that all sides do the same; what is rewarded is an even
number of characters: few groups are without a signal, which would be work that we leave out. The
task's own grading is timed all the same.
"""

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from rpg.backends.local.checkpoints import Checkpoints
from rpg.backends.local.rollout import Roller
from rpg.backends.local.trainer import Trainer
from rpg.backends.local.training_loop import configure_memory, configure_torch
from rpg.config.run_spec import RunSpec
from rpg.config.task import MarkerVerifier
from rpg.models import seeds
from rpg.models.decoding import SamplingPlan
from rpg.models.initial_policy import initial_policy
from rpg.models.model_cache import pretrained_folder
from rpg.models.policy import Policy
from rpg.models.tokenizer import encode_prompts
from rpg.planning.bench import limits
from rpg.store.run_folder import RunFolder
from rpg.tasks.preparation import prepare_data, read_problems
from rpg.tasks.rewards.grades import Grade
from rpg.tasks.rewards.scoring import Answered, Scored, Scorer

Clock = defaultdict[str, float]
"""Processor seconds by phase."""


def timed(clock: Clock, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        result = function(*args, **kwargs)
        clock[name] += time.process_time() - began
        return result

    return call


class Even(Scorer):
    def __init__(self, real: Scorer, clock: Clock):
        super().__init__(MarkerVerifier(type="marker"))
        self.grade = timed(clock, "grade", real.score)

    def score(self, answered: Sequence[Answered]) -> list[Scored]:
        self.grade(answered)
        even = [len(response.response) % 2 == 0 for response in answered]
        return [
            Scored(1.0 if right else -1.0, Grade(None, right, "even or odd"), {}) for right in even
        ]


def measure(spec: RunSpec, home: Path, scratch: Path, steps: int) -> dict[str, Any]:
    """Everything that `rpg bench` says about our side."""
    policy = initial_policy(spec, home, say=lambda _: None)
    policy.stop = []
    problems = read_problems(prepare_data(spec, home).train)
    roller = Roller(spec, problems)
    trainer = Trainer(spec, policy, roller)
    clock: Clock = Clock(float)
    roller.scorer = Even(roller.scorer, clock)
    for owner, method, name in (
        (policy, "sample", "sample"),
        (trainer, "_experience", "log-probabilities"),
        (trainer, "_update", "update"),
        (trainer, "step", "step"),
    ):
        setattr(owner, method, timed(clock, name, getattr(owner, method)))
    for step in range(1, steps + 1):
        trainer.step(step)
    for name in clock:
        clock[name] /= steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    given = [problem.given() for problem in problems]
    every = encode_prompts(policy.tokenizer, given, spec.rollout.max_prompt_tokens)
    prompts = every[: spec.training.prompts_per_step]
    generated = _generate(policy, prompts, spec)
    written = _checkpoint(trainer, scratch, clock)
    length = spec.rollout.max_response_tokens
    uniforms = seeds.uniforms(len(prompts), length, spec.seed, "bench")
    plan = SamplingPlan(group_size=1, max_new_tokens=length, uniforms=uniforms)
    timed(clock, "evaluate", type(policy).sample)(policy, prompts, plan)
    if spec.model.type == "pretrained":
        folder = pretrained_folder(spec.model.path, home, say=lambda _: None)
    else:
        folder = scratch / "model"
        policy.model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
    texts = [policy.tokenizer.decode(prompt) for prompt in every]
    bare, products = _limits(policy, prompts, spec)
    bare["checkpoint"] = written * limits.seconds_of_a_kept_byte(scratch / "block")
    return {
        "step": clock.pop("step"),
        "seconds": clock,
        "limits": bare,
        "peak": peak,
        "generate": generated,
        "bandwidth": limits.bandwidth(),
        "products": products,
        "prompts": texts,
        "model": str(folder),
    }


def _generate(policy: Policy, prompts: list[list[int]], spec: RunSpec) -> float:
    """Processor seconds of transformers' own sampling, of the rows of one step."""
    rows = spec.rollout.group_size
    length = spec.rollout.max_response_tokens
    width = max(map(len, prompts))
    pad = int(policy.tokenizer.pad_token_id or 0)
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts for _ in range(rows)])
    mask = torch.tensor(
        [[0] * (width - len(p)) + [1] * len(p) for p in prompts for _ in range(rows)]
    )
    began = time.process_time()
    with torch.inference_mode():
        policy.model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=spec.rollout.temperature,
            top_k=0,
            max_new_tokens=length,
            min_new_tokens=length,
            pad_token_id=pad,
        )
    return time.process_time() - began


def _checkpoint(trainer: Trainer, scratch: Path, clock: Clock) -> int:
    """Bytes of a checkpoint, written once."""
    folder = RunFolder(scratch / "runs" / "bench" / "run")
    folder.path.mkdir(parents=True)
    optimizer = trainer.optimizer
    save = timed(clock, "checkpoint", Checkpoints(folder, ()).save)
    tensors = {"optimizer": optimizer.tensors()}
    save(1, trainer.policy, {"optimizer_step": 1}, tensors, (), optimizer.weights())
    return sum(path.stat().st_size for path in folder.path.rglob("*") if path.is_file())


def _limits(
    policy: Policy, prompts: list[list[int]], spec: RunSpec
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Seconds of the bare products of each phase; and rates of single products, by precision."""
    model = policy.model
    length = spec.rollout.max_response_tokens
    group = spec.rollout.group_size
    first = sum(map(len, prompts))
    rows = len(prompts) * group
    per_pass = policy.tokens_per_pass
    dtype = torch.bfloat16 if policy.bfloat16 else torch.float32
    scoring = limits.Pass(per_pass, dtype)
    updating = limits.Pass(per_pass, dtype, backward=True)
    prefill = scoring.seconds(model, first, len(prompts))
    tokens = first + rows * length
    outputs = rows * length
    one_step = limits.decode_seconds(model, rows, dtype)
    one_step_of_prompts = limits.decode_seconds(model, len(prompts), dtype)
    bare = {
        "sample": prefill + (length - 1) * one_step,
        "update": spec.training.epochs * updating.seconds(model, tokens, outputs),
        "evaluate": prefill + (length - 1) * one_step_of_prompts,
    }
    passes = int(spec.algorithm.needs_reference) + int(not policy.exact_samples)
    if passes:
        bare["log-probabilities"] = passes * scoring.seconds(model, tokens, outputs)
    outer, inner = max(limits.weights(model)[0], key=torch.Tensor.numel).shape
    products = [
        {"name": name, "shape": [count, inner, outer], **limits.rates(count, inner, outer)}
        for name, count in (("update", min(tokens, per_pass)), ("decode", rows))
    ]
    return bare, products


def main() -> None:
    settings = json.load(sys.stdin)
    spec = RunSpec.model_validate(settings["spec"])
    configure_torch(spec)
    configure_memory(spec)
    torch.use_deterministic_algorithms(True)
    scratch = Path(settings["scratch"])
    print(json.dumps(measure(spec, Path(settings["home"]), scratch, settings["steps"])))


if __name__ == "__main__":
    main()
