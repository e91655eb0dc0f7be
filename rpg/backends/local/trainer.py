"""One training step: a rollout, then several optimizer steps on it; and the numbers it reports.

Shapes: N responses (rows), T response tokens.
"""

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu

from rpg.backends.gaps import gap_metrics
from rpg.backends.local.batch_diagnostics import Diagnostics
from rpg.backends.local.critic import Critic
from rpg.backends.local.optimizers import Optimizer
from rpg.backends.local.reference import Reference
from rpg.backends.local.rollout import Graded, Roller, Rollout
from rpg.backends.local.roundings import export_gap, first_rows
from rpg.backends.local.sampler import Sampler, Weights
from rpg.backends.optimizer_steps import Meter
from rpg.backends.token_recorder import Recorder, token_values
from rpg.catalogue import GAE, DistributionKL
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError, is_no_memory
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.advantages import positive_lm_weights, value_targets
from rpg.losses.aggregation import Counts, aggregate
from rpg.losses.policy_loss import policy_loss, rollout_weights, weight_metrics, weighted_likelihood
from rpg.models import seeds
from rpg.models.decoding import Batch
from rpg.models.lora import merged
from rpg.models.micro_batches import Limits, micro_batches, score
from rpg.models.policy import Policy


class TrainingError(UserError):
    """A training that cannot go on; `str(error)` is one line that names the step and the quantity."""


@dataclass(frozen=True)
class Experience:
    """What the optimizer steps of one rollout need; (N, T) each."""

    batch: Batch
    old: Tensor
    begin: Tensor
    """Log-probabilities under the policy before the updates: `old`, unless the loss divides by the
    sampler's."""
    reference: Tensor | None
    advantages: Tensor
    drawn: Tensor
    """Log-probabilities under the policy that sampled: `old`, unless the loss corrects for another
    one."""
    row: Tensor
    """(N,) numbers of the responses within the rollout."""
    weights: Tensor | None = None
    """(N, T) or (N, 1): importance weights for a sampler that is not `old`."""
    values: Tensor | None = None
    """A critic's values before the updates, and"""
    targets: Tensor | None = None
    """what it is to learn."""
    lm_weights: Tensor | None = None
    """(N, T) of losses.advantages.positive_lm_weights."""

    def rows(self, index: Tensor) -> "Experience":
        batch = self.batch.rows(index)
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        parts = {
            name: x[index, : batch.tokens.shape[1]] for name, x in tensors.items() if x.ndim > 1
        }
        return replace(self, batch=batch, row=self.row[index], **parts)


class Trainer:
    """Trains a policy in place, one rollout step at a time.

    Attributes:
        optimizer_step: optimizer steps done.
        tokens: response tokens sampled so far.
    """

    recorder: Recorder | None = None
    """What the last step recorded of its tokens, if it was to (`training.token_records`)."""
    last_batch: Batch | None = None
    """The responses of the last step that trained."""

    def __init__(
        self, spec: RunSpec, policy: Policy, roller: Roller, teacher: Policy | None = None
    ):
        """`teacher`: the model of a reference of type `model`, if there is one that the loss reads."""
        self.spec, self.policy, self.roller, training = spec, policy, roller, spec.training
        self.progress = roller.progress
        policy.recompute = spec.backend.gradient_checkpointing
        # The policy computes from here on with the weights it is trained with.
        advantage = spec.algorithm.advantage
        alone = (
            advantage.critic_warmup * training.updates_per_step if isinstance(advantage, GAE) else 0
        )
        settings = training.optimizer
        total = training.optimizer_steps - alone
        half = spec.half_weights()
        self.optimizer = Optimizer(policy.model, settings, total, half)
        self.reference, self.sampler = Reference(spec.algorithm, teacher), Sampler(spec.rollout)
        self.critic = Critic(spec, policy) if isinstance(advantage, GAE) else None
        self.optimizer_step = self.tokens = 0

    def step(self, step: int) -> dict[str, float]:
        """Rollout step number `step` (from 1); returns its metrics. Raises TrainingError: a loss or
        a gradient is not finite (the policy is then as before that optimizer step), or there is too
        little memory.
        """
        try:
            return self._step(step)
        except FloatingPointError as error:
            raise TrainingError(
                f"training step {step}, optimizer step {self.optimizer_step + 1}: {error}; a smaller learning rate or "
                "clipping may help"
            ) from error
        except (MemoryError, RuntimeError, OSError) as error:
            if not is_no_memory(error):
                raise
            phase = self.progress.phase
            raise TrainingError(
                f"training step {step}{phase and ', '}{phase}: not enough memory; {self.spec.backend.less_memory(phase)}"
            ) from error

    def _step(self, step: int) -> dict[str, float]:
        began = time.perf_counter()
        self.progress.begin_step(step, self.spec.training.steps)
        self.optimizer.rollout_mode()
        self.reference.begin_rollout(self.optimizer_step)
        sampler = self.sampler.policy(self.policy)
        age = len(self.sampler.past)
        rollout = self.roller.roll(sampler, step)
        self.sampler.keep(self.policy, step)
        self.tokens += rollout.tokens
        metrics = _rollout_metrics(rollout, self.spec.rollout.group_size)
        metrics["reference_age"] = self.reference.age(self.optimizer_step)
        log_prob = update = 0.0
        self.recorder, every = None, self.spec.training.token_records.every
        if rollout.kept is not None:
            start = time.perf_counter()
            graded = self.roller.with_demonstrations(rollout.kept, sampler, step)
            if every and step % every == 0:
                self.recorder = self._recorder(graded)
            experience, log_ratio = self._score(graded, sampler)
            mask = experience.batch.mask
            # Other weights, or other kernels in a precision in which that matters.
            differs = not (self.sampler.is_policy and self._exact_samples)
            if differs:
                metrics["sampler_age"] = age
                metrics |= gap_metrics("kl_sampler_to_policy", log_ratio, mask)
            if differs and self.sampler.is_policy:
                metrics["kl_rounding"] = metrics["kl_sampler_to_policy"]
            if experience.weights is not None:
                correction = self.spec.algorithm.rollout_correction
                metrics |= weight_metrics(correction, experience.weights, experience.batch.mask)
            scored = time.perf_counter()
            self.reference.begin_updates(self.policy)
            self.optimizer.update_mode()
            metrics |= self._update(step, experience)
            self.optimizer.rollout_mode()
            if differs:
                metrics |= self._moved(experience)
            self.reference.end_updates(self.policy)
            self.last_batch = experience.batch
            log_prob = scored - start
            update = time.perf_counter() - scored
        self.progress.begin("", 0, "")
        total = time.perf_counter() - began
        metrics |= {f"seconds_{name}": value for name, value in rollout.seconds.items()}
        metrics |= {"seconds_log_prob": log_prob, "seconds_update": update, "seconds_step": total}
        metrics |= {"tokens": self.tokens, "tokens_per_second": rollout.tokens / total}
        return {"step": step, "optimizer_step": self.optimizer_step, **metrics}

    def _recorder(self, graded: Graded) -> Recorder:
        spec = self.spec
        batch = graded.samples.batch
        prompts = [batch.prompts[number] for number in batch.prompt_of.tolist()]
        responses = [ids[:n] for ids, n in zip(batch.tokens, batch.lengths.tolist(), strict=True)]
        given = prompts, responses, graded.rewards.tolist(), self.policy.tokenizer.decode
        return Recorder(spec.training.token_records, spec.rollout.group_size, *given)

    @property
    def _exact_samples(self) -> bool:
        """Whether the sampler computes the log-probabilities of the training pass, up to float32's
        rounding."""
        return self.policy.exact_samples and self.sampler.exact

    def _moved(self, experience: Experience) -> dict[str, float]:
        """How far the step's updates have moved the policy, on the first responses: what gaps
        between roundings are to be compared with."""
        part = first_rows(experience.batch)
        limits = Limits.of(self.spec.training, self.policy)
        temperature = self.spec.rollout.temperature
        now = score(self.policy, part, temperature, limits)
        before = experience.begin[: now.shape[0], : now.shape[1]]
        return gap_metrics("kl_old_to_new", now - before, part.mask)

    def export_gap(self, exported: Weights) -> dict[str, float]:
        """How far the weights that a checkpoint exports are from those that are trained."""
        if self.last_batch is None:
            return {}
        trained = merged(self.policy.model, self.optimizer.weights())
        return export_gap(
            self.policy,
            trained,
            exported,
            self.last_batch,
            self.spec.rollout.temperature,
            Limits.of(self.spec.training, self.policy),
        )

    def _score(self, graded: Graded, sampler: Policy) -> tuple[Experience, Tensor]:
        """Old and reference log-probabilities, advantages and weights; and log(policy / sampler) of
        each token, (N, T)."""
        spec = self.spec
        batch = graded.samples.batch
        self.progress.begin("log-probabilities", 0, "")
        limits = Limits.of(spec.training, self.policy)
        temperature = spec.rollout.temperature
        drawn = graded.samples.log_prob
        nobody_drew = spec.algorithm.demonstrations > 0
        exact = self._exact_samples and not nobody_drew
        sampled = drawn if exact else score(sampler, batch, temperature, limits)
        drawn = sampled if nobody_drew else drawn
        current = (
            sampled if sampler is self.policy else score(self.policy, batch, temperature, limits)
        )
        correction = spec.algorithm.rollout_correction
        old = sampled if correction.type == "none" else current
        mask = batch.mask
        weights = rollout_weights(
            correction, old_log_prob=old, sampler_log_prob=drawn, response_mask=mask
        )
        reference = self.reference.log_probs(batch, temperature, limits, self.recorder is not None)
        if reference is None and spec.algorithm.needs_reference:
            reference = (
                current  # just renewed: the reference is the policy itself; or nobody reads it
            )
        algorithm = spec.algorithm
        inputs: dict[str, Any] = {"rewards": graded.rewards, "group": batch.prompt_of}
        inputs |= {"response_mask": mask, "old_log_prob": old, "ref_log_prob": reference}
        values = None if self.critic is None else self.critic.score(batch, limits)
        targets = None if values is None else value_targets(algorithm, values=values, **inputs)
        advantages = advantages_of(algorithm, values=values, **inputs)
        row = torch.arange(len(batch), device=old.device)
        experience = Experience(
            batch=batch,
            old=old,
            begin=current,
            reference=reference,
            advantages=advantages,
            drawn=sampled,
            row=row,
            weights=weights,
            values=values,
            targets=targets,
            lm_weights=positive_lm_weights(algorithm, graded.correct, mask),
        )
        return experience, current - drawn

    def _update(self, step: int, experience: Experience) -> dict[str, float]:
        """All epochs and mini-batches of one rollout."""
        training = self.spec.training
        size = self.spec.rollout.group_size
        device = experience.old.device
        meter = Meter()
        norms = []
        rate = 0.0
        groups = len(experience.batch) // size
        self.progress.begin("update", training.epochs * len(experience.batch), "responses")
        every = training.fidelity_every
        exact = (
            (self.optimizer.parameters, self.optimizer.masters)
            if every and step % every == 0
            else ()
        )
        diagnostics = Diagnostics(self.spec.algorithm, *exact)
        measured: dict[str, float] = {}
        critic: list[dict[str, float]] = []
        for epoch in range(training.epochs):
            order = seeds.permutation(groups, self.spec.seed, "mini-batches", step, epoch).to(
                device
            )
            parts = torch.split(order, training.mini_batch_prompts)
            for number, chosen in enumerate(parts, 1):
                rows = (
                    chosen.sort().values[:, None] * size + torch.arange(size, device=device)
                ).flatten()
                last = epoch == training.epochs - 1 and number == len(parts)
                mini = experience.rows(rows)
                if self.critic is not None:
                    assert mini.values is not None and mini.targets is not None
                    limits = Limits.of(training, self.policy)
                    critic.append(self.critic.update(mini.batch, mini.values, mini.targets, limits))
                    if step <= self.critic.setting.critic_warmup:
                        continue
                token_kl = self._accumulate(mini, meter, diagnostics if last else None)
                if last:
                    measured = diagnostics.metrics()  # before gradients are clipped
                norm, rate = self.optimizer.step(self.optimizer_step + 1, training.max_grad_norm)
                self.optimizer_step += 1
                norms.append(norm)
                self.reference.observe(token_kl)
        self.optimizer.zero_grad()  # the next rollout needs the memory
        of_critic = means(critic)
        return meter.metrics(norms, rate, measured) | of_critic if norms else of_critic

    def _accumulate(
        self, mini: Experience, meter: Meter, diagnostics: Diagnostics | None = None
    ) -> float:
        """Gradients of one mini-batch, one micro-batch at a time; returns its mean KL(policy ||
        reference)."""
        self.optimizer.zero_grad()
        spec = self.spec
        responses = len(mini.batch)
        counts = Counts(int(mini.batch.mask.sum()), responses, spec.rollout.max_response_tokens)
        token_kl = 0.0
        for rows in micro_batches(
            mini.batch, mini.advantages, Limits.of(spec.training, self.policy)
        ):
            micro = mini if len(rows) == responses else mini.rows(rows)
            inputs: dict[str, Any] = {"old_log_prob": micro.old, "ref_log_prob": micro.reference}
            inputs |= {"advantages": micro.advantages, "response_mask": micro.batch.mask}
            inputs |= {"rollout_weights": micro.weights, "counts": counts}
            with save_on_cpu() if spec.backend.offload else nullcontext():
                log_prob, divergence, bonus, more = self._forward(micro, counts)
            leaf = log_prob.detach().requires_grad_()
            out = policy_loss(spec.algorithm, log_prob=leaf, token_kl=divergence, **inputs)
            if self.recorder is not None:
                marks = self.recorder.marks[micro.row]
                at_step = self.optimizer_step + 1
                given = out.loss, micro.drawn, {**inputs, "log_prob": leaf}, divergence
                self.recorder.values |= token_values(spec.algorithm, marks, at_step, *given)
            if diagnostics is not None:
                diagnostics.exact(log_prob, micro.drawn, inputs, bonus)
            torch.autograd.backward(out.loss)
            assert leaf.grad is not None
            # Not for groups without a signal, or where all is clipped.
            outputs, slopes = ([log_prob], [leaf.grad]) if leaf.grad.any() else ([], [])
            if bonus is not None:
                outputs = [*outputs, bonus]
                slopes = [*slopes, -torch.ones_like(bonus)]
            if outputs:
                torch.autograd.backward(outputs, slopes)
            del log_prob, bonus, outputs  # and with them what was kept for the backward pass
            metrics = out.metrics | more
            meter.add(metrics, out.weight, self.optimizer_step)
            token_kl += metrics["kl_policy_to_ref"] * out.weight / counts.tokens
            self.progress.done += len(rows)
            self.progress.tokens += int(micro.batch.lengths.sum())
            self.progress.share = self.progress.done / self.progress.of
            if diagnostics is not None:
                diagnostics.add(leaf, inputs)
        return token_kl

    def _forward(
        self, micro: Experience, counts: Counts
    ) -> tuple[Tensor, Tensor | None, Tensor | None, dict[str, float]]:
        """Log-probabilities (N, T); where the run has them, divergences of whole distributions (N,
        T), without a gradient, and what the objective adds beside the loss of the sampled tokens, a
        scalar; and their metrics.
        """
        algorithm = self.spec.algorithm
        batch = micro.batch
        temperature = self.spec.rollout.temperature
        mode = algorithm.loss_agg_mode
        coefficient = self.spec.training.entropy_coeff
        whole = isinstance(algorithm.kl, DistributionKL) and algorithm.beta > 0
        scored = self.policy.scored(batch, temperature, entropy=coefficient > 0, states=whole)
        metrics = dict[str, float]()
        bonuses = list[Tensor]()
        divergence = None
        if scored.entropy is not None:
            bonuses.append(coefficient * aggregate(scored.entropy, batch.mask, mode, counts))
            metrics["policy_entropy"] = float(scored.entropy.detach().sum() / batch.mask.sum())
        if micro.lm_weights is not None:
            bonuses.append(
                weighted_likelihood(scored.log_prob, micro.lm_weights, batch.mask, counts)
            )
        if whole:
            values, measured = self.reference.token_kl(self.policy, scored, batch, temperature)
            bonuses.append(-algorithm.beta * aggregate(values, batch.mask, mode, counts))
            metrics = metrics | measured
            divergence = values.detach()
        return scored.log_prob, divergence, torch.stack(bonuses).sum() if bonuses else None, metrics


def means(rows: list[dict[str, float]]) -> dict[str, float]:
    """Of each metric, over the rows that have it."""
    values = {name: [row[name] for row in rows if name in row] for row in rows for name in row}
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


def _rollout_metrics(rollout: Rollout, group_size: int) -> dict[str, float]:
    """Metrics of the first round's groups, except for the counts of groups."""
    graded = rollout.first
    samples = rollout.first.samples
    lengths = samples.batch.written
    entropy = samples.entropy.sum(-1)
    right = graded.correct
    by_answer = {
        name: float(entropy[rows].sum() / lengths[rows].sum())
        for name, rows in (("entropy_correct", right), ("entropy_wrong", ~right))
        if rows.any()
    }
    return {
        **by_answer,
        "reward": float(graded.rewards.mean()),
        "accuracy": float(graded.correct.float().mean()),
        "entropy": float(samples.entropy.sum() / lengths.sum()),
        "response_length": float(lengths.float().mean()),
        "truncation_rate": float(samples.truncated.float().mean()),
        "groups_sampled": rollout.groups_sampled,
        "groups_kept": len(rollout.kept) // group_size if rollout.kept is not None else 0,
        **graded.part_means(),
        **graded.talk,
    }
