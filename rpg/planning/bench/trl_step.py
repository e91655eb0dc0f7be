"""Steps of TRL's GRPOTrainer, with the settings that `rpg bench` writes to standard input; `config`
are those of GRPOConfig.

Runs in any environment that has TRL: it needs nothing of this project.
"""

import json
import os
import resource
import sys
import tempfile
import time
from typing import Any

settings: dict[str, Any] = json.load(sys.stdin)
os.environ |= {"OMP_NUM_THREADS": str(settings["threads"]), "HF_HUB_OFFLINE": "1"}
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch  # noqa: E402 (reads the environment)
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402


class Clock(TrainerCallback):  # type: ignore[misc]
    """Processor seconds from the first step of a training to its end."""

    began: float | None = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.began = self.began or time.process_time()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.seconds = time.process_time() - (self.began or 0.0)


class Timed(GRPOTrainer):  # type: ignore[misc]
    """With the processor seconds of its sampling, rewards included."""

    sampling = 0.0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.process_time()
        scored = super()._generate_and_score_completions(inputs)
        self.sampling += time.process_time() - began
        return scored


def even(completions: list[str], **_: Any) -> list[float]:
    return [1.0 if len(text) % 2 == 0 else -1.0 for text in completions]


def main() -> None:
    torch.set_num_threads(settings["threads"])
    tokenizer = AutoTokenizer.from_pretrained(settings["model"], trust_remote_code=False)
    load = AutoModelForCausalLM.from_pretrained
    model = load(settings["model"], dtype=torch.float32, trust_remote_code=False)
    passes = settings["batch"] // settings["rows"]
    steps = settings["steps"]
    updates = settings["updates"]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=settings["bfloat16"],  # autocast, as here
            gradient_checkpointing=False,
            per_device_train_batch_size=settings["rows"],
            gradient_accumulation_steps=passes,
            steps_per_generation=passes * updates,
            max_steps=steps * updates * settings["config"]["num_iterations"],
            logging_steps=10_000,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **settings["config"],
        )
        data = Dataset.from_list([{"prompt": text} for text in settings["prompts"]])
        trainer = Timed(
            model=model,
            reward_funcs=even,
            args=config,
            train_dataset=data,
            processing_class=tokenizer,
            callbacks=[clock],
        )
        trainer.train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    seconds = {"step": clock.seconds / steps, "sample": trainer.sampling / steps}
    print(json.dumps({**seconds, "peak": peak, "rows": settings["rows"]}))


if __name__ == "__main__":
    main()
