"""Tables that no harness wrote: a row per sample, with columns of usual names."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rpg.interop.compare.containers import EXPECTED, Record
from rpg.interop.compare.rows import Choice, CompareError, Read, Row, check_once, score_of

# The first of these columns that there is counts.
PROBLEM = ("problem", "problem_id", "question_id", "doc_id", "task_id", "id")
SCORE = ("score", "correct", "acc", "accuracy", "exact_match", "reward")
SAMPLE = ("sample", "sample_id", "epoch", "repeat")
BENCHMARK = ("benchmark", "task", "dataset")
CLUSTER = ("cluster",)
TRAINING = ("training", "seed")
MODEL = ("model",)


def table_of(path: Path, records: Sequence[Record], choice: Choice) -> Read:
    """A row per sample."""
    columns = list(dict.fromkeys(str(key) for record in records for key in record.values))
    problem = _first(columns, PROBLEM)
    scores = [name for name in SCORE if name in columns]
    if choice.metric and choice.metric in columns:
        scores = [choice.metric]
    if problem is None or not scores:
        listed = f"the columns {', '.join(columns)}" if columns else "no columns"
        raise CompareError(f"{path}: has {listed}; {EXPECTED}")
    chosen = choice.of(path, scores)
    # Where a column has names, each row must have one.
    name_of = _named(path, records, [problem], required=True)
    benchmark_of = _named(path, records, BENCHMARK)
    sample_of = _named(path, records, SAMPLE)
    training_of = _named(path, records, TRAINING)
    model_of = _named(path, records, MODEL)
    cluster = _first(columns, CLUSTER)
    read = []
    places = []
    for record in records:
        row = Row(
            problem=name_of(record),
            score=score_of(record.values.get(chosen), path, record.where),
            benchmark=benchmark_of(record),
            cluster=_name(record.values.get(cluster)) if cluster else "",
            training=training_of(record),
            model=model_of(record),
        )
        read.append(row)
        sample = sample_of(record)
        if sample:
            place = [f"problem {row.problem!r}", f"sample {sample}", row.benchmark, row.model]
            places.append(", ".join(part for part in [*place, row.training] if part))
    check_once(path, places)
    return Read("table", read, chosen, choice.note(chosen, scores))


def _first(columns: Iterable[str], names: Sequence[str]) -> str | None:
    present = set(columns)
    return next((name for name in names if name in present), None)


def _named(
    path: Path, records: Sequence[Record], columns: Sequence[str], required: bool = False
) -> Callable[[Record], str]:
    """Reads the first of these columns that there is; "" where there is none, or it is empty.
    Raises CompareError: some rows have a name in it, or it is required, and one has none."""
    present = {key for record in records for key in record.values}
    column = _first(present, columns)
    if column is None:
        return lambda _: ""
    names = [_name(record.values.get(column)) for record in records]
    if not any(names) and not required:
        return lambda _: ""
    for record, name in zip(records, names, strict=True):
        if not name:
            raise CompareError(f"{path}: {record.where} has no {column}; expected one in each row")
    return lambda record: _name(record.values.get(column))


def _name(value: Any) -> str:
    """A name in a cell; "" for none. Whole numbers may be written as 3 or 3.0."""
    if value is None or value != value:  # (NaN)
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
