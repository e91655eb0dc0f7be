"""Reads the logs of other trainers as steps, with the project's names of metrics."""

import csv
import io
import itertools
import math
import re
import reprlib
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.config.errors import nearest
from rpg.errors import UserError
from rpg.json_text import read_json
from rpg.store.run_folder import folder_name, is_step

Row = dict[str, Any]
"""One step of a log: its number as `step`, and its values under the names they have in the log."""


class LogError(UserError):
    """A log that cannot be imported. `str(error)` names the file, the line or column, and what was
    expected."""


@dataclass(frozen=True)
class Log:
    """The contents of a log: metrics of each step, and accuracies on benchmarks by step."""

    steps: list[Row]
    """{"step": 3, "reward": 0.5, ...}, ascending, each step once."""
    scores: dict[str, dict[int, float]]
    others: list[str]
    """Names in the log that were not imported."""
    offered: list[str]
    """Those among them that look like accuracies on benchmarks and could be `scores`."""
    unread: list[str] = field(default_factory=list)
    """Sentences about cells of imported columns that are not numbers, and were left out."""


_NAMES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("names.toml").read_text("utf-8")
)
TRL = _NAMES["trl"]
VERL = _NAMES["verl"]
"""Name in the log -> our name of the same quantity."""


def read(
    kind: str,
    path: Path,
    mapping: Mapping[str, str] | None = None,
    scores: Mapping[str, str] | None = None,
    updates: int = 1,
) -> Log:
    """A log, `kind` its format. `mapping`: our name -> the log's name of a metric; `scores`:
    benchmark -> the log's name of its accuracy; `updates`: steps of the log per rollout, which
    become one step of ours, as their mean.

    Raises LogError: the file cannot be read, is not such a log, or lacks a column of that name or
    what it should hold.
    """
    our_names, parse, expected = LOG_FORMATS[kind]
    scores = scores or {}
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    rows = [_with_numbers(row) for row in parse(text, path)]
    if not rows:
        raise LogError(f"{path}: contains no step; expected {expected}")
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    columns = columns_of(our_names, names)
    name = min(COUNTED & set(mapping or {}), default=None)
    if name is not None:
        advice = f"give the column another name, e.g. their_{name}"
        raise LogError(f"--map {name}: this name is reserved; {advice}")
    columns |= dict(mapping or {})
    _require(path, names, (*columns.values(), *scores.values()))
    if not columns and not scores:
        shown = ", ".join(names)
        raise LogError(
            f"{path}: say which column holds what: --map reward=COLUMN. There are: {shown}"
        )
    for column in (*(mapping or {}).values(), *scores.values()):
        _require_measured(
            path, rows, column, once=kind == "csv"
        )  # trainers write steps again after a kill
    unread = _unread(rows, (*columns.values(), *scores.values()))
    steps: dict[int, Row] = {}
    for row in rows:
        values = {
            ours: row[theirs] for ours, theirs in columns.items() if _is_logged(row.get(theirs))
        }
        if values:
            steps.setdefault(row["step"], {"step": row["step"]}).update(values)
    ascending = [steps[step] for step in sorted(steps)]
    if kind == "trl":
        ascending = _timed(ascending)
    taken = {*columns.values(), *scores.values()}
    others = [name for name in names if name not in taken]
    likely = (name for name in others if _SCORE.fullmatch(name))
    offered = [n for n in likely if all(0 <= row[n] <= 1 for row in rows if is_number(row.get(n)))]
    curves = {name: _scores(path, rows, column, updates) for name, column in scores.items()}
    if not ascending and not any(curves.values()):
        raise LogError(f"{path}: no number in {', '.join(sorted(taken))}")
    accuracies = {folder_name(name, "benchmark"): curve for name, curve in curves.items()}
    return Log(
        steps=ascending if updates == 1 else rollouts(ascending, updates),
        scores=accuracies,
        others=others,
        offered=offered,
        unread=unread,
    )


def _unread(rows: Sequence[Row], columns: Iterable[str]) -> list[str]:
    """A sentence for each column with cells that are neither numbers nor empty."""
    sentences = []
    for column in dict.fromkeys(columns):
        cells = [(row["step"], row[column]) for row in rows if row.get(column) not in (None, "")]
        others = [(step, value) for step, value in cells if not _is_logged(value)]
        if others:
            step, value = others[0]
            sentences.append(
                f"{column}: {len(others)} of {len(cells)} cells are not numbers and were left out, "
                f"the first at step {step}: {reprlib.repr(value)}"
            )
    return sentences


def columns_of(our_names: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Our name -> theirs, of those among a log's `names` whose meaning is known; {} without a table
    of `our_names`."""
    if not our_names:
        return {}
    columns = {ours: name for name, ours in our_names.items() if name in names}
    functions = (re.fullmatch(r"(?:train/)?rewards/(.+)/mean", name) for name in names)
    columns |= {f"reward_{match[1]}": match[0] for match in functions if match}
    # What our losses log inside other trainers (rpg.interop.integrations) is measured by them,
    # under our names.
    ours = (re.fullmatch(r"(?:train/|actor/)?rpg/(.+)", name) for name in names)
    return columns | {match[1]: match[0] for match in ours if match}


def _require(path: Path, names: Iterable[str], columns: Iterable[str]) -> None:
    """Raises LogError, with a hint, if the log lacks one of these columns."""
    for column in columns:
        if column not in names:
            ending = column.removeprefix("eval")
            of_sets = [name for name in names if name.startswith("eval_") and name.endswith(ending)]
            found = f"; there is one for each set: {', '.join(of_sets)}."
            hint = found if of_sets else nearest(column, names)
            raise LogError(f"{path}: no column {column!r}{hint} There are: {', '.join(names)}")


def _require_measured(path: Path, rows: list[Row], column: str, *, once: bool) -> None:
    """Raises LogError if the column has no number; or different ones at a step, where it should
    have `once` one."""
    first: dict[int, Any] = {}
    for row in rows:
        step = row["step"]
        value = row.get(column)
        if not _is_logged(value):
            continue
        before = first.setdefault(step, value)
        if once and str(before) != str(value):
            raise LogError(f"{path}: step {step}: {column} is both {before} and {value}")
    if first:
        return
    texts = [row.get(column) for row in rows]
    filled = [number for number, text in enumerate(texts, 1) if text not in (None, "")]
    number = filled[0] if filled else 1
    raise LogError(f"{path}: column {column!r} has no number (row {number}: {texts[number - 1]!r})")


def _scores(path: Path, rows: Iterable[Row], column: str, updates: int) -> dict[int, float]:
    """The accuracies of a column by step of ours."""
    measured = (row for row in rows if is_number(row.get(column)))
    scores = {math.ceil(row["step"] / updates): float(row[column]) for row in measured}
    for step, value in scores.items():
        if not 0 <= value <= 1:
            raise LogError(
                f"{path}: step {step}: {column} is {value:g}; expected an accuracy from 0 to 1"
            )
    return scores


COUNTED = {"step", "optimizer_step", "attempt", "time", "sweep", "run"}
"""Columns that identify a row of metrics; no measurement may have such a name."""
_SCORE = re.compile(r"eval[_/](?:.*rewards?/.+/mean|.*accuracy)|val-core/.+/mean@\d+")


def _timed(steps: list[Row]) -> list[Row]:
    """Rows of transformers, which counts optimizer steps and logs the mean duration of the steps
    since its last record."""
    timed = [row | {"optimizer_step": row["step"]} for row in steps]
    for last, row in itertools.pairwise([{"step": 0}, *timed]):
        if "seconds_step" in row:
            row["seconds_step"] *= row["step"] - last["step"]
    return timed


def rollouts(steps: list[Row], updates: int) -> list[Row]:
    """One step for each `updates` steps of the log: sums of times, last values of counters, means
    of everything else."""

    def merged(name: str, values: list[float]) -> float:
        if name == "optimizer_step":
            return max(values)
        if len(values) == 1:
            return values[0]
        add = math.fsum if all(map(math.isfinite, values)) else sum  # fsum refuses inf - inf
        total = add(values)
        return total if name == "seconds_step" else total / len(values)

    by_rollout: dict[int, dict[str, list[float]]] = {}
    for row in steps:
        columns = by_rollout.setdefault(math.ceil(row["step"] / updates), {})
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return [
        {**{name: merged(name, values) for name, values in columns.items()}, "step": step}
        for step, columns in by_rollout.items()
    ]


def _trl(text: str, path: Path) -> Iterable[Row]:
    """trainer_state.json, whose log_history has a record for each time the trainer logged."""
    state = _json(text, path)
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        expected = "expected a trainer_state.json of transformers or TRL"
        raise LogError(f"{path}: field log_history is missing; {expected}")
    return [
        of_one_set(row) for row in history if isinstance(row, dict) and is_step(row.get("step"))
    ]


def of_one_set(row: Row) -> Row:
    """An evaluation on one of several data sets (`eval_dataset={"easy": ...}`), with the set in the
    name of every value.

    transformers has it in its names, `eval_easy_runtime`; TRL's trainers log `eval_reward` for
    every set.
    """
    sets = [match[1] for name in row if (match := re.fullmatch(r"eval_(.+)_runtime", name))]
    if len(sets) != 1:
        return row
    prefix = f"eval_{sets[0]}_"
    return {
        re.sub(rf"^eval_(?!{re.escape(sets[0])}_)", prefix, name): value
        for name, value in row.items()
    }


_CONSOLE = re.compile(r"\bstep:(\d+) - (.+)$")
_PAIR = re.compile(r"(\S+):([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf))(?:\)|$)")
_WRAPPED = re.compile(r"np\.\w+\(")


def _verl(text: str, path: Path) -> Iterable[Row]:
    """Lines of verl's file logger, {"step", "data"}, or of its console, `step:3 - actor/lr:1e-06 -
    ...`."""
    # Not splitlines(), which ends a line at U+2028, too: JSON has it within texts.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    for number, line in enumerate(lines, 1):
        if line.startswith('{"'):  # a console also prints dictionaries, in Python's notation
            if number == len(lines) and not line.endswith("}"):
                continue  # verl was killed while writing this line
            row = _json(line, path, number)
            if isinstance(row.get("data"), dict) and is_step(row.get("step")):
                yield {**row["data"], "step": row["step"]}
            continue
        printed = _CONSOLE.search(line)
        if printed:
            yield {**_printed_numbers(printed[2]), "step": int(printed[1])}


def _printed_numbers(text: str) -> Row:
    """The numbers of `actor/lr:1e-06 - critic/score:np.float64(0.5)`."""
    numbers: Row = {}
    for part in text.split(" - "):
        pair = _PAIR.fullmatch(_WRAPPED.sub("", part))
        if pair:
            numbers[pair[1]] = float(pair[2])
    return numbers


def _table(text: str, path: Path) -> Iterable[Row]:
    """CSV with a header, JSON lines, or a JSON list; the step is the first of the columns _STEP
    that there is."""
    stripped = text.lstrip()
    if stripped.startswith("["):
        rows = _json(text, path)
    elif stripped.startswith("{"):
        rows = [_json(line, path, n) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    else:
        table = csv.DictReader(io.StringIO(text))
        header = list(table.fieldnames or ())
        twice = sorted({name for name in header if name and header.count(name) > 1})
        if twice:
            raise LogError(f"{path}: several columns have the same name: {', '.join(twice)}")
        rows = [{k: _value(v) for k, v in row.items() if k} for row in table]
    rows = [_of_one_run(row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]
    column = next(
        (name for name in _STEP if any(row.get(name) not in (None, "") for row in rows)), None
    )
    if rows and column is None:
        raise LogError(f"{path}: row 1: no step: it has none of the columns {', '.join(_STEP)}")
    for number, row in enumerate(rows, 1):
        step = row.pop(column, None)
        if step in (None, "") and not row.keys().isdisjoint(_STEP):
            continue  # logged to wandb beside the trainer's steps
        if isinstance(step, float) and step.is_integer():
            step = int(step)
        if not is_step(step):
            raise LogError(
                f"{path}: row {number}: {column} is {step!r}; expected a whole number from 0"
            )
        yield {**row, "step": step}


def _of_one_run(row: Row, where: str) -> Row:
    """Without the run's name, which the web page of wandb puts before each column: `my-run -
    train/reward`."""
    if not isinstance(row, dict):
        raise LogError(f"{where}: expected an object with a value for each column")
    short = {key.rpartition(" - ")[2]: value for key, value in row.items()}
    if len(short) < len(row):
        runs = ", ".join(
            dict.fromkeys(key.rpartition(" - ")[0] or key for key in row if key not in _STEP)
        )
        raise LogError(
            f"{where}: columns of several runs, {runs}; export each run to a file of its own"
        )
    return short


_STEP = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "_step",
    "Step",
    "iteration",
)
"""Columns of steps, the trainer's first: wandb counts the records that it is sent, evaluations
among them."""
_WANDB = {**{f"train/{name}": ours for name, ours in TRL.items()}, **VERL}
LOG_FORMATS: dict[str, tuple[Mapping[str, str], Callable[[str, Path], Iterable[Row]], str]] = {
    "trl": (TRL, _trl, "the trainer_state.json of a checkpoint, with numbers in its log_history"),
    "verl": (
        VERL,
        _verl,
        "lines of verl's file logger or console, such as `step:3 - actor/lr:1e-06`",
    ),
    "wandb": (_WANDB, _table, "an exported CSV, or the history as JSON"),
    "csv": ({}, _table, "a table with a column of steps"),
}
"""Format of a log -> the names known in it, its reader, and what such a log is."""


def _json(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise LogError(f"{path}: {f'line {line}: ' if line else ''}not JSON ({error})") from error


def _value(text: str | None) -> Any:
    try:
        number = float(text or "")
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _with_numbers(row: Row) -> Row:
    """A row in which numbers that are stored as text (`"0.5"`, `"NaN"`) are numbers."""
    return {name: _value(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def _is_logged(value: Any) -> bool:
    """Whether it is a measurement; NaN and infinities are, so that a diverged run shows as one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return _is_logged(value) and math.isfinite(value)
