"""What a problem is, and what every task type has to say about its problems, besides its section in
rpg.config.task."""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from rpg.config.data_source import Chat
from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import Verifier
from rpg.errors import UserError


class DataError(UserError):
    """Problems that cannot be used; the message names the file, the line and the field."""


Given = str | tuple[Mapping[str, str], ...]
"""A prompt: the text of one user's message, or a conversation of {role, content}."""
HELD_OUT = 64
"""Problems per tier (or file) on which the ability is measured; they are in no benchmark and in no
demonstration."""


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
    """The conversation the model is given, where it is more than `prompt` as a single user's
    message."""
    chat: bool = False
    """The data hold messages and no text."""
    cluster: str | None = None
    """Problems of one cluster (a template, a source, a year) tend to be solved together; None: the
    problem stands for itself."""

    def conversation(self) -> list[Mapping[str, str]]:
        """What the model is given, as messages."""
        return list(self.messages) or [{"role": "user", "content": self.prompt}]

    def given(self) -> Given:
        """What the model is given: the user's message alone, or all messages."""
        return self.messages or self.prompt

    def asked(self) -> Any:
        """The problem for reward functions: messages where the data hold messages, else its
        text."""
        return self.conversation() if self.chat else self.text

    def with_chat(self, chat: Chat) -> Self:
        """With the system message (unless it has one) and the examples before its last message."""
        if chat.system is None and not chat.examples:
            return self
        own = [dict(message) for message in self.conversation()]
        messages = []
        if own[0]["role"] == "system":
            messages.append(own.pop(0))
        elif chat.system is not None:
            messages.append({"role": "system", "content": chat.system})
        for example in chat.examples:
            messages.append({"role": "user", "content": example.prompt})
            messages.append({"role": "assistant", "content": example.response})
        messages += own
        return replace(self, messages=tuple(messages))


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
    """(benchmark, problem, problem, similarity): near duplicates within a benchmark, which are left
    as they are."""


def shortened(value: Any) -> str:
    """A value for messages, on one line."""
    text = repr(" ".join(value.split()) if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:77] + "..."


class Demonstrations(Protocol):
    """What a model is warm-started on: demonstrations in two styles.

    *Ability*: full, right responses. *Behaviour*: mostly bare answers, which leaves reinforcement
    learning an ability that is there to sharpen.
    """

    held_out: list[Problem]

    def longest_response(self) -> int:
        """Characters of the longest full response."""

    def ability(self, rng: random.Random) -> tuple[Given, str | Sequence[str]]:
        """(prompt, response) with a full, right response; of a conversation the turns, every second
        one a tool's."""

    def behaviour(
        self, rng: random.Random, warm: WarmStart | SupervisedStart
    ) -> tuple[Given, str | Sequence[str]]:
        """(prompt, response) in the style of the initial policy."""


@dataclass(frozen=True)
class TaskKind:
    """One task type; every function takes its section, and raises DataError for problems that
    cannot be used.

    problems: training problems and held-out benchmarks. data: what stands in the digest of the data
    over the fields of the section: digests of what its files hold, or the version of the code that
    makes the problems. verifier: how responses are checked. demonstrations: of its problems, for
    the warm start of a model made from its config.
    """

    problems: Callable[[Any], Splits]
    data: Callable[[Any], dict[str, Any]]
    verifier: Callable[[Any], Verifier]
    demonstrations: Callable[[Any, Splits], Demonstrations]
    characters: Callable[[Splits], set[str]] | None = None
    """All that prompts and responses can be written with; None: those that occur in the problems.
    """


class ProblemDemonstrations:
    """The demonstrations in the training problems, which a message calls `source`; some of them are
    held out."""

    def __init__(self, source: str, verifier: Verifier, splits: Splits):
        self.verifier = verifier
        shown = [problem for problem in splits.train if problem.demonstration]
        if len(shown) < 2:
            raise DataError(
                f"{source}: field demonstration is missing: a model is warm-started on full "
                "responses; add the "
                "column, set model.warm_start to null, or use a pretrained model without it"
            )
        random.Random("warm start held-out").shuffle(shown)
        count = max(1, min(HELD_OUT, len(shown) // 10))
        self.held_out, self._shown = shown[:count], shown[count:]

    def longest_response(self) -> int:
        return max(len(problem.demonstration or "") for problem in self.held_out + self._shown)

    def ability(self, rng: random.Random) -> tuple[Given, Any]:
        problem = rng.choice(self._shown)
        return problem.given(), self.response(problem)

    def behaviour(self, rng: random.Random, warm: WarmStart | SupervisedStart) -> tuple[Given, Any]:
        problem = rng.choice(self._shown)
        # There is no general way to corrupt a step of a demonstration.
        full = rng.random() < warm.scratchpad_fraction
        return problem.given(), self.response(problem) if full else self.verifier.written(
            problem.answer
        )

    def response(self, problem: Problem) -> Any:
        """What the demonstration of a problem shows."""
        return problem.demonstration or ""


def problem_characters(splits: Splits) -> set[str]:
    """All characters that occur in prompts, answers and demonstrations."""
    problems = list(splits.train)
    for held_out in splits.benchmarks.values():
        problems += held_out
    messages = (m["content"] for p in problems for m in p.messages)
    fields = (text for p in problems for text in (p.prompt, p.answer, p.demonstration or ""))
    return {c for text in itertools.chain(fields, messages) for c in text}
