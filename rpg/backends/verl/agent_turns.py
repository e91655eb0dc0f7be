"""Responses in which an environment has turns: verl's server draws each of the policy's, after the
tokens of all before it.

Environments, replies and random numbers are the embedded trainer's (rpg.models.conversations).
"""

import asyncio
import functools
import itertools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from transformers import PreTrainedTokenizerBase
from verl.experimental.agent_loop import AgentLoopOutput

from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.responses import Endings
from rpg.config.task import EnvironmentTask
from rpg.models.conversations import Conversations, Talk
from rpg.store.atomic_files import read_json_object
from rpg.tasks import Problem


class AgentTurns:
    """The conversations of one of verl's agent-loop workers."""

    def __init__(
        self,
        config: Any,
        settings: JobSettings,
        task: EnvironmentTask,
        tokenizer: PreTrainedTokenizerBase,
    ):
        self.settings = settings
        self.tokenizer = tokenizer
        kept = read_json_object(settings.manifest).get("rewards") if settings.manifest else None
        self.conversations = Conversations(task, kept)
        self.ended = Endings(tokenizer, config.actor_rollout_ref.model.path, settings.stop)
        self.most_prompt_tokens = config.data.max_prompt_length
        # Environments answer one call at a time; the requests of other conversations go on
        # meanwhile.
        self._executor = ThreadPoolExecutor(1)
        self._rows = itertools.count()
        self._openings: dict[str, list[str | None]] = {}

    async def draw(
        self, client: Any, parameters: Mapping[str, Any], problem: Problem, prompt: str, key: str
    ) -> AgentLoopOutput:
        """A response to the prompt of this name by verl's rollout servers (`client`), with vLLM's
        sampling parameters. key: all that the environment draws at random follows from it. Raises
        EnvironmentFault; DataError: the prompt is too long.
        """
        apart = functools.partial(asyncio.get_running_loop().run_in_executor, self._executor)
        row = next(self._rows)
        talk = Talk()
        limit = self.settings.max_response_tokens
        ids = await apart(self._begin, row, problem, prompt, key)
        goes_on = True
        while goes_on:
            done = len(talk.tokens)
            turn = {**parameters, "max_tokens": limit - done}
            if "uniforms" in turn:
                turn["uniforms"] = turn["uniforms"][done:]
            where = {"request_id": f"{prompt}c{row}", "prompt_ids": [*ids, *talk.tokens]}
            turn_output = await client.generate(sampling_params=turn, **where)
            talk.add(turn_output.token_ids, turn_output.log_probs)
            talk.truncated = not self.ended(turn_output.token_ids)
            goes_on = await apart(
                self.conversations.reply, self.tokenizer, row, talk, turn_output.token_ids, limit
            )
        earned = await apart(self._end, row, talk.turns)
        said = {"said": talk.turns, "truncated": talk.truncated, "earned": earned, **talk.counts}
        return AgentLoopOutput(
            prompt_ids=ids,
            response_ids=talk.tokens,
            response_mask=[int(not heard) for heard in talk.heard],
            response_logprobs=talk.log_prob,
            num_turns=len(talk.turns) + 1,
            metrics={},
            extra_fields={
                **turn_output.extra_fields,
                "turns": said,
                "turn_scores": [],
                "tool_rewards": [],
            },
        )

    def _begin(self, row: int, problem: Problem, prompt: str, key: str) -> list[int]:
        """The prompt's tokens, with what `reset` says; all responses of a group must have been told
        the same."""
        texts = self._openings.setdefault(prompt, [])
        texts.append(self.conversations.environments.begin(row, problem.columns, key))
        if len(texts) == self.settings.group_size:
            del self._openings[prompt]
        (ids,) = self.conversations.encoded(
            self.tokenizer, [problem.given()], texts, self.most_prompt_tokens
        )
        return ids

    def _end(self, row: int, turns: list[str]) -> float | None:
        earned = self.conversations.environments.reward(row, turns)
        self.conversations.environments.forget([row])
        return earned
