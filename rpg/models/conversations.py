"""Responses in which a policy and an environment take turns: token in, token out.

What an environment says is tokenised once and becomes part of the response, marked as
`Batch.heard`; the policy's own tokens are never decoded and encoded again. Each turn is sampled
after the tokens of all turns before it, by `Policy.sample`.

Shapes: P prompts, G responses per prompt, N = P * G responses, T tokens of a response, whoever
wrote them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rpg.config.task import EnvironmentTask
from rpg.models.decoding import Batch, Samples, SamplingPlan, ignore_progress
from rpg.models.policy import Policy
from rpg.models.positions import room_of
from rpg.models.special_tokens import last_token
from rpg.models.tokenizer import encode_prompts
from rpg.tasks import DataError
from rpg.tasks.environment_problems import sources_of
from rpg.tasks.environments.process import EnvironmentFault, Environments
from rpg.tasks.problems import Given

Kept = Mapping[str, Sequence[Mapping[str, str]]]


@dataclass
class Talk:
    """One response: its turns as text, and its tokens."""

    turns: list[str] = field(default_factory=list)
    """The policy's and the environment's in turn; the last one is the policy's."""
    calls: int = 0
    failures: int = 0
    """Calls that could not be read or failed."""
    earned: float | None = None
    """What `get_reward` returned."""
    tokens: list[int] = field(default_factory=list)
    heard: list[bool] = field(default_factory=list)
    log_prob: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    truncated: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Calls, those that failed, and tokens of the environment."""
        return {"calls": self.calls, "failures": self.failures, "heard": sum(self.heard)}

    def add(
        self, ids: Sequence[int], log_prob: Sequence[float] = (), entropy: Sequence[float] = ()
    ) -> None:
        """Tokens of the policy, or without log-probabilities of the environment."""
        zeros = [0.0] * len(ids)
        self.tokens += ids
        self.heard += [not log_prob] * len(ids)
        self.log_prob += log_prob or zeros
        self.entropy += entropy or zeros


class Conversations:
    """The environments of one run, and how to sample with them. To be closed."""

    def __init__(self, task: EnvironmentTask, kept: Kept | None = None):
        """`kept` are the sources in a run's manifest; outside a run None, for those on disk."""
        self.task = task
        self.environments = Environments(task, sources_of(task, kept))
        self._schemas: list[Any] | None = None

    def sample(
        self,
        policy: Policy,
        prompts: Sequence[Given],
        columns: Sequence[Mapping[str, Any]],
        keys: Sequence[str],
        plan: SamplingPlan,
        *,
        max_prompt_tokens: int,
    ) -> tuple[Samples, list[Talk]]:
        """`plan.group_size` responses to each prompt (see decoding.generate), and what was said in
        them.

        columns: of each prompt's problem, for `reset`. keys: one per response, from which
        everything follows that its environment draws at random. `plan.max_new_tokens` counts the
        environment's tokens, too; a reply that leaves no room for another token of the policy ends
        the response. Raises EnvironmentFault; DataError: a prompt is too long.
        """
        task = self.task
        environments = self.environments
        group_size = plan.group_size
        max_new_tokens = plan.max_new_tokens
        uniforms = plan.uniforms
        if task.reply is not None:
            stop = (*plan.restriction.stop, task.markers[1])
            plan = replace(plan, restriction=replace(plan.restriction, stop=stop))
        talks = [Talk() for _ in keys]
        openings = [
            environments.begin(row, columns[row // group_size], key) for row, key in enumerate(keys)
        ]
        prompt_ids = self.encoded(policy.tokenizer, prompts, openings, max_prompt_tokens)
        active = list(range(len(talks)))
        size = group_size
        positions = room_of(policy.model.config)
        while active:
            fewest = min(len(talks[row].tokens) for row in active)
            so_far = {row: [*prompt_ids[row // group_size], *talks[row].tokens] for row in active}
            # A longer one waits where the model's positions would not leave the shortest its room
            # beside it.
            rows = [
                row for row in active if len(so_far[row]) + max_new_tokens - fewest <= positions
            ]
            rows = rows or list(active)
            contexts = [so_far[row] for row in rows[::size]]  # at first one for a whole group
            room = min(max_new_tokens - fewest, positions - max(map(len, contexts)))
            turn_uniforms = None
            if uniforms is not None:
                windows = [uniforms[row, len(talks[row].tokens) :][:room] for row in rows]
                turn_uniforms = torch.stack(
                    [torch.nn.functional.pad(u, (0, room - len(u))) for u in windows]
                )
            turn = replace(plan, group_size=size, max_new_tokens=room, uniforms=turn_uniforms)
            if size < group_size:
                turn = replace(turn, tell=ignore_progress)
            samples = policy.sample(contexts, turn)
            size = 1
            for at, row in enumerate(rows):
                talk = talks[row]
                length = int(samples.batch.lengths[at])
                fits = min(length, max_new_tokens - len(talk.tokens))
                talk.truncated = bool(samples.truncated[at]) or fits < length
                ids: list[int] = samples.batch.tokens[at, :fits].tolist()
                talk.add(
                    ids, samples.log_prob[at, :fits].tolist(), samples.entropy[at, :fits].tolist()
                )
                if not self.reply(policy.tokenizer, row, talk, ids, max_new_tokens):
                    active.remove(row)
        for row, talk in enumerate(talks):
            talk.earned = environments.reward(row, talk.turns)
        environments.forget(range(len(talks)))
        return _samples(prompt_ids, talks, group_size, samples.log_prob.device), talks

    def encoded(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Given],
        openings: Sequence[str | None],
        limit: int,
    ) -> list[list[int]]:
        """Prompts as token ids, each with what `reset` said (one text per response) at the end of
        its last user message; with descriptions of the tools if the chat template has a place for
        them and writes the replies, too. Raises EnvironmentFault; DataError: a prompt is too long.
        """
        if self._schemas is None:
            described = self.task.reply is None and "tools" in (tokenizer.chat_template or "")
            self._schemas = self.environments.schemas() if described else []
        size = len(openings) // len(prompts)
        groups = [openings[start : start + size] for start in range(0, len(openings), size)]
        if any(len(set(texts)) > 1 for texts in groups):
            raise EnvironmentFault(
                f"task.factory: {self.task.factory}: reset returned different texts for one "
                "problem; responses that are "
                "compared need the same prompt, so accepted: a text that follows from the "
                "row's columns"
            )
        whole = [
            _with_text(prompt, texts[0]) for prompt, texts in zip(prompts, groups, strict=True)
        ]
        return encode_prompts(tokenizer, whole, limit, self._schemas)

    def reply(
        self,
        tokenizer: PreTrainedTokenizerBase,
        row: int,
        talk: Talk,
        ids: Sequence[int],
        limit: int,
    ) -> bool:
        """Add the environment's reply to the turn `ids`, which conversation `row` ends with;
        whether the policy has another turn. limit: tokens of a response, whoever writes them."""
        talk.turns.append(tokenizer.decode(ids, skip_special_tokens=True))
        opening, closing = map(re.escape, self.task.markers)
        asked = re.findall(f"{opening}(.*?){closing}", talk.turns[-1], re.DOTALL)
        asked = asked[: self.task.calls - talk.calls]
        if talk.truncated or not asked:
            return False
        replies = [self.environments.call(row, text) for text in asked]
        talk.calls += len(replies)
        talk.failures += sum(reply.failed for reply in replies)
        ended = not tokenizer.decode(ids[-1:], skip_special_tokens=True)  # and not by a stop string
        reply_ids = reply_tokens(tokenizer, self.task, [reply.text for reply in replies], ended)
        if len(talk.tokens) + len(reply_ids) >= limit:
            talk.truncated = True
            return False
        talk.add(reply_ids)
        talk.turns.append(tokenizer.decode(reply_ids, skip_special_tokens=True))
        return True

    def close(self) -> None:
        """End the environments' process."""
        self.environments.close()


def _with_text(prompt: Given, text: str | None) -> Given:
    """A prompt whose last user message goes on with `text`."""
    if not text:
        return prompt
    if isinstance(prompt, str):
        return prompt + text
    last = max((at for at, message in enumerate(prompt) if message["role"] == "user"), default=0)
    longer = {**prompt[last], "content": prompt[last]["content"] + text}
    return (*prompt[:last], longer, *prompt[last + 1 :])


def turn_metrics(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Metrics of the turns of an environment, from the counts of each response; none where there
    are no turns."""
    if not counts:
        return {}
    calls, failures, heard = (
        sum(count[name] for count in counts) for name in ("calls", "failures", "heard")
    )
    each = {"tool_calls": calls / len(counts), "environment_tokens": heard / len(counts)}
    return each | {"failed_calls": failures / max(calls, 1)}


def reply_tokens(
    tokenizer: PreTrainedTokenizerBase,
    task: EnvironmentTask,
    texts: Sequence[str],
    ended: bool = True,
) -> list[int]:
    """What follows a turn of the policy, `ended` by an end token: the replies as `task.reply` or
    the template writes them.

    Special tokens within a reply are taken out, also those that taking out others would form: a
    tool cannot speak for the model. Raises DataError: the template does not know tools.
    """
    texts_of_special = {str(token) for token in tokenizer.all_special_tokens}
    for token in tokenizer.added_tokens_decoder.values():
        if token.special:
            texts_of_special.add(token.content)
    special = sorted(texts_of_special - {""}, key=len, reverse=True)
    while any(
        token in text for token in special for text in texts
    ):  # the longest first, in every process
        texts = [re.sub("|".join(map(re.escape, special)), "", text) for text in texts]
    if task.reply is not None:
        text = "".join(task.reply.replace("{reply}", text) for text in texts)
    else:
        function = {"type": "function", "function": {"name": "tool", "arguments": {}}}
        call = {"role": "assistant", "content": "", "tool_calls": [function]}
        called = [{"role": "user", "content": ""}, call]
        results = [{"role": "tool", "name": "tool", "content": text} for text in texts]
        try:
            until: str = tokenizer.apply_chat_template(called, tokenize=False)
            said = called + results
            whole: str = tokenizer.apply_chat_template(
                said, tokenize=False, add_generation_prompt=True
            )
            silent = tokenizer.apply_chat_template(
                called, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise DataError(
                f"task.reply: the chat template cannot write a tool's reply: {error}"
            ) from None
        end = str(tokenizer.convert_ids_to_tokens(last_token(tokenizer)))
        until = until[: until.rindex(end) + len(end) * ended] if end in until else until
        if not tokenizer.chat_template or not whole.startswith(until) or whole == silent:
            why = (
                'task.reply: the chat template has no tools; give a text, e.g. reply: "={reply}\\n"'
            )
            raise DataError(why)
        text = whole[len(until) :]
    return tokenizer(text, add_special_tokens=False)["input_ids"] if text else []


def _samples(
    prompts: Sequence[Sequence[int]], talks: Sequence[Talk], group_size: int, device: torch.device
) -> Samples:
    width = max(len(talk.tokens) for talk in talks)

    def table(name: str, kind: torch.dtype) -> Tensor:
        rows = [getattr(talk, name) for talk in talks]
        return torch.tensor(
            [row + [0] * (width - len(row)) for row in rows], dtype=kind, device=device
        )

    batch = Batch(
        [list(prompt) for prompt in prompts],
        torch.arange(len(prompts), device=device).repeat_interleave(group_size),
        table("tokens", torch.long),
        torch.tensor([len(talk.tokens) for talk in talks], device=device),
        heard=table("heard", torch.bool),
    )
    truncated = torch.tensor([talk.truncated for talk in talks], device=device)
    return Samples(
        batch, table("log_prob", torch.float32), table("entropy", torch.float32), truncated
    )
