"""One rollout: groups of responses, graded; with dynamic sampling, groups that teach nothing are replaced.

Shapes: P groups, G responses per group, N = P * G rows, T response tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from rpg.backends.progress import Progress
from rpg.backends.prompts import PromptOrder, Refills
from rpg.config.run import RunSpec
from rpg.models import seeds
from rpg.models.batch import Batch
from rpg.models.decoding import Samples
from rpg.models.policy import Policy
from rpg.models.tokenizer import encode_prompts
from rpg.rewards import Item, grader_for
from rpg.rewards.reward import overlong_punishment, reward
from rpg.tasks import Problem, verifier_of


@dataclass(frozen=True)
class Graded:
    """Samples with what they earned. Groups are contiguous: rows g * G to (g + 1) * G - 1."""

    samples: Samples
    rewards: Tensor
    """(N,) float32, punishment included."""
    correct: Tensor
    """(N,) bool."""

    def __len__(self) -> int:
        return len(self.correct)

    def groups(self, index: Tensor, size: int) -> Graded:
        """The groups `index` only."""
        rows = (index[:, None] * size + torch.arange(size, device=index.device)).flatten()
        s = self.samples
        batch = s.batch.rows(rows)
        width = batch.tokens.shape[1]
        samples = Samples(batch, s.log_prob[rows, :width], s.entropy[rows, :width], s.truncated[rows])
        return Graded(samples, self.rewards[rows], self.correct[rows])


@dataclass
class Rollout:
    """What a step trains on, and what it cost.

    `first` holds the groups of the first round, before any was dropped: metrics are about them, so they compare
    across algorithms. `kept` is what the update gets; None when no group was left.
    """

    first: Graded
    kept: Graded | None
    groups_sampled: int
    tokens: int
    seconds: dict[str, float] = field(default_factory=dict)


class Roller:
    """Makes rollouts for one run; everything random follows from (seed, step, round)."""

    def __init__(self, spec: RunSpec, problems: Sequence[Problem], progress: Progress | None = None):
        self.spec, self.problems = spec, problems
        self.progress = progress or Progress()
        self.grader = grader_for(verifier_of(spec.task))
        self.order = PromptOrder(len(problems), spec.seed)

    def roll(self, policy: Policy, step: int) -> Rollout:
        """The rollout of step `step` (from 1) with the policy as it is."""
        spec = self.spec
        wanted, size = spec.training.prompts_per_step, spec.rollout.group_size
        seconds = {"rollout": 0.0, "reward": 0.0}
        refills = Refills(self.order, step, wanted, spec.rollout.max_refills)
        first = self._round(policy, refills.first(), step, 0, seconds)
        tokens = int(first.samples.batch.lengths.sum())
        if not spec.algorithm.dynamic_sampling:
            return Rollout(first, first, refills.sampled, tokens, seconds)

        useful = [_useful(first, size)]
        found = len(useful[0]) // size
        while numbers := refills.further(found):
            self.progress.note = (
                f"refill {refills.rounds} of at most {spec.rollout.max_refills}: {found} of {wanted} groups so far had "
                "right and wrong responses"
            )
            extra = self._round(policy, numbers, step, refills.rounds, seconds)
            tokens += int(extra.samples.batch.lengths.sum())
            good = _useful(extra, size)
            take = min(wanted - found, len(good) // size)
            useful.append(good.groups(torch.arange(take, device=good.correct.device), size))
            found += take
        kept = _join([part for part in useful if len(part)])
        return Rollout(first, kept, refills.sampled, tokens, seconds)

    def _round(self, policy, numbers: list[int], step: int, round_: int, seconds: dict) -> Graded:
        spec, rollout = self.spec, self.spec.rollout
        began = time.perf_counter()
        problems = [self.problems[i] for i in numbers]
        prompts = encode_prompts(policy.tokenizer, [p.prompt for p in problems], rollout.max_prompt_tokens)
        rows = len(prompts) * rollout.group_size
        progress, limit = self.progress, rollout.max_response_tokens
        progress.begin("rollout", rows, "responses")

        def tell(finished: int, position: int) -> None:
            progress.tokens += rows - progress.done  # as many as were not finished before this position
            progress.done, progress.share = finished, position / limit

        samples = policy.sample(
            prompts,
            group_size=rollout.group_size,
            max_new_tokens=rollout.max_response_tokens,
            uniforms=seeds.uniforms(rows, rollout.max_response_tokens, spec.seed, "rollout", step, round_),
            temperature=rollout.temperature,
            tell=tell,
        )
        sampled = time.perf_counter()
        progress.begin("reward", rows, "responses")
        texts, cut = policy.text(samples.batch), samples.truncated.tolist()
        items = [
            Item(text, problems[row // rollout.group_size].answer, cut[row]) for row, text in enumerate(texts)
        ]
        correct = [found.correct for found in self.grader.grade(items)]
        rewards = [reward(right) for right in correct]
        overlong = spec.algorithm.overlong
        if overlong:
            rewards = [
                value + overlong_punishment(tokens, limit, overlong.buffer_fraction, overlong.factor)
                for value, tokens in zip(rewards, samples.batch.lengths.tolist(), strict=True)
            ]
        device = samples.log_prob.device
        graded = Graded(samples, torch.tensor(rewards, device=device), torch.tensor(correct, device=device))
        seconds["rollout"] += sampled - began
        seconds["reward"] += time.perf_counter() - sampled
        return graded


def _useful(graded: Graded, size: int) -> Graded:
    """Without the groups whose responses are all right or all wrong."""
    right = graded.correct.view(-1, size).sum(-1)
    return graded.groups(((right > 0) & (right < size)).nonzero()[:, 0], size)


def _join(parts: list[Graded]) -> Graded | None:
    """One after another, padded to the widest; None for nothing."""
    if len(parts) < 2:
        return parts[0] if parts else None
    width = max(part.samples.log_prob.shape[1] for part in parts)

    def widened(tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([pad(t, (0, width - t.shape[1])) for t in tensors])

    offsets, prompts = [], []
    for part in parts:
        offsets.append(len(prompts))
        prompts += part.samples.batch.prompts
    batches = [part.samples.batch for part in parts]
    batch = Batch(
        prompts,
        torch.cat([b.prompt_of + offset for b, offset in zip(batches, offsets, strict=True)]),
        widened([b.tokens for b in batches]),
        torch.cat([b.lengths for b in batches]),
    )
    samples = Samples(
        batch,
        widened([part.samples.log_prob for part in parts]),
        widened([part.samples.entropy for part in parts]),
        torch.cat([part.samples.truncated for part in parts]),
    )
    return Graded(samples, torch.cat([p.rewards for p in parts]), torch.cat([p.correct for p in parts]))
