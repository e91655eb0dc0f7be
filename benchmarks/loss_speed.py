"""Time and memory of policy_loss against verl's own losses: forward and backward, one thread,
alternating.

    python benchmarks/loss_speed.py                 # (64, 4096) float32, five rounds
    python benchmarks/loss_speed.py --rows 256 --tokens 40 --repeats 200

Needs verl beside rpg-lab. Prints a line per pair: the median of each and the ratio (below 1: ours
is faster), with the peak of temporary memory in one call. Ours computes thirteen metrics, among
them four KL estimates; verl's vanilla loss computes three.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

import rpg


def batch(rows: int, tokens: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)

    def draw():
        return torch.randn(rows, tokens, generator=g)

    old = -draw().abs()
    lengths = torch.randint(tokens // 2, tokens + 1, (rows, 1), generator=g)
    return {
        "log_prob": (old + 0.1 * draw()).requires_grad_(),
        "old_log_prob": old,
        "ref_log_prob": old + 0.1 * draw(),
        "advantages": draw()[:, :1].expand(rows, tokens).contiguous(),
        "response_mask": (torch.arange(tokens) < lengths).float(),
    }


def verl_step(data, kl: str | None, beta: float):
    from verl.trainer.ppo.core_algos import agg_loss, compute_policy_loss_vanilla, kl_penalty
    from verl.workers.config import ActorConfig

    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
    )

    def step():
        loss, metrics = compute_policy_loss_vanilla(
            old_log_prob=data["old_log_prob"],
            log_prob=data["log_prob"],
            advantages=data["advantages"],
            response_mask=data["response_mask"],
            config=config,
        )
        if kl:
            kld = kl_penalty(
                logprob=data["log_prob"], ref_logprob=data["ref_log_prob"], kl_penalty=kl
            )
            kl_loss = agg_loss(kld, data["response_mask"], "token-mean")
            metrics["kl_loss"] = kl_loss.detach().item()
            loss = loss + beta * kl_loss
        data["log_prob"].grad = None
        loss.backward()

    return step


def our_step(data, name: str, **overrides):
    algo = rpg.algorithm(name, loss_agg_mode="token-mean", **overrides)
    inputs = dict(data)
    if not algo.needs_reference:
        inputs["ref_log_prob"] = None

    def step():
        data["log_prob"].grad = None
        rpg.policy_loss(algo, **inputs).loss.backward()

    return step


def peak_memory(step) -> int:
    """Bytes above the start at the worst moment of one call."""
    from torch.profiler import ProfilerActivity, profile

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step()
    now = peak = 0
    for event in prof.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    try:
        import verl  # noqa: F401
    except ImportError:
        print(
            "verl is not installed: pip install -c constraints.txt -e '.[peers]'", file=sys.stderr
        )
        return 2
    torch.set_num_threads(1)
    data = batch(args.rows, args.tokens)
    low_var = [verl_step(data, "low_var_kl", beta) for beta in (1e-3, 1e-4)]
    pairs = [
        ("dapo / vanilla", our_step(data, "dapo", clip={"c": 3.0}), verl_step(data, None, 0)),
        ("grpo / vanilla + low_var_kl", our_step(data, "grpo", clip={"c": 3.0}), low_var[0]),
        ("rpg-reinforce-urkl / the same", our_step(data, "rpg-reinforce-urkl"), low_var[1]),
        (
            "rpg-ufkl, third reference / the same",
            our_step(data, "rpg-ufkl", reference="fixed"),
            low_var[1],
        ),
        (
            "rpg-reinforce-urkl, prefix / the same",
            our_step(data, "rpg-reinforce-urkl", ratio="prefix"),
            low_var[1],
        ),
    ]
    print(
        f"({args.rows}, {args.tokens}) float32, one thread, median of {args.rounds} x "
        f"{args.repeats} calls"
    )
    for name, ours, theirs in pairs:
        times: dict[Callable[[], object], list[float]] = {ours: [], theirs: []}
        for step in times:
            step()
        for _ in range(args.rounds):
            for step in times:  # alternating, so that a busy moment hits both
                for _ in range(args.repeats):
                    start = time.perf_counter()
                    step()
                    times[step].append(time.perf_counter() - start)
        a, b = (statistics.median(t) * 1e3 for t in times.values())
        ma, mb = (peak_memory(step) / 2**20 for step in times)
        print(
            f"{name:38s} ours {a:7.2f} ms {ma:6.1f} MiB   verl {b:7.2f} ms {mb:6.1f} MiB   "
            f"ratio {a / b:.2f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
