"""One rollout: groups of graded responses; with dynamic sampling, groups without a learning signal
are replaced.

Shapes: P groups, G responses per group, N = P * G rows, T response tokens.
"""

import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import nan

import torch
from torch import Tensor

from rpg.backends.local.vllm_rollout import VllmSampler
from rpg.backends.progress_reporter import Progress
from rpg.backends.prompts import PromptOrder, Refills, UnsolvedOrder
from rpg.config.run_spec import RunSpec
from rpg.config.task import EnvironmentTask
from rpg.models import seeds
from rpg.models.conversations import Conversations, Talk, turn_metrics
from rpg.models.decoding import Samples, SamplingPlan, joined
from rpg.models.policy import Policy
from rpg.models.reward_models import error_draw, scorer_of
from rpg.models.tokenizer import encode_prompts
from rpg.models.truncated_sampling import restriction_of
from rpg.models.warm_start import demonstration_batch
from rpg.tasks import Problem, demonstrations_of, load_problems
from rpg.tasks.rewards.scoring import Answered, Sources, overlong_punishment

Seconds = dict[str, float]
"""Durations by phase."""


@dataclass(frozen=True)
class Graded:
    """Samples with their rewards. Groups are contiguous: rows g * G to (g + 1) * G - 1."""

    samples: Samples
    rewards: Tensor
    """(N,) float32, including the penalty for overlong responses."""
    correct: Tensor
    """(N,) bool."""
    earned: Tensor
    """(N,) float32, without that penalty."""
    parts: dict[str, Tensor] = field(default_factory=dict)
    """(N,) values of each part of the reward; NaN where a function does not apply."""
    talk: dict[str, float] = field(default_factory=dict)
    """Metrics of the turns of an environment."""

    def __len__(self) -> int:
        return len(self.correct)

    def groups(self, index: Tensor, size: int) -> "Graded":
        """Only the groups `index`."""
        rows = (index[:, None] * size + torch.arange(size, device=index.device)).flatten()
        samples = self.samples
        batch = samples.batch.rows(rows)
        part = (rows, slice(batch.tokens.shape[1]))
        samples = Samples(
            batch, samples.log_prob[part], samples.entropy[part], samples.truncated[rows]
        )
        parts = {name: values[rows] for name, values in self.parts.items()}
        return Graded(samples, self.rewards[rows], self.correct[rows], self.earned[rows], parts)

    def part_means(self) -> dict[str, float]:
        """Metrics `reward_<part>`, over the responses to which the part applies."""
        means = {f"reward_{name}": float(values.nanmean()) for name, values in self.parts.items()}
        return {name: value for name, value in means.items() if value == value}


@dataclass
class Rollout:
    """What a step trains on, and what it cost.

    `first` holds the groups of the first round, before any was dropped: metrics describe them, so
    that algorithms can be compared. `kept` is what the update gets; None when no group was left.
    """

    first: Graded
    kept: Graded | None
    groups_sampled: int
    tokens: int
    seconds: Seconds = field(default_factory=dict)


class Roller:
    """Makes rollouts for one run; everything random follows from (seed, step, round)."""

    def __init__(self, spec: RunSpec, problems: Sequence[Problem], sources: Sources | None = None):
        """`sources` are those of reward functions in the run's manifest; outside a run None, for
        those on disk."""
        self.spec, self.problems, self.progress = spec, problems, Progress()
        self.scorer = scorer_of(spec, sources)
        task = spec.task
        self.conversations = (
            Conversations(task, sources) if isinstance(task, EnvironmentTask) else None
        )
        engine = spec.rollout.engine
        self.vllm = VllmSampler(spec, engine) if engine.type == "vllm" else None
        solved_at = spec.rollout.drop_solved
        self.order = (
            PromptOrder(len(problems), spec.seed)
            if solved_at is None
            else UnsolvedOrder(len(problems), spec.seed, solved_at)
        )
        self.rows_at_once = spec.rollout.rows_at_once
        """Responses drawn at a time; None: all. It fixes the last digits, so checkpoints hold it.
        """
        shown = spec.algorithm.demonstrations > 0
        self.demonstrations = (
            demonstrations_of(spec.task, load_problems(spec.task)) if shown else None
        )

    def roll(self, policy: Policy, step: int) -> Rollout:
        """The rollout of step `step` (from 1), sampled from `policy`."""
        began = time.perf_counter()
        with self.vllm.holding(policy) if self.vllm else nullcontext():
            ready = time.perf_counter()
            rollout = self._roll(policy, step)
        rollout.seconds["rollout"] += ready - began
        return rollout

    def _roll(self, policy: Policy, step: int) -> Rollout:
        spec = self.spec
        wanted = spec.training.prompts_per_step
        size = spec.rollout.group_size
        seconds = {"rollout": 0.0, "reward": 0.0}
        refills = Refills(self.order, step, wanted, spec.rollout.max_refills)
        first = self._round(policy, refills.first(), step, 0, seconds)
        tokens = int(first.samples.batch.written.sum())
        if not spec.algorithm.dynamic_sampling:
            return Rollout(first, first, refills.sampled, tokens, seconds)

        useful = [_useful(first, size)]
        count = len(useful[0]) // size
        while numbers := refills.further(count):
            self.progress.note = (
                f"refill {refills.rounds} of at most {spec.rollout.max_refills}: so far {count} of "
                f"{wanted} groups have responses with different rewards"
            )
            extra = self._round(policy, numbers, step, refills.rounds, seconds)
            tokens += int(extra.samples.batch.written.sum())
            varied = _useful(extra, size)
            take = min(wanted - count, len(varied) // size)
            useful.append(varied.groups(torch.arange(take, device=varied.correct.device), size))
            count += take
        parts = [part for part in useful if len(part)]
        return Rollout(first, _join(parts) if parts else None, refills.sampled, tokens, seconds)

    def with_demonstrations(self, graded: Graded, policy: Policy, step: int) -> Graded:
        """A share of the groups replaced by as many demonstrations, each with its own prompt; their
        log-probabilities are zero. All groups have been sampled, so metrics of rollouts describe
        the policy whatever the share.
        """
        if self.demonstrations is None:
            return graded
        size = self.spec.rollout.group_size
        seed = self.spec.seed
        order = seeds.permutation(len(graded) // size, seed, "demonstrations", step)
        replaced = round(self.spec.algorithm.demonstrations * len(order))
        rng = random.Random(f"demonstrations {seed} {step}")
        kept = order[replaced:].sort().values.to(graded.correct.device)
        parts = [graded.groups(kept, size)] if len(kept) else []
        if replaced:
            shown = [self.demonstrations.ability(rng) for _ in range(replaced * size)]
            batch = demonstration_batch(policy, shown)
            zero = torch.zeros(batch.tokens.shape, device=batch.tokens.device)
            samples = Samples(batch, zero, zero, torch.zeros_like(batch.lengths, dtype=torch.bool))
            parts.append(Graded(samples, zero[:, 0], ~samples.truncated, zero[:, 0]))
        return _join(parts)

    def _round(
        self, policy: Policy, numbers: list[int], step: int, round_: int, seconds: Seconds
    ) -> Graded:
        spec = self.spec
        rollout = self.spec.rollout
        began = time.perf_counter()
        problems = [self.problems[i] for i in numbers]
        given = [p.given() for p in problems]
        rows = len(given) * rollout.group_size
        progress = self.progress
        limit = rollout.max_response_tokens
        progress.begin("rollout", rows, "responses")
        at_once = min(rows, self.rows_at_once or rows)
        before = 0

        def tell(finished: int, position: int) -> None:
            nonlocal before
            begun = before if position > before else 0  # the next responses begin at 0
            # At most those that were not finished before these positions.
            progress.tokens += min(at_once, rows - progress.done) * (position - begun)
            progress.done = finished
            before = position
            progress.share = position / limit if at_once == rows else finished / rows

        plan = SamplingPlan(
            group_size=rollout.group_size,
            max_new_tokens=limit,
            uniforms=seeds.uniforms(rows, limit, spec.seed, "rollout", step, round_),
            temperature=rollout.temperature,
            restriction=restriction_of(rollout),
            tell=tell,
            rows_at_once=self.rows_at_once,
        )
        talks: list[Talk] = []
        longest = rollout.max_prompt_tokens
        if self.conversations is not None:
            samples, talks = self.conversations.sample(
                policy,
                given,
                columns=[problem.columns for problem in problems],
                keys=[f"{spec.seed} rollout {step} {round_} {row}" for row in range(rows)],
                plan=plan,
                max_prompt_tokens=longest,
            )
        else:
            prompts = encode_prompts(policy.tokenizer, given, longest)
            if self.vllm is not None:
                key = (spec.seed, "rollout", step, round_)
                samples = self.vllm.sample(policy, prompts, key, progress)
            else:
                samples = policy.sample(prompts, plan)
        sampled = time.perf_counter()
        progress.begin("reward", rows, "responses")
        graded = self._grade(policy, samples, problems, talks, (step, round_))
        right = graded.correct.view(-1, rollout.group_size).sum(-1).tolist()
        self.order.observe(numbers, (count / rollout.group_size for count in right))
        seconds["rollout"] += sampled - began
        seconds["reward"] += time.perf_counter() - sampled
        return graded

    def _grade(
        self,
        policy: Policy,
        samples: Samples,
        problems: Sequence[Problem],
        talks: Sequence[Talk],
        place: tuple[int, int],
    ) -> Graded:
        """`place` is the rollout's step and round."""
        spec = self.spec
        truncated = samples.truncated.tolist()
        lengths = samples.batch.written.tolist()
        answered = []
        for row, text in enumerate(policy.text(samples.batch)):
            p = problems[row // spec.rollout.group_size]
            answered.append(
                Answered(text, lengths[row], truncated[row], p.answer, p.asked(), p.columns)
            )
        if talks:
            pairs = zip(answered, talks, strict=True)
            answered = [
                a._replace(response="".join(t.turns), last=t.turns[-1], earned=t.earned)
                for a, t in pairs
            ]
        for row, a in enumerate(answered):
            problem = problems[row // spec.rollout.group_size]
            draw = error_draw(spec, (*place, row), problem.id, a.response)
            answered[row] = a._replace(error_draw=draw)
        scored = self.scorer.score(answered)
        earned = rewards = [response.reward for response in scored]
        overlong = spec.algorithm.overlong
        if overlong:
            limit = spec.rollout.max_response_tokens
            rewards = [
                value
                + overlong_punishment(tokens, limit, overlong.buffer_fraction, overlong.factor)
                for value, tokens in zip(earned, lengths, strict=True)
            ]
        tensor = partial(torch.tensor, device=samples.log_prob.device)
        parts = {name: tensor(v) for name, v in self.scorer.training_parts(scored).items()}
        correct = tensor([response.grade.correct for response in scored])
        turns = turn_metrics([talk.counts for talk in talks])
        return Graded(samples, tensor(rewards), correct, tensor(earned), parts, turns)


def _useful(graded: Graded, size: int) -> Graded:
    """Without the groups whose responses all have the same reward, not counting the penalty for
    length."""
    earned = graded.earned.view(-1, size)
    return graded.groups((earned.amax(-1) > earned.amin(-1)).nonzero()[:, 0], size)


def _join(parts: list[Graded]) -> Graded:
    """All parts in order, padded to the widest."""
    if len(parts) == 1:
        return parts[0]
    samples = joined([part.samples for part in parts])
    names = ("rewards", "correct", "earned")
    rewards, correct, earned = (
        torch.cat([getattr(part, name) for part in parts]) for name in names
    )
    values = {}
    for name in dict.fromkeys(name for part in parts for name in part.parts):
        values[name] = torch.cat(
            [p.parts.get(name, p.rewards.new_full((len(p),), nan)) for p in parts]
        )
    return Graded(samples, rewards, correct, earned, values)
