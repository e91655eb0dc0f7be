"""Readers, one per format. A file is recognised by what is in it, never by its name alone."""

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

from rpg.interop.compare.rows import Choice, CompareError, Read, Row, digest, score_of

EXPECTED = (
    "expected samples of lm-eval (--log_samples), a log of Inspect (.eval or .json), details of "
    "lighteval (.parquet), a validation dump of verl (.jsonl), samples of ours (.parquet), or CSV "
    "or JSON lines with the columns problem and score"
)

# Names of the columns of tables that no harness wrote.
PROBLEM = ("problem", "problem_id", "question_id", "doc_id", "task_id", "id")
SCORE = ("score", "correct", "acc", "accuracy", "exact_match", "reward")
BENCHMARK = ("benchmark", "task", "dataset")
CLUSTER = ("cluster",)
TRAINING = ("training", "seed")
MODEL = ("model",)


def read_file(path: Path, choice: Choice) -> Read:
    """The graded samples of a file. Raises CompareError: it is of no known format."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if start.startswith(b"PK"):
            return _inspect_archive(path, choice)
        if start == b"PAR1":
            return _parquet(path, choice)
        return _text(path, path.read_text("utf-8-sig"), choice)
    except OSError as error:
        raise CompareError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CompareError(f"{path}: neither text nor Parquet; {EXPECTED}") from None


def _text(path: Path, text: str, choice: Choice) -> Read:
    if text.lstrip()[:1] not in ("{", "["):
        return _csv(path, text, choice)
    try:
        return _json(path, json.loads(text), choice)
    except json.JSONDecodeError:
        return _json_lines(path, text, choice)


def _json(path: Path, whole: Any, choice: Choice) -> Read:
    if isinstance(whole, list) and whole and all(isinstance(row, dict) for row in whole):
        return _rows(path, whole, choice)
    if isinstance(whole, dict) and "eval" in whole and "status" in whole:
        return _inspect(path, whole["eval"], whole.get("samples") or [], choice)
    if isinstance(whole, dict) and "results" in whole and "configs" in whole:
        raise CompareError(
            f"{path}: a summary of lm-eval, which has no samples; run it with --log_samples and "
            "give its samples_*.jsonl"
        )
    if isinstance(whole, dict) and "config_general" in whole:
        raise CompareError(
            f"{path}: a summary of lighteval, which has no samples; run it with --save-details "
            "and give its details_*.parquet"
        )
    if isinstance(whole, dict):  # a file with one line
        return _rows(path, [whole], choice)
    raise CompareError(f"{path}: JSON with {_looks(whole)}; {EXPECTED}")


def _looks(whole: Any) -> str:
    return f"a list of {len(whole)}" if isinstance(whole, list) else type(whole).__name__


def _json_lines(path: Path, text: str, choice: Choice) -> Read:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CompareError(f"{path}: line {number} is no JSON: {error.msg}") from None
        if not isinstance(row, dict):
            raise CompareError(f"{path}: line {number} is no object; {EXPECTED}")
        rows.append(row)
    return _rows(path, rows, choice)


def _rows(path: Path, rows: Sequence[Mapping[str, Any]], choice: Choice) -> Read:
    """Objects of some harness, by the keys of the first."""
    keys = set(rows[0])
    if {"doc_id", "doc", "resps"} <= keys:
        return _lm_eval(path, rows, choice)
    if {"input", "output", "score", "step"} <= keys:
        return _verl(path, rows, choice)
    return _table(path, rows, choice)


def _lm_eval(path: Path, rows: Sequence[Mapping[str, Any]], choice: Choice) -> Read:
    """lm-evaluation-harness: one line per document and filter, its metrics among its keys."""
    names = _lm_eval_metrics(rows)
    if not names:
        raise CompareError(f"{path}: samples of lm-eval without a metric between 0 and 1")
    chosen = choice.of(path, names)
    metric, _, wanted = chosen.partition(",")
    read = []
    for row in rows:
        if str(row.get("filter", "none")) != wanted or metric not in row:
            continue
        where = f"document {row['doc_id']}"
        text = str(row.get("doc_hash") or digest(row["doc"]))
        score = score_of(row[metric], path, where)
        read.append(Row(str(row["doc_id"]), score, _lm_eval_task(path), text))
    return Read("lm-eval", read, choice.note(chosen, names))


def _lm_eval_metrics(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """`exact_match,strict-match`, as lm-eval's own results name a metric and its filter."""
    names: dict[str, None] = {}
    for row in rows:
        listed = row.get("metrics") or [key for key in row if key != "doc_id"]
        for key in listed:
            value = row.get(key)
            if isinstance(value, bool | int | float) and 0 <= value <= 1:
                names.setdefault(f"{key},{row.get('filter', 'none')}")
    return list(names)


def _lm_eval_task(path: Path) -> str:
    """`samples_gsm8k_2026-01-02T03-04-05.678.jsonl` is of gsm8k."""
    match = re.fullmatch(r"samples_(.+)_\d{4}-\d\d-\d\dT[\d.:-]+", path.stem)
    return match[1] if match else path.stem.removeprefix("samples_")


def _verl(path: Path, rows: Sequence[Mapping[str, Any]], choice: Choice) -> Read:
    """verl's validation dump: one line per sample. It names no problems, so their prompts do."""
    fixed = ("input", "output", "gts", "step")
    names = [key for key in rows[0] if key not in fixed and _is_share(rows[0][key])]
    names.sort(key=lambda name: name != "acc")  # a score may be a reward of -1 and 1
    if not names:
        raise CompareError(f"{path}: a dump of verl without a score between 0 and 1")
    chosen = choice.of(path, names)
    read = []
    for number, row in enumerate(rows, 1):
        problem = digest((row["input"], row.get("gts")))
        benchmark = str(row.get("data_source") or "")
        score = score_of(row[chosen], path, f"line {number}")
        read.append(Row(problem, score, benchmark, problem))
    return Read("verl", read, choice.note(chosen, names))


def _is_share(value: Any) -> bool:
    return isinstance(value, bool | int | float) and 0 <= value <= 1


def _inspect_archive(path: Path, choice: Choice) -> Read:
    """Inspect's `.eval`: a zip with a header and a file for each sample."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            header_name = "header.json" if "header.json" in names else "_journal/start.json"
            if header_name not in names:
                raise CompareError(f"{path}: a zip file that is no log of Inspect; {EXPECTED}")
            header = json.loads(_entry(archive, header_name))
            parts = [name for name in names if re.fullmatch(r"samples/.+\.json", name)]
            samples = [json.loads(_entry(archive, name)) for name in parts]
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise CompareError(f"{path}: a log of Inspect that cannot be read: {error}") from None
    return _inspect(path, header["eval"], samples, choice)


ZSTANDARD = 93
"""The number of this compression in zip files, which Python's reader lacks before 3.14."""


def _entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file of the archive. Raises ValueError: its compression is not known."""
    about = archive.getinfo(name)
    if about.compress_type != ZSTANDARD:
        try:
            return archive.read(name)
        except NotImplementedError as error:
            raise ValueError(str(error)) from None
    # The entry begins with 30 bytes, a name and an extra field, whose lengths are in those bytes.
    assert archive.fp is not None
    archive.fp.seek(about.header_offset)
    start = archive.fp.read(30)
    archive.fp.seek(int.from_bytes(start[26:28], "little"), 1)
    archive.fp.seek(int.from_bytes(start[28:30], "little"), 1)
    packed = archive.fp.read(about.compress_size)
    return bytes(pyarrow.decompress(packed, about.file_size, codec="zstd", asbytes=True))


def _inspect(
    path: Path, about: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], choice: Choice
) -> Read:
    scored = [sample for sample in samples if sample.get("scores")]
    if not scored:
        raise CompareError(f"{path}: a log of Inspect without scored samples")
    names = _inspect_metrics(scored[0]["scores"])
    chosen = choice.of(path, names)
    task = str(about.get("task") or "").rpartition("/")[2]
    read = []
    for sample in scored:
        where = f"sample {sample['id']!r}, epoch {sample['epoch']}"
        score = score_of(_inspect_value(sample["scores"], chosen), path, where)
        text = digest(sample.get("input"))
        read.append(Row(str(sample["id"]), score, task, text))
    notes = choice.note(chosen, names)
    if len(scored) < len(samples):
        without = len(samples) - len(scored)
        notes.append(f"{path.name}: {without} of {len(samples)} samples have no score: left out")
    return Read("Inspect", read, notes)


def _inspect_metrics(scores: Mapping[str, Any]) -> list[str]:
    """`scorer`, or `scorer/key` where its value is a mapping."""
    names = []
    for scorer, score in scores.items():
        value = score.get("value")
        if isinstance(value, Mapping):
            names += [f"{scorer}/{key}" for key in value]
        else:
            names.append(scorer)
    return names


def _inspect_value(scores: Mapping[str, Any], metric: str) -> Any:
    if metric in scores:
        return scores[metric].get("value")
    scorer, _, key = metric.rpartition("/")
    value = scores.get(scorer, {}).get("value")
    return value.get(key) if isinstance(value, Mapping) else None


def _parquet(path: Path, choice: Choice) -> Read:
    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = set(file.schema_arrow.names)
        if {"problem_id", "sample", "correct", "extracted"} <= columns:
            return _ours(path, file)
        for kind in LIGHTEVAL:
            if {kind.metrics, kind.told_by} <= columns:
                names = [name for name in file.schema_arrow.names if name in kind.columns]
                return _lighteval(path, file.read(names).to_pylist(), kind.metrics, choice)
        return _table(path, file.read().to_pylist(), choice)
    except pyarrow.ArrowException as error:
        raise CompareError(f"{path}: Parquet that cannot be read: {error}") from None


def _ours(path: Path, file: Any) -> Read:
    """Graded samples of this project."""
    wanted = ["problem_id", "problem", "correct", "cluster"]
    names = [name for name in wanted if name in file.schema_arrow.names]
    benchmark = path.parent.name if path.stem.startswith("step-") else path.stem
    read = []
    for row in file.read(names).to_pylist():
        text = digest(row["problem"])
        cluster = str(row.get("cluster") or "")
        read.append(Row(row["problem_id"], float(row["correct"]), benchmark, text, cluster))
    return Read("rpg", read)


class _Lighteval:
    """The columns of lighteval's details: since 0.11, and before."""

    def __init__(self, metrics: str, told_by: str, *others: str) -> None:
        self.metrics = metrics
        self.told_by = told_by
        self.columns = (metrics, told_by, *others)


LIGHTEVAL = (
    _Lighteval("metric", "doc"),
    _Lighteval("metrics", "full_prompt", "example", "specifics"),
)


def _lighteval(path: Path, rows: Sequence[Mapping[str, Any]], metrics: str, choice: Choice) -> Read:
    """lighteval: a row per document; a metric of samples is already a mean of them."""
    shares = [name for name, value in rows[0][metrics].items() if _is_share(value)]
    if not shares:
        raise CompareError(f"{path}: details of lighteval without a metric between 0 and 1")
    chosen = choice.of(path, shares)
    task = re.sub(r"^details_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    read = []
    for number, row in enumerate(rows):
        query = row["doc"].get("query") if "doc" in row else row.get("example")
        score = score_of(row[metrics][chosen], path, f"row {number}")
        read.append(Row(digest(query), score, task.replace("|", " "), digest(query)))
    return Read("lighteval", read, choice.note(chosen, shares))


def _csv(path: Path, text: str, choice: Choice) -> Read:
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    if first.count(separator) == 0:
        raise CompareError(f"{path}: begins with {first[:60]!r}; {EXPECTED}")
    rows = list(csv.DictReader(io.StringIO(text), delimiter=separator))
    if not rows:
        raise CompareError(f"{path}: a table without rows")
    return _table(path, rows, choice)


def _table(path: Path, rows: Sequence[Mapping[str, Any]], choice: Choice) -> Read:
    """A table that no harness wrote: a row per sample."""
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    problem = _first(columns, PROBLEM)
    scores = [name for name in SCORE if name in columns]
    if choice.metric and choice.metric in columns:
        scores = [choice.metric]
    if problem is None or not scores:
        raise CompareError(f"{path}: has the columns {', '.join(columns)}; {EXPECTED}")
    chosen = choice.of(path, scores)
    more = {
        name: _reader(columns, names)
        for name, names in [
            ("benchmark", BENCHMARK),
            ("cluster", CLUSTER),
            ("training", TRAINING),
            ("model", MODEL),
        ]
    }
    read = []
    for number, row in enumerate(rows, 1):
        score = score_of(row.get(chosen), path, f"row {number}")
        others = {name: value(row) for name, value in more.items()}
        read.append(Row(str(row.get(problem)), score, **others))
    return Read("table", read, choice.note(chosen, scores))


def _first(columns: Iterable[str], names: Sequence[str]) -> str | None:
    present = set(columns)
    return next((name for name in names if name in present), None)


def _reader(columns: Iterable[str], names: Sequence[str]) -> Callable[[Mapping[str, Any]], str]:
    column = _first(columns, names)

    def value(row: Mapping[str, Any]) -> str:
        cell = row.get(column) if column else None
        return "" if cell is None else str(cell)

    return value
