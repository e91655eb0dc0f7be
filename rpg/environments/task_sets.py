"""Environments of the package `verifiers` before 0.4 (tried: 0.3.1), as the worker takes them: a turn is the argument of one
tool."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from rpg.rewards.function_calls import BadReward

_NEEDS = {
    "Sandbox": "a sandbox",
    "Browser": "a browser",
    "MCP": "an MCP server",
    "Judge": "a judge with an API",
}
"""What a class needs whose name begins so, in the environment or its rubric."""


def maker(factory: Any, arguments: Mapping[str, Any], markers: Sequence[str]) -> Callable[[], Any]:
    """What makes a conversation's environment: `factory`, or what takes turns with the environment of verifiers that it
    returns, with calls between `markers`. Raises BadReward: that needs what there is not here."""
    if isinstance(factory, type) or not hasattr(made := factory(**arguments), "env_response"):
        if hasattr(factory, "task_type"):
            raise BadReward(
                "a Taskset of verifiers 0.4 cannot be used; accepted: load_environment of an older one"
            )
        return lambda: factory(**arguments)
    parts = made, made.rubric, *getattr(made.rubric, "rubrics", ())
    names = "".join(f" {kind.__name__}" for part in parts for kind in type(part).__mro__)
    needs = [need for begin, need in _NEEDS.items() if f" {begin}" in names]
    needs += ["rewards of whole groups"] * made.rubric.has_group_rewards
    if type(made).get_prompt_messages.__qualname__ != "MultiTurnEnv.get_prompt_messages":
        needs.append("prompts that leave out what was said")
    if needs:
        raise BadReward(f"an environment that needs {' and '.join(needs)} cannot be used")
    return lambda: _MultiTurn(made, markers)


class _MultiTurn:
    """A conversation with a MultiTurnEnv of verifiers (SingleTurnEnv, ToolEnv, ...), in the order of its `rollout`."""

    def __init__(self, environment: Any, markers: Sequence[str]):
        self._environment, self._markers = environment, markers
        self._types: Any = import_module("verifiers.types")

    def _described(self) -> list[dict[str, Any]]:
        tools = self._environment.tool_defs or ()
        return [{"type": "function", "function": tool.model_dump(exclude_none=True)} for tool in tools]

    async def reset(self, **columns: Any) -> None:
        state = await self._environment.init_state(columns, self._types.ClientConfig(), "policy")
        self._said = list(state["prompt"])
        self._state = await self._environment.setup_state(state) or state
        if self._state["prompt"] != self._said:
            raise ValueError("setup_state changes the prompt, which has been written before")

    async def turn(self, text: str) -> str | None:
        environment, state, heard = self._environment, self._state, len(self._said) + 1
        step = dict.fromkeys(("response", "tokens", "reward", "advantage")) | {
            "is_truncated": False,
            "extras": {},
        }
        step |= {
            "prompt": self._said,
            "completion": [self._message(text)],
            "trajectory_id": state["trajectory_id"],
        }
        await environment.add_trajectory_step(state, step)
        if await environment.is_completed(state):
            return None
        self._said = await environment.get_prompt_messages(state)
        if state.get("final_env_response") is not None:
            await environment.is_completed(state)  # which says why it ended
            return None
        return "\n".join(message.content for message in self._said[heard:])

    def _message(self, text: str) -> Any:
        """A turn as servers read it: its text, or what stands before its calls, and these."""
        calls: list[Any] = []
        for call in re.findall("(.*?)".join(map(re.escape, self._markers)), text, re.DOTALL):
            with suppress(ValueError, TypeError, KeyError):
                name, arguments = (
                    (asked := json.loads(call))["name"],
                    json.dumps(asked.get("arguments") or {}),
                )
                calls.append(self._types.ToolCall(id=f"{len(calls)}", name=name, arguments=arguments))
        content = text.partition(self._markers[0])[0] if calls else text
        return self._types.AssistantMessage(content=content, tool_calls=calls or None)

    async def get_reward(self) -> float:
        await self._environment.cleanup(self._state)
        await self._environment.rubric.score_rollout(self._state)
        return float(self._state["reward"])
