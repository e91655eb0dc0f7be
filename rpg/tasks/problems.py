"""What a problem is, for every task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rpg.config.data_source import Chat
from rpg.errors import UserError


class DataError(UserError):
    """Problems that cannot be used; the message names the file, the line and the field."""


Given = str | tuple[Mapping[str, str], ...]
"""A prompt: the text of one user's message, or a conversation of {role, content}."""


@dataclass(frozen=True)
class Problem:
    """One prompt with its one right answer."""

    id: str
    """Unique within a run, e.g. `chain-easy-0007`."""
    text: str
    """The problem as a person would state it, before a template is put around it."""
    prompt: str
    """What the model is given as the user's message."""
    answer: str
    group: str
    """Tier or file; for display only."""
    demonstration: str | None = None
    """A full response that solves it, where the task has one."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of its row, for reward functions."""
    messages: tuple[Mapping[str, str], ...] = ()
    """The conversation the model is given, where it is more than `prompt` as a single user's message."""
    chat: bool = False
    """The data hold messages and no text."""

    def conversation(self) -> list[Mapping[str, str]]:
        """What the model is given, as messages."""
        return list(self.messages) or [{"role": "user", "content": self.prompt}]

    def given(self) -> Given:
        """What the model is given: the user's message alone, or all messages."""
        return self.messages or self.prompt

    def asked(self) -> Any:
        """The problem for reward functions: messages where the data hold messages, else its text."""
        return self.conversation() if self.chat else self.text


def with_chat(problem: Problem, chat: Chat) -> Problem:
    """The problem with the system message (unless it has one) and the examples before its last message."""
    if chat.system is None and not chat.examples:
        return problem
    messages = [dict(message) for message in problem.conversation()]
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


@dataclass(frozen=True)
class Dropped:
    """A training problem that is not trained on."""

    problem: str
    reason: str
    """`language`, `repeated`, `two answers` or `leaked`."""
    detail: str
    text: str


@dataclass(frozen=True)
class DatasetSummary:
    """One source of problems: how many rows it had, what was left out and why, what was kept."""

    name: str
    """`train`, or a benchmark's name."""
    source: str
    """The file, or `hub id@revision`."""
    rows: int
    distinct: int
    """Different problems among the rows."""
    dropped: dict[str, int]
    """Reason -> problems left out for it."""
    kept: int
    digest: str
    """Of the problems and answers that are kept."""


@dataclass(frozen=True)
class Splits:
    """Training problems and held-out benchmarks; no problem is in two of them."""

    train: list[Problem]
    benchmarks: dict[str, list[Problem]]
    notes: tuple[str, ...] = ()
    """What a reader of results should know about these problems."""
    summaries: tuple[DatasetSummary, ...] = ()
    """Training set first; empty where problems are made by code."""
    dropped: tuple[Dropped, ...] = ()
    near_duplicates: tuple[tuple[str, str, str, float], ...] = ()
    """(benchmark, problem, problem, similarity): near duplicates within a benchmark, which are left as they are."""


def file_digest(path: str) -> str:
    """SHA-256 of a file's bytes; raises DataError when it cannot be read."""
    try:
        with open(path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
