"""How long the phases of a step of the embedded trainer take on a GPU, and how much memory, beside
what is foretold.

    # Qwen3-0.6B's size, 32 x 8 responses of 384 tokens
    python -m benchmarks.gpu_step
    # other micro-batches, more prompts
    python -m benchmarks.gpu_step --passes 6808 32768 --prompts 64
    python -m benchmarks.gpu_step --device cpu --size tiny           # to try the script

Weights are random and no response ends early, so that nothing depends on a model or the hub. `rate`
is that of the products: 6 operations per weight and token for the update, 2 for the
log-probabilities. Prints this GPU's own rates first: those of a copy and of a large product in
bfloat16.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rpg.backends.local.rollout import Roller
from rpg.backends.local.trainer import Trainer
from rpg.backends.local.training_loop import configure_torch
from rpg.config.backend import LocalBackend
from rpg.config.load import resolve
from rpg.models.policy import Policy
from rpg.models.tokenizer import build_tokenizer
from rpg.planning.bench.our_step import Even
from rpg.planning.model_shapes import Shape
from rpg.planning.space import pass_bytes, tokens_per_pass
from rpg.tasks import characters_of, load_problems

SIZES = {
    "qwen3-0.6b": Shape(28, 1024, 16, 8, 128, 3072, 151936),
    "tiny": Shape(2, 64, 4, 2, 16, 128, 512),
}


WORK = {"log-probabilities": 2, "update": 6}
"""Operations per weight and token."""


def settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "task": {"type": "chain"},
        "model": {"type": "pretrained", "path": "random", "dtype": "bfloat16", "warm_start": None},
        "algorithm": {"name": "rpg-reinforce-urkl", "beta": 0.01, "dynamic_sampling": False},
        "training": {
            "steps": 100,
            "prompts_per_step": options.prompts,
            "mini_batch_prompts": options.prompts // 2,
            "optimizer": {"type": "adamw", "learning_rate": 1e-6},
        },
        "rollout": {
            "group_size": 8,
            "max_prompt_tokens": 160,
            "max_response_tokens": options.tokens,
        },
        "backend": {"type": "local", "device": options.device},
    }


def random_model(shape: Shape, device: str) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocabulary,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return Qwen3ForCausalLM(config)


def seconds(function: Callable[[], Any], device: str, repeats: int = 1) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    wait()
    return (time.perf_counter() - began) / repeats


def limits(device: str) -> None:
    a, b = (torch.empty(2**30, dtype=torch.uint8, device=device) for _ in range(2))
    x = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    for _ in range(2):  # the second time without the cost of a first
        copy, product = seconds(lambda: b.copy_(a), device, 10), seconds(lambda: x @ x, device, 10)
    print(
        f"copy {2**31 / copy / 1e12:.2f} TB/s, product {2 * 8192**3 / product / 1e12:.0f} TFLOP/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--size", choices=SIZES, default="qwen3-0.6b")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=384, help="per response")
    parser.add_argument(
        "--passes", type=int, nargs="*", help="tokens per pass; default: the trainer's own"
    )
    options = parser.parse_args()
    cuda, shape = options.device == "cuda", SIZES[options.size]
    if cuda:
        print(torch.cuda.get_device_name())
        limits(options.device)
    spec = resolve(settings(options), "gpu_step")
    configure_torch(spec)
    problems = load_problems(spec.task)
    tokenizer = build_tokenizer(characters_of(spec.task, problems))
    policy = Policy(random_model(shape, options.device), tokenizer, bfloat16=True)
    policy.stop = []
    roller = Roller(spec, problems.train)
    roller.scorer = Even(roller.scorer, defaultdict(float))
    trainer = Trainer(spec, policy, roller)
    spent: dict[str, float] = {}

    def watch(owner: object, method: str, name: str) -> None:
        function = getattr(owner, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            results = []
            spent[name] = seconds(lambda: results.append(function(*args, **kwargs)), options.device)
            return results[0]

        setattr(owner, method, call)

    for owner, method, name in (
        (policy, "sample", "sample"),
        (trainer, "_experience", "log-probabilities"),
        (trainer, "_update", "update"),
    ):
        watch(owner, method, name)
    weights = sum(weight.numel() for weight in policy.model.parameters())
    drawn = options.prompts * 8 * options.tokens
    for step, size in enumerate([None, *(options.passes or [None])]):
        training = spec.training.model_copy(update={"micro_batch_tokens": size})
        trainer.spec = spec.model_copy(update={"training": training})
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        trainer.step(step + 1)
        if not step:
            continue  # kernels are chosen and memory is taken
        rate = {name: times * weights * drawn / spent[name] / 1e12 for name, times in WORK.items()}
        parts = [
            f"{name} {value:.2f} s" + (f" ({rate[name]:.0f} TFLOP/s)" if name in rate else "")
            for name, value in spent.items()
        ]
        per_pass = size or tokens_per_pass(shape, options.device, 2)
        print(f"{drawn:,} tokens, {per_pass:,} per pass: {', '.join(parts)}")
        print(
            f"    drawn at {drawn / spent['sample']:,.0f} tokens/s, trained at "
            f"{drawn / sum(spent.values()):,.0f} tokens/s"
        )
        if cuda:
            peak, held = torch.cuda.max_memory_allocated() / 1e9, 18 * weights / 1e9
            foretold = (
                held + pass_bytes(shape, per_pass, LocalBackend(device=options.device), 2) / 1e9
            )
            print(f"    {peak:.1f} GB at most; foretold for the update: {foretold:.1f} GB")


if __name__ == "__main__":
    main()
