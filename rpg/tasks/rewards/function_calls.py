"""How a reward function is called, and what it may return.

Three forms are recognised by their parameters, so that functions written for other trainers run
unchanged:

    score(prompts, responses, **columns) -> [float, ...] or {name: [float, ...]}       ours
    score(completions, **columns) -> [float | None, ...]                               TRL's
    compute_score(data_source, solution_str, ground_truth, extra_info) -> float        verl's, a
    response at a time
"""

import asyncio
import inspect
import math
import os
import reprlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOTAL = ""
"""Stands for the value of a function that returns plain numbers."""
Values = dict[str, list[float | None]]


class BadReward(Exception):
    """A function misbehaved; `row` is the first response with which it did, if that is known."""

    def __init__(self, message: str, row: int | None = None):
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class Batch:
    """Responses to score; each list has one entry per response."""

    prompts: list[Any]
    """As the data have them: text, or a list of messages."""
    responses: list[str]
    tokens: list[int]
    """Tokens of each response."""
    columns: dict[str, list[Any]]
    """The other columns of the data; `answer` is the right answer, as text."""
    answers: list[Any]
    """The column `answer` as the data have it, if they have one."""

    def __len__(self) -> int:
        return len(self.responses)

    def row(self, number: int) -> "Batch":
        """One response alone."""
        columns = {name: [values[number]] for name, values in self.columns.items()}
        prompt = self.prompts[number]
        response = self.responses[number]
        tokens = self.tokens[number]
        return Batch([prompt], [response], [tokens], columns, [self.answers[number]])


def call(function: Callable[..., Any], name: str, batch: Batch) -> Values:
    """The function's values by name; None where it does not apply to a response. Raises BadReward:
    it raised, or did not return one number for each response.
    """
    try:
        returned = _by_form(function, batch)
    except Exception as error:
        row, culprit = _first_failing(function, batch)
        limit = " (reward.memory_gib)" if isinstance(culprit or error, MemoryError) else ""
        raise BadReward(f"{name}: raised {where(culprit or error)}{limit}", row) from error
    return _checked(returned, len(batch), name)


def where(error: BaseException) -> str:
    """An error in a few words, with the last line of code it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": ") + last


def _by_form(function: Callable[..., Any], batch: Batch) -> Any:
    parameters = inspect.signature(function).parameters
    if "solution_str" in parameters:
        return _one_by_one(function, batch)
    arguments = {
        **batch.columns,
        "prompts": batch.prompts,
        "responses": batch.responses,
        "completions": [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(batch.prompts, batch.responses, strict=True)
        ],
        "tokens": batch.tokens,
    }
    if (
        "completions" in parameters and "responses" not in parameters
    ):  # TRL passes columns as they are
        arguments["answer"] = batch.answers
    asked_for = (p for p in parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
    missing = [p.name for p in asked_for if p.default is p.empty and p.name not in arguments]
    if missing:
        present = ", ".join(sorted(arguments))
        raise TypeError(f"no argument for parameter {', '.join(missing)}; there are: {present}")
    by_place = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_ONLY]
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    accepted = arguments.keys() if any_keyword else arguments.keys() & parameters
    by_name = {
        name: given
        for name, given in arguments.items()
        if name in accepted and name not in by_place
    }
    return awaited(
        function(*(arguments[name] for name in by_place if name in arguments), **by_name)
    )


def awaited(result: Any) -> Any:
    """What a function returns, or what a coroutine function returns in the end."""

    async def end() -> Any:
        return await result

    return asyncio.run(end()) if inspect.isawaitable(result) else result


def _one_by_one(function: Callable[..., Any], batch: Batch) -> list[Any]:
    """verl's form; of a mapping that it returns only `score` is the reward."""
    names = inspect.signature(function).parameters
    rows = []
    for number, text in enumerate(batch.responses):
        columns = {name: values[number] for name, values in batch.columns.items()}
        arguments = {
            "data_source": columns.get("data_source", ""),
            "solution_str": text,
            "ground_truth": columns.get("answer", ""),
            "extra_info": {**columns, "prompt": batch.prompts[number]},
        }
        rows.append(
            awaited(function(**{name: value for name, value in arguments.items() if name in names}))
        )
    return [row["score"] if isinstance(row, Mapping) and "score" in row else row for row in rows]


def _first_failing(
    function: Callable[..., Any], batch: Batch
) -> tuple[int | None, BaseException | None]:
    """The first response with which it fails alone; None if it fails only with all of them
    together."""
    for number in range(len(batch)):
        try:
            _by_form(function, batch.row(number))
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            return number, error
    return None, None


def _checked(returned: Any, count: int, name: str) -> Values:
    returned = returned.tolist() if hasattr(returned, "tolist") else returned
    if isinstance(returned, Mapping):
        named = {str(key): values for key, values in returned.items()}
    elif (
        _sequence(returned) and len(returned) and all(isinstance(row, Mapping) for row in returned)
    ):
        keys = dict.fromkeys(str(key) for row in returned for key in row)
        named = {key: [row.get(key) for row in returned] for key in keys}
    else:
        named = {TOTAL: returned}
    if not named:
        raise BadReward(
            f"{name}: returned nothing; expected a number for each of the {count} responses"
        )
    return {
        k: _numbers(values, count, f"{name}[{k!r}]" if k else name) for k, values in named.items()
    }


def _numbers(values: Any, count: int, name: str) -> list[float | None]:
    values = values.tolist() if hasattr(values, "tolist") else values
    if not _sequence(values):
        raise BadReward(
            f"{name}: returned {reprlib.repr(values)}; expected a list with a number for "
            f"each of the {count} responses"
        )
    if len(values) != count:
        row = min(len(values), count - 1)
        raise BadReward(f"{name}: returned {len(values)} values for {count} responses", row)
    return [_number(value, row, name) for row, value in enumerate(values)]


def _number(value: Any, row: int, name: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, str) or not math.isfinite(number):
        raise BadReward(f"{name}: returned {reprlib.repr(value)}; expected a finite number", row)
    return number


def _sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
