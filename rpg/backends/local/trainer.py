"""One training step: a rollout, then several optimizer steps on it; and the numbers it reports.

Shapes: N responses (rows), T response tokens.
"""

import time
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu

from rpg.backends.gaps import gap_metrics
from rpg.backends.local.batch_diagnostics import Diagnostics
from rpg.backends.local.critic import Critic
from rpg.backends.local.optimizers import Optimizer
from rpg.backends.local.reference import Reference
from rpg.backends.local.rollout import Graded, Roller, Rollout
from rpg.backends.local.roundings import Others, export_gap, first_rows
from rpg.backends.local.sampler import Sampler, Weights
from rpg.backends.step_metrics import Meter
from rpg.backends.token_recorder import Recorder, token_values
from rpg.catalogue import GAE, DistributionKL
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError, is_no_memory
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.advantages import positive_lm_weights, value_targets
from rpg.losses.aggregation import Counts, aggregate
from rpg.losses.policy_loss import (
    LossInputs,
    LossOutput,
    rollout_weights,
    weight_metrics,
    weighted_likelihood,
)
from rpg.models import seeds
from rpg.models.decoding import Batch
from rpg.models.lora import merged
from rpg.models.micro_batches import Limits, micro_batches, score
from rpg.models.policy import Policy


class TrainingError(UserError):
    """A training that cannot go on; `str(error)` is one line that names the step and the
    quantity."""


@dataclass(frozen=True)
class Experience:
    """What the optimizer steps of one rollout need; (N, T) each.

    Which policy is the old one, and what the weights are: the table above RolloutCorrection in
    rpg/catalogue/components.py.
    """

    batch: Batch
    policy_log_prob: Tensor
    """Of the trained policy before the updates."""
    sampler_log_prob: Tensor
    """Of the policy that drew the response, as the trainer computes it."""
    engine_log_prob: Tensor
    """Of the same, as the engine computed it while it drew."""
    old_log_prob: Tensor
    """Of what the ratio divides by: the first or the second of these."""
    ref_log_prob: Tensor | None
    advantages: Tensor
    row: Tensor
    """(N,) numbers of the responses within the rollout."""
    rollout_weights: Tensor | None = None
    """(N, T) or (N, 1): the loss is multiplied by them, to correct for the sampler."""
    values: Tensor | None = None
    """A critic's values before the updates."""
    targets: Tensor | None = None
    """What the critic is to learn."""
    lm_weights: Tensor | None = None
    """(N, T) of losses.advantages.positive_lm_weights."""
    rewards: Tensor | None = None
    """(N, 1), where advantages follow the policy from update to update (advantage target)."""

    def rows(self, index: Tensor) -> "Experience":
        """The responses of these numbers, as wide as the longest of them."""
        batch = self.batch.rows(index)
        width = batch.tokens.shape[1]
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        parts = {name: x[index, :width] for name, x in tensors.items() if x.ndim > 1}
        return replace(self, batch=batch, row=self.row[index], **parts)

    def inputs(self, counts: Counts) -> LossInputs:
        return LossInputs(
            old_log_prob=self.old_log_prob,
            ref_log_prob=self.ref_log_prob,
            advantages=self.advantages,
            response_mask=self.batch.mask,
            rollout_weights=self.rollout_weights,
            counts=counts,
        )


@dataclass(frozen=True)
class Forward:
    """One forward pass over a micro-batch."""

    log_prob: Tensor
    """(N, T)."""
    token_kl_value: Tensor | None
    """(N, T): divergences of whole distributions, detached: they enter the loss by their value
    through policy_loss, and by their gradient through `extra_loss`."""
    extra_loss: Tensor | None
    """A scalar that is differentiated beside the loss of the sampled tokens, since it depends on
    more than their log-probabilities: entropy, likelihood of right responses, divergences of whole
    distributions."""
    metrics: dict[str, float]


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
        """`teacher`: the model of a reference of type `model`, if there is one that the loss
        reads."""
        self.spec = spec
        self.policy = policy
        self.roller = roller
        self.progress = roller.progress
        policy.recompute = spec.backend.gradient_checkpointing
        training = spec.training
        total = training.optimizer_steps
        advantage = spec.algorithm.advantage
        if isinstance(advantage, GAE):  # at first the critic is trained alone
            total -= advantage.critic_warmup * training.updates_per_step
        # The policy computes from here on with the weights it is trained with.
        self.optimizer = Optimizer(policy.model, training.optimizer, total, spec.half_weights())
        self.reference = Reference(spec.algorithm, teacher)
        self.sampler = Sampler(spec.rollout)
        self.critic = Critic(spec, policy) if isinstance(advantage, GAE) else None
        self.optimizer_step = 0
        self.tokens = 0

    def step(self, step: int) -> dict[str, float]:
        """Rollout step number `step` (from 1); returns its metrics. Raises TrainingError: a loss or
        a gradient is not finite (the policy is then as before that optimizer step), or there is too
        little memory.
        """
        try:
            return self._step(step)
        except FloatingPointError as error:
            raise TrainingError(
                f"training step {step}, optimizer step {self.optimizer_step + 1}: {error}; "
                "a smaller learning rate or "
                "clipping may help"
            ) from error
        except (MemoryError, RuntimeError, OSError) as error:
            if not is_no_memory(error):
                raise
            phase = self.progress.phase
            raise TrainingError(
                f"training step {step}{phase and ', '}{phase}: not enough memory; "
                f"{self.spec.backend.less_memory(phase)}"
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
        self.recorder = None
        seconds = {"log_prob": 0.0, "update": 0.0}
        if rollout.kept is not None:
            metrics |= self._train(step, rollout.kept, sampler, age, seconds)
        self.progress.begin("", 0, "")
        total = time.perf_counter() - began
        seconds = {**rollout.seconds, **seconds, "step": total}
        metrics |= {f"seconds_{name}": value for name, value in seconds.items()}
        metrics |= {"tokens": self.tokens, "tokens_per_second": rollout.tokens / total}
        return {"step": step, "optimizer_step": self.optimizer_step, **metrics}

    def _train(
        self, step: int, kept: Graded, sampler: Policy, age: int, seconds: dict[str, float]
    ) -> dict[str, float]:
        """Score the responses and train on them; `age`: of the sampler, in rollouts. Adds to
        `seconds`."""
        start = time.perf_counter()
        graded = self.roller.with_demonstrations(kept, sampler, step)
        every = self.spec.training.token_records.every
        if every and step % every == 0:
            self.recorder = self._recorder(graded)
        experience = self._experience(graded, sampler)
        mask = experience.batch.mask
        metrics = dict[str, float]()
        # Other weights, or other kernels in a precision in which that matters.
        differs = not (self.sampler.is_policy and self._exact_samples)
        if differs:
            metrics["sampler_age"] = age
            log_ratio = experience.policy_log_prob - experience.engine_log_prob
            metrics |= gap_metrics("kl_sampler_to_policy", log_ratio, mask)
        if differs and self.sampler.is_policy:
            metrics["kl_rounding"] = metrics["kl_sampler_to_policy"]
        if experience.rollout_weights is not None:
            correction = self.spec.algorithm.rollout_correction
            metrics |= weight_metrics(correction, experience.rollout_weights, mask)
        scored = time.perf_counter()
        self.reference.begin_updates(self.policy)
        self.optimizer.update_mode()
        metrics |= self._update(step, experience)
        self.optimizer.rollout_mode()
        if differs:
            metrics |= self._moved(experience)
        self.reference.end_updates(self.policy)
        self.last_batch = experience.batch
        seconds["log_prob"] += scored - start
        seconds["update"] += time.perf_counter() - scored
        return metrics

    def _recorder(self, graded: Graded) -> Recorder:
        batch = graded.samples.batch
        lengths = batch.lengths.tolist()
        return Recorder(
            records=self.spec.training.token_records,
            size=self.spec.rollout.group_size,
            prompts=[batch.prompts[number] for number in batch.prompt_of.tolist()],
            responses=[ids[:n] for ids, n in zip(batch.tokens, lengths, strict=True)],
            rewards=graded.rewards.tolist(),
            text=self.policy.tokenizer.decode,
        )

    @property
    def _exact_samples(self) -> bool:
        """Whether the sampler computes the log-probabilities of the training pass, up to float32's
        rounding."""
        return self.policy.exact_samples and self.sampler.exact_samples

    def _moved(self, experience: Experience) -> dict[str, float]:
        """How far the step's updates have moved the policy, on the first responses: what gaps
        between roundings are to be compared with."""
        part = first_rows(experience.batch)
        limits = Limits.of(self.spec.training, self.policy)
        temperature = self.spec.rollout.temperature
        now = score(self.policy, part, temperature, limits)
        before = experience.policy_log_prob[: now.shape[0], : now.shape[1]]
        return gap_metrics("kl_old_to_new", now - before, part.mask)

    def export_gap(self, exported: Weights, wide_base: Weights | None = None) -> dict[str, float]:
        """How far the weights that a checkpoint exports are from those that are trained; and so are
        the adapters beside `wide_base`, the base of 4 bits as it was before."""
        if self.last_batch is None:
            return {}
        adapters = self.optimizer.weights()
        trained = merged(self.policy.model, adapters)
        wide = None if wide_base is None else merged(self.policy.model, adapters, wide_base)
        return export_gap(
            self.policy,
            Others(trained=trained, exported=exported, beside_wide_base=wide),
            self.last_batch,
            self.spec.rollout.temperature,
            Limits.of(self.spec.training, self.policy),
        )

    def _experience(self, graded: Graded, sampler: Policy) -> Experience:
        """Log-probabilities of the responses under every policy that the loss compares, then
        advantages and weights."""
        algorithm = self.spec.algorithm
        batch = graded.samples.batch
        limits = Limits.of(self.spec.training, self.policy)
        temperature = self.spec.rollout.temperature
        self.progress.begin("log-probabilities", 0, "")

        engine_log_prob = graded.samples.log_prob
        nobody_drew = algorithm.demonstrations > 0
        if nobody_drew:
            sampler_log_prob = score(sampler, batch, temperature, limits)
            engine_log_prob = sampler_log_prob
        elif self._exact_samples:
            sampler_log_prob = engine_log_prob
        else:
            sampler_log_prob = score(sampler, batch, temperature, limits)
        policy_log_prob = sampler_log_prob
        if sampler is not self.policy:
            policy_log_prob = score(self.policy, batch, temperature, limits)
        old_is_sampler = algorithm.rollout_correction.type == "none"
        old_log_prob = sampler_log_prob if old_is_sampler else policy_log_prob

        weights = rollout_weights(
            algorithm.rollout_correction,
            old_log_prob=old_log_prob,
            sampler_log_prob=engine_log_prob,
            response_mask=batch.mask,
        )
        is_recorded = self.recorder is not None
        ref_log_prob = self.reference.log_probs(batch, temperature, limits, is_recorded)
        if ref_log_prob is None and algorithm.needs_reference:
            # Just renewed: the reference is the policy itself; or nobody reads it.
            ref_log_prob = policy_log_prob

        values = None
        targets = None
        if self.critic is not None:
            values = self.critic.score(batch, limits)
            targets = value_targets(
                algorithm,
                values=values,
                rewards=graded.rewards,
                group=batch.prompt_of,
                response_mask=batch.mask,
                old_log_prob=old_log_prob,
                ref_log_prob=ref_log_prob,
            )
        advantages = advantages_of(
            algorithm,
            values=values,
            rewards=graded.rewards,
            group=batch.prompt_of,
            response_mask=batch.mask,
            old_log_prob=old_log_prob,
            ref_log_prob=ref_log_prob,
            log_prob=policy_log_prob,
        )
        return Experience(
            batch=batch,
            policy_log_prob=policy_log_prob,
            sampler_log_prob=sampler_log_prob,
            engine_log_prob=engine_log_prob,
            old_log_prob=old_log_prob,
            ref_log_prob=ref_log_prob,
            advantages=advantages,
            row=torch.arange(len(batch), device=old_log_prob.device),
            rollout_weights=weights,
            values=values,
            targets=targets,
            lm_weights=positive_lm_weights(algorithm, graded.correct, batch.mask),
            rewards=graded.rewards[:, None] if algorithm.advantage.type == "target" else None,
        )

    def _update(self, step: int, experience: Experience) -> dict[str, float]:
        """All epochs and mini-batches of one rollout."""
        training = self.spec.training
        meter = Meter()
        norms = []
        rate = 0.0
        self.progress.begin("update", training.epochs * len(experience.batch), "responses")
        diagnostics = self._diagnostics(step)
        measured: dict[str, float] = {}
        critic: list[dict[str, float]] = []
        mini_batches = self._mini_batches(step, experience)
        for number, rows in enumerate(mini_batches, 1):
            is_last = number == len(mini_batches)
            mini = experience.rows(rows)
            if self.critic is not None:
                assert mini.values is not None and mini.targets is not None
                limits = Limits.of(training, self.policy)
                critic.append(self.critic.update(mini.batch, mini.values, mini.targets, limits))
                if step <= self.critic.setting.critic_warmup:
                    continue
            if mini.rewards is not None:
                mini = self._towards_target(mini, is_first=number == 1)
            step_kl_to_ref = self._accumulate(mini, meter, diagnostics if is_last else None)
            if is_last:
                measured = diagnostics.metrics()  # before gradients are clipped
            norm, rate = self.optimizer.step(self.optimizer_step + 1, training.max_grad_norm)
            self.optimizer_step += 1
            norms.append(norm)
            self.reference.observe(step_kl_to_ref)
        self.optimizer.zero_grad()  # the next rollout needs the memory
        metrics = meter.metrics(norms, rate, measured) if norms else {}
        return metrics | means(critic)

    def _towards_target(self, mini: Experience, is_first: bool) -> Experience:
        """With the advantages of the policy as it is before this optimizer step. The policy is
        scored once more for it, so that micro-batches need not hold whole groups."""
        assert mini.rewards is not None
        now = mini.policy_log_prob
        if not is_first:
            limits = Limits.of(self.spec.training, self.policy)
            now = score(self.policy, mini.batch, self.spec.rollout.temperature, limits)
        advantages = advantages_of(
            self.spec.algorithm,
            rewards=mini.rewards[:, 0],
            group=mini.batch.prompt_of,
            response_mask=mini.batch.mask,
            old_log_prob=mini.old_log_prob,
            ref_log_prob=mini.ref_log_prob,
            log_prob=now,
        )
        return replace(mini, advantages=advantages)

    def _mini_batches(self, step: int, experience: Experience) -> list[Tensor]:
        """The responses of each mini-batch of each epoch, whole groups in a random order."""
        training = self.spec.training
        size = self.spec.rollout.group_size
        device = experience.old_log_prob.device
        groups = len(experience.batch) // size
        mini_batches = []
        for epoch in range(training.epochs):
            order = seeds.permutation(groups, self.spec.seed, "mini-batches", step, epoch)
            for chosen in torch.split(order.to(device), training.mini_batch_prompts):
                first_rows = chosen.sort().values[:, None] * size
                mini_batches.append((first_rows + torch.arange(size, device=device)).flatten())
        return mini_batches

    def _diagnostics(self, step: int) -> Diagnostics:
        """Every `fidelity_every` steps with the exact gradient."""
        every = self.spec.training.fidelity_every
        if not every or step % every:
            return Diagnostics(self.spec.algorithm)
        optimizer = self.optimizer
        return Diagnostics(self.spec.algorithm, optimizer.parameters, optimizer.masters)

    def _accumulate(
        self, mini: Experience, meter: Meter, diagnostics: Diagnostics | None = None
    ) -> float:
        """Gradients of one mini-batch, one micro-batch at a time; returns its mean KL(policy ||
        reference)."""
        self.optimizer.zero_grad()
        spec = self.spec
        responses = len(mini.batch)
        horizon = spec.rollout.max_response_tokens
        counts = Counts(int(mini.batch.mask.sum()), responses, horizon)
        if spec.algorithm.loss_agg_mode == "prompt-mean":
            counts = Counts.of(mini.batch.mask, horizon, group=mini.batch.prompt_of)
        limits = Limits.of(spec.training, self.policy)
        step_kl_to_ref = 0.0
        for rows in micro_batches(mini.batch, mini.advantages, limits):
            whole = len(rows) == responses
            micro = mini if whole else mini.rows(rows)
            micro_counts = counts if whole else counts.rows(rows)
            passed = self._forward_and_backward(micro, micro_counts, diagnostics)
            meter.add(passed.metrics, passed.weight, self.optimizer_step)
            share = passed.weight / counts.tokens
            step_kl_to_ref += passed.metrics["kl_policy_to_ref"] * share
            self._advance(micro.batch)
        return step_kl_to_ref

    def _forward_and_backward(
        self, micro: Experience, counts: Counts, diagnostics: Diagnostics | None
    ) -> LossOutput:
        """Add the gradients of one micro-batch to those of the weights; returns its loss, with the
        metrics of the forward pass."""
        algorithm = self.spec.algorithm
        inputs = micro.inputs(counts)
        with save_on_cpu() if self.spec.backend.offload else nullcontext():
            forward = self._forward(micro, counts)

        # The loss is differentiated in the log-probabilities, and these in the weights.
        leaf = forward.log_prob.detach().requires_grad_()
        out = inputs.loss(algorithm, leaf, forward.token_kl_value)
        if self.recorder is not None:
            self.recorder.values |= token_values(
                algorithm,
                marks=self.recorder.marks[micro.row],
                optimizer_step=self.optimizer_step + 1,
                loss=out.loss,
                sampler_log_prob=micro.sampler_log_prob,
                log_prob=leaf,
                inputs=inputs,
                token_kl=forward.token_kl_value,
            )
        if diagnostics is not None:
            diagnostics.add_exact(
                forward.log_prob, micro.sampler_log_prob, inputs, forward.extra_loss
            )
        torch.autograd.backward(out.loss)
        assert leaf.grad is not None
        _backward(forward, leaf.grad)
        metrics = out.metrics | forward.metrics
        del forward  # and with it what was kept for the backward pass
        if diagnostics is not None:
            diagnostics.add(leaf, inputs)
        return replace(out, metrics=metrics)

    def _advance(self, batch: Batch) -> None:
        """Report the responses of a micro-batch as done."""
        self.progress.done += len(batch)
        self.progress.tokens += int(batch.lengths.sum())
        self.progress.share = self.progress.done / self.progress.of

    def _forward(self, micro: Experience, counts: Counts) -> Forward:
        algorithm = self.spec.algorithm
        batch = micro.batch
        temperature = self.spec.rollout.temperature
        mode = algorithm.loss_agg_mode
        coefficient = self.spec.training.entropy_coeff
        whole = algorithm.reads_distributions
        scored = self.policy.scored(batch, temperature, entropy=coefficient > 0, states=whole)
        metrics = dict[str, float]()
        extra = list[Tensor]()
        token_kl_value = None
        if scored.entropy is not None:
            extra.append(-coefficient * aggregate(scored.entropy, batch.mask, mode, counts))
            metrics["policy_entropy"] = float(scored.entropy.detach().sum() / batch.mask.sum())
        if micro.lm_weights is not None:
            extra.append(
                -weighted_likelihood(scored.log_prob, micro.lm_weights, batch.mask, counts)
            )
        if whole:
            token_kl, measured = self.reference.token_kl(self.policy, scored, batch, temperature)
            if isinstance(algorithm.kl, DistributionKL):
                extra.append(algorithm.beta * aggregate(token_kl, batch.mask, mode, counts))
            metrics = metrics | measured
            token_kl_value = token_kl.detach()
        extra_loss = torch.stack(extra).sum() if extra else None
        return Forward(scored.log_prob, token_kl_value, extra_loss, metrics)


def _backward(forward: Forward, slope: Tensor) -> None:
    """Add to the weights' gradients; `slope` (N, T): the loss's derivative in the
    log-probabilities."""
    outputs = list[Tensor]()
    slopes = list[Tensor]()
    if slope.any():  # not for groups without a signal, or where all is clipped
        outputs.append(forward.log_prob)
        slopes.append(slope)
    if forward.extra_loss is not None:
        outputs.append(forward.extra_loss)
        slopes.append(torch.ones_like(forward.extra_loss))
    if outputs:
        torch.autograd.backward(outputs, slopes)


def means(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the rows that have it."""
    values = defaultdict[str, list[float]](list)
    for row in rows:
        for name, value in row.items():
            values[name].append(value)
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


def _rollout_metrics(rollout: Rollout, group_size: int) -> dict[str, float]:
    """Metrics of the first round's groups, except for the counts of groups."""
    graded = rollout.first
    samples = rollout.first.samples
    lengths = samples.batch.written
    entropy = samples.entropy.sum(-1)
    right = graded.correct
    metrics = {}
    for name, rows in (("entropy_correct", right), ("entropy_wrong", ~right)):
        if rows.any():
            metrics[name] = float(entropy[rows].sum() / lengths[rows].sum())
    metrics["reward"] = float(graded.rewards.mean())
    metrics["accuracy"] = float(graded.correct.float().mean())
    metrics["entropy"] = float(samples.entropy.sum() / lengths.sum())
    metrics["response_length"] = float(lengths.float().mean())
    metrics["truncation_rate"] = float(samples.truncated.float().mean())
    metrics["groups_sampled"] = rollout.groups_sampled
    metrics["groups_kept"] = 0
    if rollout.kept is not None:
        metrics["groups_kept"] = len(rollout.kept) // group_size
    return metrics | graded.part_means() | graded.talk
