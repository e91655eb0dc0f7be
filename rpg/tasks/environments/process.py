"""Environments with which a policy takes turns, in a bounded process of their own."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

from rpg.config.task import EnvironmentTask
from rpg.errors import UserError
from rpg.tasks.rewards.function_process import Failed, UserProcess


class EnvironmentFault(UserError):
    """An environment cannot be used: its import, `reset` or `get_reward` fails."""


class Reply(NamedTuple):
    """What the environment says to a call."""

    text: str
    failed: bool
    """The call could not be read, or the tool failed; the text says why."""


class _Raised(Failed):
    """The environment raised; its process goes on, and what the environment did before stays."""


class Environments(AbstractContextManager["Environments"]):
    """One environment for each conversation; a context manager, or to be closed.

    A tool that fails, hangs, needs too much memory or ends its process costs one reply. What other
    conversations had said by then is told to a new process, so that they go on as if nothing had
    happened.
    """

    def __init__(self, task: EnvironmentTask, sources: Sequence[Mapping[str, str]]):
        self.task = task
        setup = {
            "function": task.factory,
            "sources": list(sources),
            "memory_gib": task.memory_gib,
            "form": task.call,
            "characters": task.reply_characters,
            "network": task.network,
        }
        self._process = UserProcess("rpg.tasks.environments.worker", setup, "task")
        self._events: dict[int, list[dict[str, Any]]] = {}
        self._there: set[int] = set()  # conversations that the process has been told

    def schemas(self) -> list[Any]:
        """Descriptions of the tools for a chat template, from their docstrings. Raises
        EnvironmentFault."""
        schemas: list[Any] = self._required({"what": "schemas"}, "the tools' docstrings", 120.0)
        return schemas

    def begin(self, row: int, columns: Mapping[str, Any], key: str) -> str | None:
        """Begin conversation `row`; what `reset` says. Everything random follows from `key`. Raises
        EnvironmentFault."""
        event = {"what": "begin", "row": row, "columns": dict(columns), "key": key, "number": 0}
        self._events[row] = [event]
        observation = self._required(event, "reset")
        self._there.add(row)
        return observation if isinstance(observation, str) else None

    def call(self, row: int, text: str) -> Reply:
        """The reply to a call in conversation `row`."""
        events = self._events[row]
        number = sum(not event.get("failed") for event in events)
        event = {**events[0], "what": "call", "text": text, "columns": {}, "number": number}
        try:
            self._tell(row)
            reply = Reply(str(self._ask(event)), False)
        except Failed as failure:
            reply = Reply(f"Error: {failure}", True)
        if row in self._there:
            # Otherwise the process has ended, and with it went whatever the call had done.
            events.append({**event, "failed": reply.failed})
        return reply

    def reward(self, row: int, turns: Sequence[str]) -> float | None:
        """What `get_reward` returns, which may ask for `turns`; None without one. Raises
        EnvironmentFault."""
        try:
            self._tell(row)
        except Failed as failure:
            raise EnvironmentFault(f"task.factory: {self.task.factory}: {failure}") from None
        value: float | None = self._required(
            {**self._events[row][0], "what": "reward", "turns": turns}, "get_reward"
        )
        return value

    def forget(self, rows: Iterable[int]) -> None:
        """These conversations are over."""
        over = self._there.intersection(rows)
        if over:
            self._required({"what": "forget", "rows": sorted(over)}, "")
        self._there -= over
        for row in rows:
            del self._events[row]

    def close(self) -> None:
        """End the process."""
        self._process.close()
        self._there.clear()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _tell(self, row: int) -> None:
        """What was said so far, to a process that does not know it."""
        if row not in self._there:
            for event in self._events[row]:
                with suppress(_Raised) if event.get("failed") else nullcontext():
                    self._ask(event)
            self._there.add(row)

    def _required(self, event: Mapping[str, Any], what: str, seconds: float = 0.0) -> Any:
        try:
            return self._ask(event, seconds)
        except Failed as failure:
            raise EnvironmentFault(
                f"task.factory: {self.task.factory}: {what}: {failure}"
            ) from None

    def _ask(self, event: Mapping[str, Any], seconds: float = 0.0) -> Any:
        """What an event comes to. Raises Failed; EnvironmentFault: the class cannot be imported or
        made."""
        try:
            error = self._process.start().get("error")
            if error:
                raise EnvironmentFault(f"task.factory: {error}")
            answer = self._process.ask(event, seconds or self.task.seconds)
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            raise _Raised(answer["error"])
        return answer["value"]
