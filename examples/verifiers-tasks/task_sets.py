"""Task sets of the package `verifiers` (0.4) as classes for `task.factory`; the file that `factory`
names says

    Conversation = environment(Sums(SumsConfig(largest=20)))

A conversation is that of verifiers' harness `null`: tools are called until a turn calls none, and
then the task's rewards are paid. Tools run in the environment's process instead of MCP servers.
"""

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import verifiers.v1 as vf


def environment(task_set: Any, markers: tuple[str, str] = ("<tool_call>", "</tool_call>")) -> type:
    """A class whose conversations are about tasks of a `Taskset`, with calls between `markers`, as
    of `task.markers`. Raises ValueError: its tasks need what there is not here.
    """
    kind, name = task_set.task_type(), type(task_set).__name__
    if kind.NEEDS_CONTAINER or task_set.config.task.judges:
        raise ValueError(f"{name} needs a container or a judge behind an API: it cannot be used")
    tools = {
        "_".join(filter(None, (server.server_name, tool.tool_name or tool.__name__))): (at, tool)
        for at, server in enumerate(_servers(task_set))
        for _, tool in inspect.getmembers(
            type(server), lambda member: getattr(member, "tool", False)
        )
    }
    methods = {called: _method(called, at, tool) for called, (at, tool) in tools.items()}
    return type(name, (_Conversation,), {"task_set": task_set, "markers": markers, **methods})


def problems(task_set: Any) -> Iterator[dict[str, Any]]:
    """Rows of a data file (`task.train`), one for each task; "none" is the answer of tasks that
    have no such field."""
    for data in (task.data for task in task_set):
        said = [{"role": message.role, "content": message.content} for message in _opening(data)]
        task = data.model_dump_json(exclude_defaults=True)
        yield {"prompt": said, "answer": str(getattr(data, "answer", "none")), "task": task}


class _Conversation:
    task_set: ClassVar[Any]
    markers: ClassVar[tuple[str, str]]

    async def reset(self, task: str, **_columns: Any) -> None:
        """Begin. Raises ValueError: the task needs what there is not here."""
        kind = self.task_set.task_type()
        self._task = kind(kind.data_type().model_validate_json(task), self.task_set.config.task)
        signals = [*self._task.hooks("reward"), *self._task.hooks("metric")]
        if self._task.hooks("stop") or any(
            "runtime" in inspect.signature(each).parameters for each in signals
        ):
            raise ValueError(
                "the task has a stop, or a reward that looks into a runtime: it cannot be used"
            )
        named = {name: getattr(self._task, name) for name in ("data", "key", "hash")}
        agent = vf.AgentInfo(config=vf.AgentConfig())
        record = vf.TraceTask(type=kind.__name__, **named)
        self._trace = vf.Trace(task=record, state=vf.state.state_cls(kind)(), agent=agent)
        self._servers = _servers(self.task_set)
        for server in self._servers:
            server._inert_state = self._trace.state  # what it would fetch from its host
            await server.setup()
            await server.setup_task(self._task.data)
        await self._task.setup(self._trace, None)

    async def get_reward(self, turns: Sequence[str]) -> float:
        """The weighted sum of the task's rewards, of what the policy and its tools said in turn."""
        said = _opening(self._task.data)
        for at, text in enumerate(turns):
            if at % 2:  # the replies to all calls of the turn before, in one text
                calls = said[-1].tool_calls
                said.append(
                    vf.ToolMessage(tool_call_id=calls[-1].id if calls else "", content=text)
                )
            else:
                said.append(self._turn(text))
        self._trace.nodes = [
            vf.MessageNode(
                parent=at - 1 if at else None, message=each, sampled=each.role == "assistant"
            )
            for at, each in enumerate(said)
        ]
        self._trace.stop("agent_completed")
        await self._task.finalize(self._trace, None)
        await self._task.score(self._trace)
        return float(self._trace.reward)

    def _turn(self, text: str) -> Any:
        """The policy's turn as a server reads it: its text, and the calls in it."""
        calls: list[Any] = []
        for written in re.findall("(.*?)".join(map(re.escape, self.markers)), text, re.DOTALL):
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                asked = json.loads(written)
                arguments = json.dumps(asked.get("arguments") or {})
                calls.append(
                    vf.ToolCall(id=f"call_{len(calls)}", name=asked["name"], arguments=arguments)
                )
        content = text.partition(self.markers[0])[0] if calls else text
        return vf.AssistantMessage(content=content, tool_calls=calls or None)


def _opening(data: Any) -> list[Any]:
    prompt = (
        data.prompt
        if isinstance(data.prompt, list)
        else [vf.UserMessage(content=data.prompt or "")]
    )
    return [
        *([vf.SystemMessage(content=data.system_prompt)] if data.system_prompt else []),
        *prompt,
    ]


def _servers(task_set: Any) -> list[Any]:
    config = task_set.config
    return [*task_set.task_type().toolsets(config.task), *task_set.toolsets(config)]


def _method(name: str, at: int, tool: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls `tool` of server `at`; its docstring names every argument, as chat
    templates need it."""

    @functools.wraps(tool)
    def method(self: Any, **arguments: Any) -> Any:
        return getattr(self._servers[at], tool.__name__)(**arguments)

    method.__name__, doc = name, inspect.getdoc(tool) or name
    arguments = list(inspect.signature(tool).parameters)[1:]
    if arguments and "Args:" not in doc:
        method.__doc__ = "\n".join(
            [doc, "", "Args:", *(f"    {each}: {each}" for each in arguments)]
        )
    return method
