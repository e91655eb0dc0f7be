"""The conversation around a problem: system message and worked examples of the section `chat`."""

from __future__ import annotations

from dataclasses import replace

from rpg.config.data_source import Chat
from rpg.tasks.problems import Problem


def with_chat(problem: Problem, chat: Chat) -> Problem:
    """The problem with the system message (where it has none of its own) and the examples before its last message."""
    if chat.system is None and not chat.examples:
        return problem
    messages = [dict(one) for one in problem.conversation()]
    system = messages[:1] if messages[0]["role"] == "system" else []
    rest = messages[len(system) :]
    if not system and chat.system is not None:
        system = [{"role": "system", "content": chat.system}]
    shown = [
        message
        for example in chat.examples
        for message in (
            {"role": "user", "content": example.prompt},
            {"role": "assistant", "content": example.response},
        )
    ]
    return replace(problem, messages=(*system, *shown, *rest))
