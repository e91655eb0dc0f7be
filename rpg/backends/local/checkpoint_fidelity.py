"""Gradients of the catalogue's losses on a real policy from samples of an earlier one, against the on-policy gradient.

The policy is a checkpoint trained on for `staleness` rollouts, the sampler is the checkpoint itself. Every loss is taken
with the same advantage (reward minus the mean of the others of its group), the same beta, the initial model as reference,
and a mean over responses of sums over tokens, so that they have one scale and differ only in what a loss is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rpg.auditing.gradient_agreement import Agreement, agreement
from rpg.backends.local.micro_batches import Limits, score
from rpg.backends.local.rollout import Graded, Roller
from rpg.backends.local.training_loop import configure_memory, configure_torch, resume
from rpg.backends.manifest import spec_of
from rpg.catalogue import Algorithm, algorithm, algorithms, override
from rpg.catalogue.exact import divergence_of, exact_loss
from rpg.config.run_spec import RunSpec
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.kl_terms import k3
from rpg.losses.policy_loss import policy_loss
from rpg.models.initial_policy import initial_policy
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from rpg.store.checkpoints import damaged
from rpg.store.run_folder import RunFolder
from rpg.tasks.preparation import prepare_data, read_problems

COORDINATES = 1_000_000
"""Products of larger gradients are taken over so many of their coordinates, drawn at random."""


@dataclass(frozen=True)
class Row:
    """One loss; `divergence` is the KL it is meant to have."""

    name: str
    divergence: str
    clipped: Agreement | None
    """With its own clip; None where it has none."""
    unclipped: Agreement


@dataclass(frozen=True)
class Fidelity:
    """The result, and what it took."""

    run: str
    sampler_step: int
    policy_step: int
    beta: float
    kl: float
    """KL(sampler || policy), nats per token."""
    responses: int
    """On either side."""
    blocks: int
    coordinates: int
    parameters: int
    rows: tuple[Row, ...]


def fidelity(
    folder: RunFolder,
    step: int,
    home: Path,
    *,
    staleness: int = 1,
    beta: float | None = None,
    names: Sequence[str] = (),
    blocks: int = 16,
    prompts: int = 16,
    say: Callable[[str], None] = print,
) -> Fidelity:
    """Measures losses (`names`; all of the catalogue if empty) on `blocks` x `prompts` groups of the run's size each.

    beta: of every KL; default: the run's own, or 0.3 where it has none.

    Raises:
        UserError: a run or a checkpoint that cannot be used.
    """
    spec = spec_of(folder)
    configure_torch(spec)
    configure_memory(spec)
    path = folder.checkpoint(step)
    if not (path / "checkpoint.json").exists():
        there = ", ".join(map(str, folder.checkpoint_steps())) or "none"
        raise ModelError(f"{folder.path}: no checkpoint of step {step}; there are: {there}")
    if damage := damaged(path):
        raise ModelError(f"{path}: {damage}")
    if beta is None:
        beta = spec.algorithm.beta or 0.3
    trainer = resume(spec, path, home, say)
    sampler = trainer.policy.frozen_copy()
    for further in range(step + 1, step + staleness + 1):
        say(f"trains on: step {further}")
        trainer.step(further)
    policy, initial = trainer.policy, initial_policy(spec, home, say)

    limits = Limits.of(spec.training, policy)
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in parameters)
    chosen = None
    if total > COORDINATES:
        chosen = torch.randperm(total, generator=torch.Generator().manual_seed(0))[:COORDINATES].sort().values

    losses = _losses(names, beta)
    targets = {
        name: exact_loss(name, beta, **_SHARED, advantage={"type": "leave_one_out"})
        for name in dict.fromkeys(map(divergence_of, losses.values()))
    }
    roller = Roller(_sampling(spec, prompts), read_problems(prepare_data(spec, home).train))
    after, counted, kl, tokens = spec.training.steps + staleness, 0, 0.0, 0
    off: dict[str, list[Tensor]] = {}
    on: dict[str, list[Tensor]] = {}
    for block in range(1, blocks + 1):
        say(f"block {block} of {blocks}")
        for source, number, algos, found in (
            (sampler, 2 * block, losses, off),
            (policy, 2 * block + 1, targets, on),
        ):
            graded = roller.roll(source, after + number).first
            old = graded.samples.log_prob
            if not policy.exact_samples:
                old = score(source, graded.samples.batch, spec.rollout.temperature, limits)
            gradients, moved = _gradients(spec, policy, initial, graded, old, algos, parameters, chosen)
            for name, gradient in gradients.items():
                found.setdefault(name, []).append(gradient)
            if source is sampler:
                counted += len(graded)
                tokens += int(graded.samples.batch.lengths.sum())
                kl += moved

    right = {name: np.stack([g.numpy() for g in parts]) for name, parts in on.items()}

    def agree(name: str, algo: Algorithm) -> Agreement:
        return agreement(np.stack([g.numpy() for g in off[name]]), right[divergence_of(algo)])

    rows = []
    for name, algo in losses.items():
        if not name.endswith(_UNCLIPPED):
            bare = agree(name + _UNCLIPPED, algo) if algo.clip else None
            own = agree(name, algo)
            rows.append(Row(name, divergence_of(algo), own if bare else None, bare or own))
    return Fidelity(
        f"{folder.sweep}/{folder.name}", step, step + staleness, beta, kl / max(tokens, 1), counted, blocks,
        total if chosen is None else COORDINATES, total, tuple(rows),
    )  # fmt: skip


_UNCLIPPED = " without clip"
_SHARED: dict[str, Any] = {"loss_agg_mode": "seq-mean-token-sum", "reference": {"type": "fixed"}}


def _losses(names: Sequence[str], beta: float) -> dict[str, Algorithm]:
    """Name -> loss, each with its clip and again without."""
    found = {}
    for name in names or algorithms():
        algo = algorithm(name)
        per_token = algo.kl.type == "reward" and algo.advantage.type in ("batch", "gae")
        changes = {
            "advantage": {"type": "batch", "std": False} if per_token else {"type": "leave_one_out"},
            **_SHARED,
            "beta": beta if algo.kl.type != "none" else 0.0,
        }
        found[name] = override(algo, **changes)
        if algo.clip:
            found[name + _UNCLIPPED] = override(algo, **changes, clip=None)
    return found


def _sampling(spec: RunSpec, prompts: int) -> RunSpec:
    """Groups as the run draws them, none dropped and none punished for its length."""
    bare = spec.algorithm.model_copy(update={"dynamic_sampling": False, "overlong": None})
    training = spec.training.model_copy(update={"prompts_per_step": prompts})
    return spec.model_copy(update={"algorithm": bare, "training": training})


def _gradients(
    spec: RunSpec,
    policy: Policy,
    initial: Policy,
    graded: Graded,
    old: Tensor,
    algos: dict[str, Algorithm],
    parameters: list[Tensor],
    chosen: Tensor | None,
) -> tuple[dict[str, Tensor], float]:
    """(name -> minus the loss's gradient on these responses; sum over tokens of KL(old || policy))."""
    batch, temperature = graded.samples.batch, spec.rollout.temperature
    limits = Limits.of(spec.training, policy)
    reference = score(initial, batch, temperature, limits)
    slopes: dict[str, Tensor] = {}
    now = score(policy, batch, temperature, limits)
    for name, algo in algos.items():
        advantages = advantages_of(
            algo, rewards=graded.rewards, group=batch.prompt_of, response_mask=batch.mask, old_log_prob=old,
            ref_log_prob=reference,
        )  # fmt: skip
        leaf = now.clone().requires_grad_()
        out = policy_loss(
            algo, log_prob=leaf, old_log_prob=old, advantages=advantages, response_mask=batch.mask,
            ref_log_prob=reference,
        )  # fmt: skip
        slopes[name] = -torch.autograd.grad(out.loss, leaf)[0]
    sums = {name: [torch.zeros_like(p, dtype=torch.float32) for p in parameters] for name in algos}
    for rows in limits.split(batch, range(len(batch))):
        index = torch.tensor(rows, device=now.device)
        part = batch.rows(index)
        log_prob, width = policy.log_probs(part, temperature), part.tokens.shape[1]
        for name in algos:
            found = torch.autograd.grad(
                log_prob, parameters, slopes[name][index, :width], retain_graph=True, allow_unused=True
            )
            for total, gradient in zip(sums[name], found, strict=True):
                if gradient is not None:
                    total += gradient
    flat = {name: torch.cat([g.flatten() for g in parts]).cpu() for name, parts in sums.items()}
    moved = float(torch.where(batch.mask, k3(now - old), 0).sum())
    return {name: g if chosen is None else g[chosen] for name, g in flat.items()}, moved
