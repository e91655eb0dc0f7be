"""Every algorithm of the catalogue: its settings, and its loss, slope, metrics and advantages.

The batches are seeded; settings that an algorithm refuses are dumped as what it says.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import rpg
from benchmarks.golden.commands import write_json

ROWS = 8
TOKENS = 6
VARIATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"preset": "released"},
    {"beta": 0.3},
    {"beta": 0.3, "reference": {"type": "fixed"}},
    {"clip": None},
    {"clip": {"low": 0.1, "high": 0.3, "c": 2.0}},
    {"ratio": "prefix"},
    {"ratio": "sequence"},
    {"loss_agg_mode": "token-mean"},
    {"loss_agg_mode": "seq-mean-token-sum"},
    {"loss_agg_mode": "seq-mean-token-mean"},
    {"loss_agg_mode": "seq-mean-token-sum-norm"},
    {"mask": {"by": "ratio", "low": 0.1, "high": 0.1}},
    {"mask": {"by": "kl", "low": 0.01, "high": 0.01}},
    {"mask": {"by": "response", "low": 0.1, "high": 0.1}},
    {"kl": {"type": "loss", "estimator": "k1"}, "beta": 0.3},
    {"kl": {"type": "loss", "estimator": "k2"}, "beta": 0.3},
    {"kl": {"type": "loss", "estimator": "k3"}, "beta": 0.3},
    {"kl": {"type": "reward", "estimator": "k1"}, "beta": 0.3, "reference": {"type": "fixed"}},
    {"advantage": {"type": "batch"}},
    {"advantage": {"type": "group_then_batch"}},
)
DRIFTS = (0.0, 0.1, 0.8)


def dump(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in rpg.algorithms():
        described = {
            str(number): list(_measured(name, overrides))
            for number, overrides in enumerate(VARIATIONS)
        }
        write_json(folder / f"{name}.json", described)
    write_json(folder / "distribution_kl.json", _distribution_kl())


def _measured(name: str, overrides: dict[str, Any]) -> Iterator[Any]:
    """An algorithm's settings and what comes out for each batch, or the message of its refusal."""
    yield overrides
    try:
        algorithm = rpg.algorithm(name, **overrides)
    except ValueError as error:
        yield str(error)
        return
    yield algorithm.model_dump(mode="json")
    for seed, drift in enumerate(DRIFTS):
        yield _on_batch(algorithm, seed, drift)


def _on_batch(algorithm: Any, seed: int, drift: float) -> Any:
    generator = torch.Generator().manual_seed(seed)
    shape = (ROWS, TOKENS)
    old = -torch.rand(shape, generator=generator, dtype=torch.float64) * 3 - 0.01
    log_prob = (old + drift * torch.randn(shape, generator=generator, dtype=torch.float64)).clamp(
        max=-1e-3
    )
    reference = (old + 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)).clamp(
        max=-1e-3
    )
    lengths = torch.randint(1, TOKENS + 1, (ROWS,), generator=generator)
    mask = (torch.arange(TOKENS)[None] < lengths[:, None]).to(torch.int64)
    rewards = torch.randint(-1, 2, (ROWS,), generator=generator).double()
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    log_prob.requires_grad_(True)
    needs_reference = algorithm.reference.type != "old"
    try:
        advantages = rpg.advantages(
            algorithm,
            rewards=rewards,
            group=torch.arange(ROWS) // 4,
            response_mask=mask,
            old_log_prob=old,
            ref_log_prob=reference if needs_reference else None,
            values=values if algorithm.advantage.type == "gae" else None,
        )
        out = rpg.policy_loss(
            algorithm,
            log_prob=log_prob,
            old_log_prob=old,
            advantages=advantages,
            response_mask=mask,
            ref_log_prob=reference
            if algorithm.needs_reference and algorithm.kl.type != "reward"
            else None,
        )
        out.loss.backward()
    except (ValueError, TypeError, FloatingPointError) as error:
        return f"{type(error).__name__}: {error}"
    assert log_prob.grad is not None
    return {
        "advantages": _text(advantages),
        "loss": repr(out.loss.item()),
        "slope": _text(log_prob.grad),
        "metrics": {metric: repr(value) for metric, value in sorted(out.metrics.items())},
        "weight": repr(out.weight),
    }


def _distribution_kl() -> Any:
    """The divergence of whole distributions, for every algorithm that has one."""
    generator = torch.Generator().manual_seed(0)
    policy = torch.randn((2, 3, 5), generator=generator, dtype=torch.float64).log_softmax(-1)
    reference = torch.randn((2, 3, 5), generator=generator, dtype=torch.float64).log_softmax(-1)
    settings = {name: algorithm.kl for name, algorithm in rpg.algorithms().items()}
    return {
        name: _text(rpg.distribution_kl(kl, policy, reference))
        for name, kl in settings.items()
        if kl.type == "distribution"
    }


def _text(tensor: torch.Tensor) -> list[str]:
    rows = tensor.detach().flatten(1).tolist()
    return [" ".join(repr(value) for value in row) for row in rows]
