"""The embedded trainer beside TRL's GRPOTrainer: same model, problems, batch, updates and loss, one thread each.

    python -m venv trl-venv
    trl-venv/bin/pip install -c constraints.txt trl==1.16.0 -e '.[local]'
    trl-venv/bin/python benchmarks/local_vs_trl.py [--rollouts 10] [--rounds 3]
    trl-venv/bin/python benchmarks/local_vs_trl.py --model MODEL --shape 4x4x24 --rollouts 2

TRL is no dependency of this project, hence the environment of its own. Both train in turns from the same weights, each
turn in a process of its own, and the time of a rollout step (sampling, grading, all optimizer steps) and the process's
peak memory are printed for each turn; set-up is left out of the time. Processor time is the number to trust on a machine
that does other things too.

Without `--model` it is the tiny model with its own task. A model (a folder, or what `model.path` accepts) gets the same
problems as chats and one update per step, and what is rewarded is an even number of characters: it cannot do the task
yet, and groups without a signal would be work that we leave out and TRL does not.

Not alike: TRL pads, decodes with `generate` and scores old log-probabilities only where it must; checkpoints and
evaluations are off on both sides. Numbers of 2026-11, one core: see docs/trainer.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rpg.backends.local.optimizers import Optimizer
from rpg.backends.local.reference import Reference
from rpg.backends.local.rollout import Roller
from rpg.backends.local.trainer import Trainer
from rpg.backends.local.training_loop import configure_memory, configure_torch
from rpg.config.run_spec import RunSpec
from rpg.config.task import MarkerVerifier
from rpg.models.initial_policy import initial_policy, prepare_model
from rpg.rewards.graders import grade
from rpg.rewards.grades import Grade
from rpg.rewards.scoring import Answered, Scored, Scorer
from rpg.tasks import verifier_of
from rpg.tasks.preparation import prepare_data, read_problems

# DAPO's loss without its sampling: both sides do the same rollouts.
COMMON = {"algorithm": {"name": "dapo", "dynamic_sampling": False, "overlong": None}}
OPTIMIZER = {"learning_rate": 1e-4}


def spec_of(model: str | None, shape: str) -> RunSpec:
    """The run both sides do; `shape` is prompts x responses per prompt x tokens, for a model that is named."""
    if model is None:
        training = {"prompts_per_step": 32, "mini_batch_prompts": 8, "optimizer": OPTIMIZER}
        return RunSpec.model_validate({**COMMON, "training": training})
    prompts, group, tokens = map(int, shape.split("x"))
    return RunSpec.model_validate(
        {
            **COMMON,
            "model": {"type": "pretrained", "path": model},
            "training": {"prompts_per_step": prompts, "mini_batch_prompts": prompts, "optimizer": OPTIMIZER},
            "rollout": {"group_size": group, "max_response_tokens": tokens, "max_prompt_tokens": 256},
        }
    )


class Even(Scorer):
    """A reward any model learns from at once: an even number of characters."""

    def __init__(self) -> None:
        super().__init__(MarkerVerifier(type="marker"))

    def score(self, answered: Sequence[Answered]) -> list[Scored]:
        grades = [Grade(None, len(one.response) % 2 == 0, "even or odd") for one in answered]
        return [Scored(1.0 if found.correct else -1.0, found, {}) for found in grades]


class Clock(TrainerCallback):
    """Wall and processor seconds from the first step of a training to its end."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 0:
            self.began = time.perf_counter(), time.process_time()

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds = time.perf_counter() - self.began[0], time.process_time() - self.began[1]


def ours(spec: RunSpec, home: Path, rollouts: int) -> tuple[float, float, float]:
    """(wall seconds, processor seconds, accuracy of the last rollout), per rollout step."""
    policy = initial_policy(spec, home)
    problems = read_problems(prepare_data(spec, home).train)
    optimizer = Optimizer(policy.model, spec.training.optimizer)
    trainer = Trainer(spec, policy, optimizer, Reference(spec.algorithm), Roller(spec, problems))
    if spec.model.type == "pretrained":
        trainer.roller.scorer = Even()
    wall, cpu = time.perf_counter(), time.process_time()
    for step in range(1, rollouts + 1):
        metrics = trainer.step(step)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / rollouts, cpu / rollouts, metrics["accuracy"]


def theirs(spec: RunSpec, home: Path, rollouts: int) -> tuple[float, float, float]:
    """The same for TRL."""
    policy = initial_policy(spec, home)
    problems = read_problems(prepare_data(spec, home).train)
    verifier, named = verifier_of(spec.task), spec.model.type == "pretrained"
    assert isinstance(verifier, MarkerVerifier)
    seen: list[float] = []

    def rewards(completions, answer, **kwargs):
        graded = [
            len(text) % 2 == 0 if named else grade(verifier, text, truth).correct
            for text, truth in zip(completions, answer, strict=True)
        ]
        seen.append(sum(graded) / len(graded))
        return [1.0 if right else -1.0 for right in graded]

    chats = [[{"role": "user", "content": p.prompt}] for p in problems]
    texts = policy.tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
    data = Dataset.from_list(
        [{"prompt": text, "answer": p.answer} for text, p in zip(texts, problems, strict=True)]
    )
    training, rollout = spec.training, spec.rollout
    updates = training.prompts_per_step // training.mini_batch_prompts
    rows = training.mini_batch_prompts * rollout.group_size
    optimizer, clip = training.optimizer, spec.algorithm.clip
    assert clip is not None
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=1,
            steps_per_generation=updates,
            num_generations=rollout.group_size,
            max_completion_length=rollout.max_response_tokens,
            temperature=rollout.temperature,
            max_steps=rollouts * updates,
            loss_type="dapo",
            beta=0.0,
            epsilon=clip.low,
            epsilon_high=clip.high,
            learning_rate=optimizer.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=optimizer.weight_decay,
            adam_beta1=optimizer.betas[0],
            adam_beta2=optimizer.betas[1],
            max_grad_norm=training.max_grad_norm,
            logging_steps=10_000,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        GRPOTrainer(
            model=policy.model,
            reward_funcs=rewards,
            args=config,
            train_dataset=data,
            processing_class=policy.tokenizer,
            callbacks=[clock],
        ).train()
    return clock.seconds[0] / rollouts, clock.seconds[1] / rollouts, seen[-1]


SIDES = {"ours": ours, "TRL": theirs}


def turn(options: argparse.Namespace, home: Path) -> None:
    """One side's turn, in this process; prints its numbers as JSON."""
    spec = spec_of(options.model, options.shape)
    configure_torch(spec)
    if options.side == "ours":  # as `rpg train` does
        configure_memory(spec)
    torch.use_deterministic_algorithms(options.side == "ours")
    seconds = SIDES[options.side](spec, home, options.rollouts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([*seconds, peak]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a pretrained model instead of the tiny one")
    parser.add_argument("--shape", default="4x4x24", help="prompts x responses x tokens, with --model")
    parser.add_argument("--rollouts", type=int, default=10, help="rollout steps per turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument("--home", type=Path, help="keep data and warm start here")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = options.home or Path(scratch)
        if options.side:
            turn(options, home)
            return
        prepare_model(spec_of(options.model, options.shape), home)
        rows: dict[str, list[list[float]]] = {side: [] for side in SIDES}
        print(f"{'':8}{'wall s':>10}{'cpu s':>10}{'accuracy':>10}{'peak GiB':>10}   per rollout step")
        for _ in range(options.rounds):
            for side in SIDES:
                command = [sys.executable, *sys.argv, "--home", str(home), "--side", side]
                out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                row = json.loads(out.splitlines()[-1])
                rows[side].append(row)
                print(f"{side:8}{row[0]:10.4f}{row[1]:10.4f}{row[2]:10.3f}{row[3]:10.2f}", flush=True)
        wall, cpu, _, peak = (
            statistics.median(
                other[i] / mine[i] for mine, other in zip(rows["ours"], rows["TRL"], strict=True)
            )
            for i in (0, 1, 1, 3)
        )
        print(
            f"TRL / ours, median of {options.rounds}: {wall:.1f} wall, {cpu:.2f} processor time, {peak:.2f} peak memory"
        )


if __name__ == "__main__":
    main()
