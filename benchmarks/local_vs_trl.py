"""The embedded trainer beside TRL's GRPOTrainer: same model, problems, batch, updates and loss, one thread each.

    python -m venv trl-venv
    trl-venv/bin/pip install -c constraints.txt trl==1.16.0 -e '.[local]'
    trl-venv/bin/python benchmarks/local_vs_trl.py [--rollouts 10] [--rounds 3]

TRL is no dependency of this project, hence the environment of its own. Both train from the same warm start, in turns,
and the time of a rollout step (sampling, grading, all optimizer steps) is printed for each turn; set-up is left out.
Processor time is the number to trust on a machine that does other things too.

Not alike: TRL pads, decodes with `generate` and scores old log-probabilities only where it must; checkpoints and
evaluations are off on both sides. Numbers of 2026-11, one core: see docs/trainer.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
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
from rpg.backends.local.run import configure_torch
from rpg.backends.local.trainer import Trainer
from rpg.config.run import RunSpec
from rpg.models.initial import initial_policy
from rpg.rewards.reward import reward
from rpg.rewards.verifiers import grade
from rpg.tasks import verifier_of
from rpg.tasks.preparation import prepare_data, read_problems

SPEC = RunSpec.model_validate(
    {
        # DAPO's loss without its sampling: both sides do the same rollouts.
        "algorithm": {"name": "dapo", "dynamic_sampling": False, "overlong": None},
        "training": {"prompts_per_step": 32, "mini_batch_prompts": 8, "optimizer": {"learning_rate": 1e-4}},
    }
)


class Clock(TrainerCallback):
    """Wall and processor seconds from the first step of a training to its end."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 0:
            self.began = time.perf_counter(), time.process_time()

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds = time.perf_counter() - self.began[0], time.process_time() - self.began[1]


def ours(home: Path, rollouts: int) -> tuple[float, float, float]:
    """(wall seconds, processor seconds, accuracy of the last rollout), per rollout step."""
    policy = initial_policy(SPEC, home)
    problems = read_problems(prepare_data(SPEC, home).train)
    optimizer = Optimizer(policy.model, SPEC.training.optimizer)
    trainer = Trainer(SPEC, policy, optimizer, Reference(SPEC.algorithm), Roller(SPEC, problems))
    wall, cpu = time.perf_counter(), time.process_time()
    for step in range(1, rollouts + 1):
        metrics = trainer.step(step)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / rollouts, cpu / rollouts, metrics["accuracy"]


def theirs(home: Path, rollouts: int) -> tuple[float, float, float]:
    """The same for TRL."""
    policy = initial_policy(SPEC, home)
    problems = read_problems(prepare_data(SPEC, home).train)
    verifier = verifier_of(SPEC.task)
    seen: list[float] = []

    def rewards(completions, answer, **kwargs):
        graded = [
            grade(verifier, text, truth).correct for text, truth in zip(completions, answer, strict=True)
        ]
        seen.append(sum(graded) / len(graded))
        return [reward(right) for right in graded]

    bos = policy.tokenizer.bos_token
    data = Dataset.from_list([{"prompt": bos + p.prompt, "answer": p.answer} for p in problems])
    training, rollout = SPEC.training, SPEC.rollout
    updates = training.prompts_per_step // training.mini_batch_prompts
    rows = training.mini_batch_prompts * rollout.group_size
    optimizer, clip = training.optimizer, SPEC.algorithm.clip
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rollouts", type=int, default=10, help="rollout steps per turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument("--home", type=Path, help="keep data and warm start here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = options.home or Path(scratch)
        initial_policy(SPEC, home)
        configure_torch(SPEC)
        ratios = []
        print(f"{'':8}{'wall s':>10}{'cpu s':>10}{'accuracy':>10}   per rollout step")
        for _ in range(options.rounds):
            torch.use_deterministic_algorithms(True)
            mine = ours(home, options.rollouts)
            torch.use_deterministic_algorithms(False)
            other = theirs(home, options.rollouts)
            for name, row in (("ours", mine), ("TRL", other)):
                print(f"{name:8}{row[0]:10.4f}{row[1]:10.4f}{row[2]:10.3f}", flush=True)
            ratios.append((other[0] / mine[0], other[1] / mine[1]))
        wall, cpu = (statistics.median(r[i] for r in ratios) for i in (0, 1))
        print(f"TRL / ours, median of {options.rounds}: {wall:.1f} wall, {cpu:.1f} processor time")


if __name__ == "__main__":
    main()
