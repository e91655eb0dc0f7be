"""A GRPO run of TRL's own trainer, which knows nothing of this project: what `rpg import trl` is
tried and tested with.

    python -m venv trl-venv && trl-venv/bin/pip install -c constraints.txt torch trl==1.16.0
    python -m benchmarks.elsewhere.write_problems elsewhere
    trl-venv/bin/python benchmarks/elsewhere/trl_run.py elsewhere --seed 0

Half a minute on one core. ELSEWHERE/trl-s0/checkpoint-80 is the last checkpoint with its
trainer_state.json, in which the benchmarks' accuracies stand every 20 optimizer steps. Seed 0's,
without its blanks (trim.py), is tests/interop/importing/trainer_state.json.
"""

import argparse
from pathlib import Path

import torch
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer


def right(completions, answer, **kwargs):
    """1 where what follows the last # is the answer."""
    return [
        float(messages[0]["content"].rpartition("#")[2].strip() == truth)
        for messages, truth in zip(completions, answer, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="what prepare.py made")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = ("train", "chain-easy", "chain-medium")
    data = {
        name: load_dataset("json", data_files=str(options.folder / f"{name}.jsonl"), split="train")
        for name in names
    }
    args = GRPOConfig(
        output_dir=str(options.folder / f"trl-s{options.seed}"),
        seed=options.seed,
        # 20 generations of 4 optimizer steps, as `training: {steps: 20}` of chain.yaml
        max_steps=80,
        num_generations=8,
        per_device_train_batch_size=64,
        steps_per_generation=4,
        max_completion_length=42,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        weight_decay=0.1,
        beta=0.001,
        loss_type="grpo",
        eval_strategy="steps",
        eval_steps=20,
        eval_on_start=True,
        num_generations_eval=4,
        per_device_eval_batch_size=64,
        logging_steps=4,
        save_steps=20,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
    )
    GRPOTrainer(
        model=str(options.folder / "model"),
        reward_funcs=right,
        args=args,
        train_dataset=data["train"],
        eval_dataset={name: data[name] for name in names[1:]},
        processing_class=AutoTokenizer.from_pretrained(
            options.folder / "model", padding_side="left"
        ),
    ).train()


if __name__ == "__main__":
    main()
