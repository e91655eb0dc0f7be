"""The driver's side of one rollout: rounds of prompts, their responses, and which groups are
trained on.

It is done as in the embedded trainer, so that the same seed gives a step the same prompts, whatever
happened before. (verl's own dynamic sampling never stops refilling once all responses of every
group are right.)
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from rpg.backends.progress_reporter import Progress
from rpg.backends.prompts import PromptOrder, Refills
from rpg.backends.verl.job_settings import JobSettings
from rpg.errors import UserError
from rpg.models.conversations import turn_metrics


@dataclass(frozen=True)
class Response:
    """One response by its key in verl's queue, and how it was graded. Its text and tensors stay in
    the queue."""

    key: str
    tag: dict[str, Any]
    reward: float
    correct: bool
    truncated: bool
    surprise: float
    """Minus the log-probability of the response under the policy that sampled it, in nats."""
    earned: float
    """The reward without the penalty for overlong responses."""
    parts: dict[str, float]
    """Values of the parts of the reward, by metric; NaN where a function does not apply."""
    turns: Mapping[str, Any] = field(default_factory=dict)
    """What the agent loop says of the turns of an environment, counts among them (agent_turns.py);
    empty without one."""

    @property
    def tokens(self) -> int:
        """The number of tokens that the policy wrote."""
        return self.tag["response_len"] - self.turns.get("heard", 0)


Group = list[Response]


@dataclass(frozen=True)
class Rollout:
    """`first` holds the groups of the first round, before any was dropped: metrics describe them,
    so that algorithms can be compared. `kept` is what the update gets; empty when no group was
    left.
    """

    first: list[Group]
    kept: list[Group]
    sampled: list[Group]

    @property
    def tokens(self) -> int:
        """Response tokens of all groups sampled."""
        return sum(response.tokens for group in self.sampled for response in group)

    def age(self, step: int) -> float:
        """Mean number of rollouts between the policy that sampled what is trained on and the one
        that step `step` updates.

        The servers report which weights they had: those after how many steps.
        """
        versions = [response.tag["max_global_steps"] for group in self.kept for response in group]
        return step - 1 - sum(versions) / len(versions)

    def dropped(self) -> list[Group]:
        """Groups that were sampled but are not trained on."""
        kept = {id(group) for group in self.kept}
        return [group for group in self.sampled if id(group) not in kept]

    def metrics(self) -> dict[str, float]:
        """By the project's names, for the responses of the first round, except for the counts of
        groups."""
        responses = [response for group in self.first for response in group]

        def mean(values: Iterable[float]) -> float:
            return float(sum(values) / len(responses))

        tokens = sum(r.tokens for r in responses)
        return {
            # An unbiased estimate from the samples' log-probabilities, also where groups are
            # dropped.
            "entropy": sum(r.surprise for r in responses) / tokens,
            "reward": mean(r.reward for r in responses),
            "accuracy": mean(r.correct for r in responses),
            "response_length": mean(r.tokens for r in responses),
            "truncation_rate": mean(r.truncated for r in responses),
            "groups_sampled": len(self.sampled),
            "groups_kept": len(self.kept),
            **_part_means(responses),
            **turn_metrics([response.turns for response in responses if response.turns]),
        }


def _part_means(responses: Sequence[Response]) -> dict[str, float]:
    """The mean of each part of the reward, over the responses to which it applies."""
    values: dict[str, list[float]] = {}
    for name, value in itertools.chain.from_iterable(
        response.parts.items() for response in responses
    ):
        values.setdefault(name, []).extend(() if isnan(value) else (value,))
    return {name: sum(column) / len(column) for name, column in values.items() if column}


def useful(group: Group) -> bool:
    """Whether its responses have different rewards, not counting the penalty for length."""
    return len({response.earned for response in group}) > 1


Sample = Callable[[Sequence[int], int], list[Group]]


def roll(settings: JobSettings, problems: int, step: int, sample: Sample) -> Rollout:
    """The rollout of step `step` (from 1); `sample(problem numbers, round)` generates and grades.

    With dynamic sampling, groups of equal rewards are replaced, in at most `max_refills` rounds.
    """
    wanted = settings.prompts_per_step
    refills = Refills(PromptOrder(problems, settings.seed), step, wanted, settings.max_refills)
    first = sampled = sample(refills.first(), 0)
    kept = first
    if settings.algorithm.dynamic_sampling:
        kept = [group for group in first if useful(group)]
        while numbers := refills.further(len(kept)):
            extra = sample(numbers, refills.rounds)
            sampled = sampled + extra
            kept = [*kept, *(group for group in extra if useful(group))][:wanted]
    return Rollout(first, kept, sampled)


class Groups(ReplayBuffer):
    """verl's buffer, asked for prompts by name instead of for any that are ready."""

    error: Path | None = None
    """File that says why a reward could not be computed (reward_manager.py)."""

    def why_failed(self) -> str:
        """The text of that file; empty if there is none."""
        try:
            return self.error.read_text("utf-8").strip() if self.error else ""
        except OSError:
            return ""

    def collect(self, names: Sequence[str], progress: Progress) -> list[Group]:
        """Wait until all responses to the prompts `names` are graded; groups in the order of
        `names`.

        `progress` shows how many of the prompts have all their responses. Raises UserError: a
        reward could not be computed; RuntimeError: a response could not be generated or graded.
        """
        began = time.monotonic()
        wanted = set(names)
        while True:
            self._sync_metadata_from_transfer_queue()
            progress.done = len(self.finished_keys["train"] & wanted)
            progress.share = progress.done / max(1, len(wanted))
            failed = self.failure_keys["train"] & wanted
            if failed:
                why = self.why_failed()
                if why:
                    raise UserError(why)
                raise RuntimeError(
                    f"{len(failed)} of {len(names)} prompts got no response: the rollout "
                    "server or the grader failed; "
                    "the log has its error"
                )
            if self.finished_keys["train"].issuperset(wanted):
                break
            time.sleep(
                min(1.0, 0.02 + 0.05 * (time.monotonic() - began))
            )  # without delaying short steps
        tags = {key: dict(tag) for key, tag in self.partitions["train"].items()}
        tq.kv_clear(partition_id="train", keys=list(names))  # the prompts; their responses stay
        return read_groups(names, tags)


def read_groups(names: Sequence[str], tags: Mapping[str, dict[str, Any]]) -> list[Group]:
    """The responses to the prompts `names`, in their order; `tags` of keys in verl's queue, theirs
    among them."""
    place = {name: i for i, name in enumerate(names)}
    keys = [key for key in tags if prompt_of(key) in place]
    keys.sort(key=lambda key: (place[prompt_of(key)], int(key.split("_")[1])))
    groups: list[Group] = [[] for _ in names]
    for response in _read(keys, [tags[key] for key in keys]):
        groups[place[prompt_of(response.key)]].append(response)
    return groups


def prompt_of(key: str) -> str:
    """The prompt's name in a response's key `<name>_<response>_<turn>`."""
    return key.split("_", 1)[0]


def _read(keys: list[str], tags: list[dict[str, Any]]) -> list[Response]:
    names = ["rm_scores", "extra_fields", "rollout_log_probs"]
    fields = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=names)
    rewards = [float(scores.sum()) for scores in fields["rm_scores"].unbind()]
    surprise = [-float(values.sum()) for values in fields["rollout_log_probs"].unbind()]
    extras = list(fields["extra_fields"])
    responses = []
    for key, tag, reward, extra, nats in zip(keys, tags, rewards, extras, surprise, strict=True):
        info = extra["reward_extra_info"]
        turns = extra.get("turns") or {}
        right = bool(info["acc"])
        truncated = bool(info["truncated"])
        parts = {name: value for name, value in info.items() if name.startswith("reward_")}
        responses.append(
            Response(key, tag, reward, right, truncated, nats, info["earned"], parts, turns)
        )
    return responses


def discard(groups: list[Group]) -> None:
    """Remove responses that are not trained on from verl's queue."""
    keys = [response.key for group in groups for response in group]
    if keys:
        tq.kv_clear(partition_id="train", keys=keys)


def as_batch(groups: list[Group]) -> KVBatchMeta:
    """What verl's workers take; rows in the order of the groups."""
    rows = [response for group in groups for response in group]
    return KVBatchMeta(partition_id="train", keys=[r.key for r in rows], tags=[r.tag for r in rows])
