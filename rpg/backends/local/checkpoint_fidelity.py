"""Gradients of the catalogue's losses on a real policy from samples of an earlier one, against the
on-policy gradient.

The sampler is a checkpoint, and the policy is that checkpoint trained further for `staleness`
rollouts. All losses have the same advantage (reward minus the mean of the others of its group), the
same beta, the initial model as reference, and a mean over responses of sums over tokens: so they
have one scale and differ only as losses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rpg.auditing.gradient_agreement import Agreement, agreement
from rpg.backends.local.batch_diagnostics import add_gradients
from rpg.backends.local.rollout import Graded, Roller
from rpg.backends.local.training_loop import configure_memory, configure_torch, resume
from rpg.catalogue import Algorithm, algorithm, algorithms, override
from rpg.catalogue.lookup import divergence_of, exact_loss
from rpg.config.load import spec_of
from rpg.config.run_spec import RunSpec
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.kl_terms import k3
from rpg.losses.policy_loss import LossInputs
from rpg.models.initial_policy import initial_policy
from rpg.models.micro_batches import Limits, score
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from rpg.store.checkpoints import damaged
from rpg.store.run_folder import RunFolder
from rpg.tasks.preparation import prepare_data, read_problems

Losses = dict[str, Algorithm]
COORDINATES = 1_000_000
"""Of larger gradients this many coordinates, drawn at random, are compared."""


@dataclass(frozen=True)
class Row:
    """One loss; `divergence` is the KL that it is meant to estimate."""

    name: str
    divergence: str
    clipped: Agreement | None
    """With its clip or mask; None where it has none."""
    unclipped: Agreement


@dataclass(frozen=True)
class Fidelity:
    """The agreement of each loss with the exact gradient, and how it was measured."""

    run: str
    sampler_step: int
    policy_step: int
    beta: float
    kl: float
    """KL(sampler || policy), nats per token: k3 of the sampled tokens."""
    responses: int
    """From the sampler; as many again from the policy."""
    blocks: int
    coordinates: int
    parameters: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Settings:
    """What is measured, on `blocks` x `prompts` groups of the run's group size."""

    staleness: int = 1
    """Rollouts by which the policy has been trained further than the sampler."""
    beta: float | None = None
    """Coefficient of every KL; by default the run's, or 0.3 where it has none."""
    names: Sequence[str] = ()
    """Losses of the catalogue; by default all."""
    losses: Mapping[str, Algorithm] | None = None
    """Losses in place of `names`, under names of their own."""
    blocks: int = 16
    prompts: int = 16


def fidelity(
    folder: RunFolder,
    step: int,
    home: Path,
    settings: Settings,
    *,
    say: Callable[[str], None] = print,
) -> Fidelity:
    """Measure losses on samples of the checkpoint of `step`; 0 is the initial model, whose
    checkpoint is not needed. Raises UserError: a run or a checkpoint that cannot be used.
    """
    spec = spec_of(folder)
    configure_torch(spec)
    configure_memory(spec)
    path = _whole_checkpoint(folder, step) if step else None
    beta = settings.beta
    if beta is None:
        beta = spec.algorithm.beta or 0.3
    problems = read_problems(prepare_data(spec, home).train)
    sources = folder.read_manifest().get("rewards") or {}

    # The policy is the sampler trained further.
    trainer = resume(spec, path, Roller(spec, problems, sources), home, say)
    sampler = trainer.policy.frozen_copy()
    policy_step = step + settings.staleness
    for further in range(step + 1, policy_step + 1):
        say(f"training further: step {further}")
        trainer.step(further)

    losses = _losses(settings, beta)
    targets = _targets(losses, beta)
    roller = Roller(_undropped(spec, settings.prompts), problems, sources)
    gradients = _Gradients(spec, trainer.policy, initial_policy(spec, home, say))
    after = spec.training.steps + settings.staleness
    off_policy: list[dict[str, Tensor]] = []
    exact: list[dict[str, Tensor]] = []
    responses = 0
    kl = 0.0
    tokens = 0
    for block in range(1, settings.blocks + 1):
        say(f"block {block} of {settings.blocks}")
        graded = roller.roll(sampler, after + 2 * block).first
        by_loss, moved = gradients.of(losses, graded, sampler)
        off_policy.append(by_loss)
        responses += len(graded)
        tokens += int(graded.samples.batch.written.sum())
        kl += moved
        graded = roller.roll(trainer.policy, after + 2 * block + 1).first
        by_target, _ = gradients.of(targets, graded, trainer.policy)
        exact.append(by_target)
    return Fidelity(
        run=f"{folder.sweep}/{folder.name}",
        sampler_step=step,
        policy_step=policy_step,
        beta=beta,
        kl=kl / max(tokens, 1),
        responses=responses,
        blocks=settings.blocks,
        coordinates=gradients.coordinates,
        parameters=gradients.size,
        rows=_rows(losses, off_policy, exact),
    )


def _targets(losses: Losses, beta: float) -> Losses:
    """The loss whose on-policy gradient is exact, for each divergence that a loss is meant to
    estimate."""
    names = dict.fromkeys(map(divergence_of, losses.values()))
    advantage = {"type": "leave_one_out"}
    return {name: exact_loss(name, beta, **_SHARED, advantage=advantage) for name in names}


def _undropped(spec: RunSpec, prompts: int) -> RunSpec:
    """Groups as the run draws them, none dropped and none penalised for length."""
    bare = spec.algorithm.model_copy(update={"dynamic_sampling": False, "overlong": None})
    training = spec.training.model_copy(update={"prompts_per_step": prompts})
    return spec.model_copy(update={"algorithm": bare, "training": training})


def _rows(
    losses: Losses, off_policy: list[dict[str, Tensor]], exact: list[dict[str, Tensor]]
) -> tuple[Row, ...]:
    """A loss with a clip is compared with it and without it."""

    def agree(name: str, divergence: str) -> Agreement:
        return agreement(
            np.stack([block[name].numpy() for block in off_policy]),
            np.stack([block[divergence].numpy() for block in exact]),
        )

    rows = []
    for name, algo in losses.items():
        if name.endswith(_UNCLIPPED):
            continue
        divergence = divergence_of(algo)
        plain = agree(name, divergence)
        if name + _UNCLIPPED in losses:
            unclipped = agree(name + _UNCLIPPED, divergence)
            rows.append(Row(name, divergence, clipped=plain, unclipped=unclipped))
        else:
            rows.append(Row(name, divergence, clipped=None, unclipped=plain))
    return tuple(rows)


def _whole_checkpoint(folder: RunFolder, step: int) -> Path:
    path = folder.checkpoint(step)
    if not (path / "checkpoint.json").exists():
        existing = ", ".join(map(str, folder.checkpoint_steps())) or "none"
        raise ModelError(f"{folder.path}: no checkpoint of step {step}; there are: {existing}")
    damage = damaged(path)
    if damage:
        raise ModelError(f"{path}: {damage}")
    return path


_UNCLIPPED = " without clip"
_SHARED: dict[str, Any] = {"loss_agg_mode": "seq-mean-token-sum", "reference": {"type": "fixed"}}


def _losses(settings: Settings, beta: float) -> Losses:
    """Losses by name, each as it is and again without clip, mask and drift penalty."""
    asked = settings.losses
    if asked is None:
        rewarded = [name for name, algo in algorithms().items() if algo.rewarded]
        asked = {name: algorithm(name) for name in settings.names or rewarded}
    losses = {}
    for name, algo in asked.items():
        if not algo.rewarded:
            raise ModelError(
                f"--checkpoint compares losses with rewards, and {name} does not train on them"
            )
        per_token = algo.kl.type == "reward" and algo.advantage.type in ("batch", "gae")
        advantage = {"type": "batch", "std": False} if per_token else {"type": "leave_one_out"}
        own_beta = beta if algo.kl.type != "none" else 0.0
        changes = {"advantage": advantage, "beta": own_beta, **_SHARED}
        losses[name] = override(algo, **changes)
        bare = override(algo, **changes, clip=None, mask=None, drift_penalty=0.0)
        if bare != losses[name]:  # as the audit of exact gradients has it (rpg.auditing.subjects)
            losses[name + _UNCLIPPED] = bare
    return losses


class _Gradients:
    """Gradients of losses at a policy, in its trained parameters; of a large policy only some
    coordinates."""

    def __init__(self, spec: RunSpec, policy: Policy, initial: Policy):
        self.spec = spec
        self.policy = policy
        self.initial = initial
        self.limits = Limits.of(spec.training, policy)
        self.parameters = [p for p in policy.model.parameters() if p.requires_grad]
        self.size = sum(p.numel() for p in self.parameters)
        self.coordinates = min(self.size, COORDINATES)
        self._chosen: Tensor | None = None
        if self.size > COORDINATES:
            order = torch.randperm(self.size, generator=torch.Generator().manual_seed(0))
            self._chosen = order[:COORDINATES].sort().values

    def of(self, algos: Losses, graded: Graded, source: Policy) -> tuple[dict[str, Tensor], float]:
        """(minus the gradient of each loss on these responses of `source`, KL(source || policy)
        summed over tokens)."""
        batch = graded.samples.batch
        temperature = self.spec.rollout.temperature
        old = graded.samples.log_prob
        if not self.policy.exact_samples:
            old = score(source, batch, temperature, self.limits)
        reference = score(self.initial, batch, temperature, self.limits)
        now = score(self.policy, batch, temperature, self.limits)
        slopes = {}
        for name, algo in algos.items():
            advantages = advantages_of(
                algo,
                rewards=graded.rewards,
                group=batch.prompt_of,
                response_mask=batch.mask,
                old_log_prob=old,
                ref_log_prob=reference,
            )
            inputs = LossInputs(old, reference, advantages, batch.mask)
            slopes[name] = -inputs.slope(algo, now.clone())
        sums = {
            name: [torch.zeros_like(p, dtype=torch.float32) for p in self.parameters]
            for name in algos
        }
        for rows in self.limits.split(batch, range(len(batch))):
            part = batch.rows(rows)
            log_prob = self.policy.log_probs(part, temperature)
            width = part.tokens.shape[1]
            for name, slope in slopes.items():
                add_gradients(sums[name], self.parameters, [log_prob], [slope[rows, :width]])
        flat = {name: torch.cat([g.flatten() for g in parts]).cpu() for name, parts in sums.items()}
        if self._chosen is not None:
            flat = {name: gradient[self._chosen] for name, gradient in flat.items()}
        moved = float(torch.where(batch.mask, k3(now - old), 0).sum())
        return flat, moved
