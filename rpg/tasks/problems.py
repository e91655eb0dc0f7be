"""What a problem is, whatever task it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from rpg.errors import UserError


class DataError(UserError):
    """Problems that cannot be used; `str(error)` names the file, the line and the field."""


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
    """What kind of problem it is (tier or file); only for people."""
    demonstration: str | None = None
    """A full response that solves it, where the task has one."""


@dataclass(frozen=True)
class Splits:
    """Training problems and held-out benchmarks; no problem is in two of them."""

    train: list[Problem]
    benchmarks: dict[str, list[Problem]]
    notes: tuple[str, ...] = ()
    """What a reader of results should know about these problems."""
    left_out: tuple[str, ...] = ()
    """Training problems that a benchmark holds too, one line each."""
