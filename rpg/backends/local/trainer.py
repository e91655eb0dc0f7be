"""One training step: a rollout, then several optimizer steps on it; and the numbers it reports.

Shapes: N responses (rows), T response tokens.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu

from rpg.backends.gaps import gap_metrics
from rpg.backends.local.batch_diagnostics import Diagnostics
from rpg.backends.local.critic import Critic, means
from rpg.backends.local.experience import Experience, mini_batches
from rpg.backends.local.forward_pass import forward_pass
from rpg.backends.local.optimizers import Optimizer
from rpg.backends.local.reference import Reference
from rpg.backends.local.rollout import Graded, Roller
from rpg.backends.local.rollout_metrics import rollout_metrics
from rpg.backends.local.roundings import Roundings, export_gap, moved
from rpg.backends.local.sampler import Sampler, Weights
from rpg.backends.step_metrics import Meter
from rpg.backends.token_recorder import Recorder, token_values
from rpg.catalogue import GAE
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError, is_no_memory
from rpg.losses.advantages import advantages as advantages_of
from rpg.losses.advantages import positive_lm_weights, value_targets
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import LossOutput, rollout_weights, weight_metrics
from rpg.models.decoding import Batch
from rpg.models.four_bit import is_packed
from rpg.models.micro_batches import Limits, micro_batches, score
from rpg.models.policy import Policy


class TrainingError(UserError):
    """A training that cannot go on; `str(error)` is one line that names the step and the
    quantity."""


class _LogProbs(NamedTuple):
    """Log-probabilities (N, T) of the responses; what they are of says Experience."""

    policy: Tensor
    sampler: Tensor
    engine: Tensor
    old: Tensor
    reference: Tensor | None


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
        metrics = rollout_metrics(rollout, self.spec.rollout.group_size)
        metrics |= self.roller.order.metrics()
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
        if differs or is_packed(self.policy.model):
            before = experience.policy_log_prob
            metrics |= moved(self.policy, experience.batch, before, self._temperature, self._limits)
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

    @property
    def _temperature(self) -> float:
        return self.spec.rollout.temperature

    @property
    def _limits(self) -> Limits:
        return Limits.of(self.spec.training, self.policy)

    def export_gap(
        self, exported: Weights, wide_base: Callable[[], Weights] | None = None
    ) -> dict[str, float]:
        """How far the weights that a checkpoint exports are from those that are trained; and so are
        the adapters beside `wide_base`, the base of 4 bits as it was before. Nothing where no batch
        has been drawn yet."""
        if self.last_batch is None:
            return {}
        roundings = Roundings(self.optimizer.weights(), exported, wide_base)
        return export_gap(self.policy, roundings, self.last_batch, self._temperature, self._limits)

    def _experience(self, graded: Graded, sampler: Policy) -> Experience:
        """Log-probabilities of the responses under every policy that the loss compares, then
        advantages and weights."""
        algorithm = self.spec.algorithm
        batch = graded.samples.batch
        self.progress.begin("log-probabilities", 0, "")
        log_probs = self._log_probs(graded, sampler)
        weights = rollout_weights(
            algorithm.rollout_correction,
            old_log_prob=log_probs.old,
            sampler_log_prob=log_probs.engine,
            response_mask=batch.mask,
        )
        values = None
        targets = None
        if self.critic is not None:
            values = self.critic.score(batch, self._limits)
            targets = value_targets(
                algorithm,
                values=values,
                rewards=graded.rewards,
                group=batch.prompt_of,
                response_mask=batch.mask,
                old_log_prob=log_probs.old,
                ref_log_prob=log_probs.reference,
            )
        advantages = advantages_of(
            algorithm,
            values=values,
            rewards=graded.rewards,
            group=batch.prompt_of,
            response_mask=batch.mask,
            old_log_prob=log_probs.old,
            ref_log_prob=log_probs.reference,
            log_prob=log_probs.policy,
        )
        return Experience(
            batch=batch,
            policy_log_prob=log_probs.policy,
            sampler_log_prob=log_probs.sampler,
            engine_log_prob=log_probs.engine,
            old_log_prob=log_probs.old,
            ref_log_prob=log_probs.reference,
            advantages=advantages,
            row=torch.arange(len(batch), device=log_probs.old.device),
            rollout_weights=weights,
            values=values,
            targets=targets,
            lm_weights=positive_lm_weights(algorithm, graded.correct, batch.mask),
            rewards=graded.rewards[:, None] if algorithm.advantage.type == "target" else None,
        )

    def _log_probs(self, graded: Graded, sampler: Policy) -> _LogProbs:
        """Under each policy; one that is another's equal is not computed again."""
        algorithm = self.spec.algorithm
        batch = graded.samples.batch
        engine = graded.samples.log_prob
        if algorithm.demonstrations > 0:  # which nobody drew
            of_sampler = self._score(sampler, batch)
            engine = of_sampler
        elif self._exact_samples:
            of_sampler = engine
        else:
            of_sampler = self._score(sampler, batch)
        of_policy = of_sampler
        if sampler is not self.policy:
            of_policy = self._score(self.policy, batch)
        old_is_sampler = algorithm.rollout_correction.type == "none"

        is_recorded = self.recorder is not None
        of_reference = self.reference.log_probs(
            batch, self._temperature, self._limits, recorded=is_recorded
        )
        if of_reference is None and algorithm.needs_reference:
            # Just renewed: the reference is the policy itself; or nobody reads it.
            of_reference = of_policy
        return _LogProbs(
            policy=of_policy,
            sampler=of_sampler,
            engine=engine,
            old=of_sampler if old_is_sampler else of_policy,
            reference=of_reference,
        )

    def _score(self, policy: Policy, batch: Batch) -> Tensor:
        """(N, T), without a gradient."""
        return score(policy, batch, self._temperature, self._limits)

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
        parts = mini_batches(self.spec, step, experience)
        for number, rows in enumerate(parts, 1):
            is_last = number == len(parts)
            mini = experience.rows(rows)
            if self.critic is not None:
                assert mini.values is not None and mini.targets is not None
                measured_of_critic = self.critic.update(
                    mini.batch, mini.values, mini.targets, self._limits
                )
                critic.append(measured_of_critic)
                if step <= self.critic.setting.critic_warmup:
                    continue
            if mini.rewards is not None:
                # Scored as a whole, so that micro-batches need not hold whole groups.
                is_first = number == 1
                now = mini.policy_log_prob if is_first else self._score(self.policy, mini.batch)
                mini = mini.towards_target(self.spec.algorithm, now)
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
        step_kl_to_ref = 0.0
        for rows in micro_batches(mini.batch, mini.advantages, self._limits):
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
            forward = forward_pass(self.spec, self.policy, self.reference, micro, counts)

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
        forward.backward(leaf.grad)
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
