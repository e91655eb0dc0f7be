"""Logs of other trainers as steps with the project's names. Pure, but for reading the file."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.errors import UserError
from rpg.store.run_folder import folder_name

Row = dict[str, Any]
"""One step as the log has it: its number as `step`, and its values under their own names."""


class LogError(UserError):
    """A log that cannot be taken over; `str(error)` names the file, the line or column, and what was expected."""


@dataclass(frozen=True)
class Log:
    """What a log holds: metrics of each step, and scores of benchmarks by step."""

    steps: list[Row]
    """{"step": 3, "reward": 0.5, ...}, ascending, each step once."""
    scores: dict[str, dict[int, float]]
    others: list[str]
    """Names in the log that were not taken over."""
    offered: list[str]
    """Those of them that look like accuracies of benchmarks: they could be `scores`."""


# Theirs -> ours, where the two mean the same.
TRL = {
    "reward": "reward",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "kl": "kl_policy_to_ref",
    "completions/mean_length": "response_length",
    "completions/clipped_ratio": "truncation_rate",
    "clip_ratio/region_mean": "clip_fraction",
    "clip_ratio/low_mean": "clip_fraction_lower",
    "clip_ratio/high_mean": "clip_fraction_upper",
    "step_time": "seconds_step",
}
VERL = {
    "critic/rewards/mean": "reward",
    "actor/entropy": "entropy",
    "actor/pg_loss": "loss",
    "actor/ppo_kl": "kl_old_to_policy",
    "actor/kl_loss": "kl_policy_to_ref",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/pg_clipfrac_lower": "clip_fraction_dual",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "response_length/mean": "response_length",
    "response_length/clip_ratio": "truncation_rate",
    "timing_s/step": "seconds_step",
}


def read(
    kind: str,
    path: Path,
    mapping: Mapping[str, str] | None = None,
    scores: Mapping[str, str] | None = None,
    updates: int = 1,
) -> Log:
    """A log of one of KINDS. `mapping`: our name -> its name, beside or instead of those known; `scores`: benchmark -> its
    name of the accuracy; `updates`: so many of its steps are one of ours, a rollout, and become its mean.

    Raises:
        LogError: the file cannot be read, is no such log, or has no column of that name.
    """
    known, parse = KINDS[kind]
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    rows = list(parse(text, path))
    if not rows:
        raise LogError(f"{path}: holds no step; expected {_EXPECTED[kind]}")
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    wanted = {ours: theirs for theirs, ours in known.items() if theirs in names}
    for name in names:  # TRL's reward functions
        found = re.fullmatch(r"rewards/(.+)/mean", name)
        if kind == "trl" and found:
            wanted[f"reward_{found[1]}"] = name
    if taken := _COUNTED & set(mapping or {}):
        raise LogError(
            f"--map {min(taken)}: is counted here; give the column another name, e.g. their_{min(taken)}"
        )
    wanted |= dict(mapping or {})
    for theirs in (*wanted.values(), *(scores or {}).values()):
        if theirs not in names:
            each = [
                name
                for name in names
                if name.startswith("eval_") and name.endswith(theirs.removeprefix("eval"))
            ]
            hint = f"; there is one for each set: {', '.join(each)}." if each else _nearest(theirs, names)
            raise LogError(f"{path}: no column {theirs!r}{hint} There are: {', '.join(names)}")
    if not wanted and not scores:
        raise LogError(
            f"{path}: say which columns are what: --map reward=COLUMN. There are: {', '.join(names)}"
        )
    steps: dict[int, Row] = {}
    found_scores: dict[str, dict[int, float]] = {folder_name(name, "benchmark"): {} for name in scores or {}}
    for row in rows:
        values = {ours: row[theirs] for ours, theirs in wanted.items() if _is_number(row.get(theirs))}
        if values:
            steps.setdefault(row["step"], {"step": row["step"]}).update(values)
        for name, theirs in (scores or {}).items():
            if _is_number(row.get(theirs)):
                found_scores[name][math.ceil(row["step"] / updates)] = float(row[theirs])
    for name, theirs in (scores or {}).items():
        for step, value in found_scores[name].items():
            if not 0 <= value <= 1:
                raise LogError(
                    f"{path}: step {step}: {theirs} is {value:g}; expected an accuracy from 0 to 1"
                )
    taken = {*wanted.values(), *(scores or {}).values()}
    others = [name for name in names if name not in taken]
    likely = (name for name in others if _SCORE.fullmatch(name))
    offered = [n for n in likely if all(0 <= row[n] <= 1 for row in rows if _is_number(row.get(n)))]
    made = [steps[step] for step in sorted(steps)]
    if kind == "trl":
        made = _timed(made)
    return Log(made if updates == 1 else _rollouts(made, updates), found_scores, others, offered)


_COUNTED = {"step", "optimizer_step", "attempt", "time", "sweep", "run"}
"""What tells the rows of metrics apart: no measurement has such a name."""
_SCORE = re.compile(r"eval[_/](?:.*rewards?/.+/mean|.*accuracy)|val-core/.+/mean@\d+")


def _timed(steps: list[Row]) -> list[Row]:
    """Of transformers: its steps are those of the optimizer, and a time is the mean of those since it logged last."""
    last, made = 0, []
    for row in steps:
        seconds = (
            {"seconds_step": row["seconds_step"] * (row["step"] - last)} if "seconds_step" in row else {}
        )
        made.append({**row, **seconds, "optimizer_step": row["step"]})
        last = row["step"]
    return made


def _rollouts(steps: list[Row], updates: int) -> list[Row]:
    """One step for each `updates` of these: means, of times the sum, and what it counts as it is at their end."""
    whole: dict[int, list[Row]] = {}
    for row in steps:
        whole.setdefault(math.ceil(row["step"] / updates), []).append(row)
    made = []
    for step, rows in whole.items():
        of = {name: [row[name] for row in rows if name in row] for row in rows for name in row}
        mean = {
            name: values[0] if len(values) == 1 else math.fsum(values) / len(values)
            for name, values in of.items()
        }
        times = {name: math.fsum(values) for name, values in of.items() if name == "seconds_step"}
        counts = {name: max(values) for name, values in of.items() if name == "optimizer_step"}
        made.append({**mean, **times, **counts, "step": step})
    return made


def _trl(text: str, path: Path) -> Iterable[Row]:
    """trainer_state.json; its log_history has a record for each time it logged."""
    state = _json(text, path)
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise LogError(
            f"{path}: field log_history is missing; expected a trainer_state.json of transformers or TRL"
        )
    return [_of_one_set(row) for row in history if isinstance(row, dict) and _is_step(row.get("step"))]


def _of_one_set(row: Row) -> Row:
    """An evaluation on one of several data sets (`eval_dataset={"easy": ...}`): its values by names of their own.

    transformers names its own values after the set, `eval_easy_runtime`; those of TRL's trainers are `eval_reward` for all.
    """
    sets = [found[1] for name in row if (found := re.fullmatch(r"eval_(.+)_runtime", name))]
    if len(sets) != 1:
        return row
    own = f"eval_{sets[0]}_"
    plain = (name.startswith("eval_") and not name.startswith(own) for name in row)
    return {
        own + name.removeprefix("eval_") if is_plain else name: value
        for is_plain, (name, value) in zip(plain, row.items(), strict=True)
    }


_CONSOLE = re.compile(r"\bstep:(\d+) - (.+)$")
_PAIR = re.compile(r"(\S+):([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf))(?:\)|$)")
_WRAPPED = re.compile(r"np\.\w+\(")


def _verl(text: str, path: Path) -> Iterable[Row]:
    """Lines of verl's file logger, {"step", "data"}, or of its console, `step:3 - actor/lr:1e-06 - ...`."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith('{"'):  # a console prints dictionaries, too, in Python's way
            if number == len(lines) and not line.endswith("}"):
                continue  # verl was killed while it wrote this line
            row = _json(line, path, number)
            if isinstance(row.get("data"), dict) and _is_step(row.get("step")):
                yield {**row["data"], "step": row["step"]}
        elif found := _CONSOLE.search(line):
            pairs = (_PAIR.fullmatch(_WRAPPED.sub("", part)) for part in found[2].split(" - "))
            yield {**{pair[1]: float(pair[2]) for pair in pairs if pair}, "step": int(found[1])}


def _table(text: str, path: Path) -> Iterable[Row]:
    """CSV with a header, JSON lines, or a JSON list; the step is a column step, _step, Step, global_step or iteration."""
    stripped = text.lstrip()
    if stripped.startswith("["):
        rows = _json(text, path)
    elif stripped.startswith("{"):
        rows = [_json(line, path, n) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    else:
        rows = [{k: _value(v) for k, v in row.items() if k} for row in csv.DictReader(io.StringIO(text))]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise LogError(f"{path}: row {number}: expected an object with a value for each column")
        name = next((name for name in _STEP if name in row), None)
        if name is None:
            raise LogError(f"{path}: row {number}: no step: none of the columns {', '.join(_STEP)} is there")
        step = row[name]
        if isinstance(step, float) and step.is_integer():
            step = int(step)
        if not _is_step(step):
            raise LogError(f"{path}: row {number}: {name} is {row[name]!r}; expected a whole number from 0")
        # The web page of wandb puts the run's name before each column: `my-run - train/reward`.
        yield {**{key.rpartition(" - ")[2]: value for key, value in row.items() if key != name}, "step": step}


_STEP = ("step", "_step", "Step", "global_step", "train/global_step", "training/global_step", "iteration")
KINDS: dict[str, tuple[Mapping[str, str], Callable[[str, Path], Iterable[Row]]]] = {
    "trl": (TRL, _trl),
    "verl": (VERL, _verl),
    "wandb": ({**{f"train/{k}": v for k, v in TRL.items()}, **VERL}, _table),
    "csv": ({}, _table),
}
"""Kind of log -> names that are known in it, and its reader."""
_EXPECTED = {
    "trl": "the trainer_state.json of a checkpoint, with numbers in its log_history",
    "verl": "lines of verl's file logger or console, such as `step:3 - actor/lr:1e-06`",
    "wandb": "an exported CSV, or the history as JSON",
    "csv": "a table with a column of steps",
}


def _json(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise LogError(f"{path}: {f'line {line}: ' if line else ''}not JSON ({error})") from error


def _value(text: str | None) -> Any:
    try:
        number = float(text or "")
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else "."
