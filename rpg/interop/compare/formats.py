"""Readers, one per format. A file is recognised by what is in it, never by its name alone."""

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow

from rpg.errors import plural
from rpg.interop.compare.containers import EXPECTED, Parquet, Record, content_of, entry_of
from rpg.interop.compare.rows import (
    Choice,
    CompareError,
    Read,
    Row,
    check_once,
    digest,
    score_of,
    shown,
)
from rpg.interop.compare.tables import table_of

LM_EVAL = frozenset({"doc_id", "doc", "resps"})
VERL = frozenset({"input", "output", "score", "step"})
OURS = frozenset({"problem_id", "sample", "correct", "extracted"})


def read_file(path: Path, choice: Choice) -> Read:
    """The graded samples of a file. Raises CompareError: it is of no known format, has no samples,
    or has one that is not understood."""
    content = content_of(path)
    if isinstance(content, zipfile.ZipFile):
        read = _inspect_archive(path, content, choice)
    elif isinstance(content, Parquet):
        read = _parquet(path, content, choice)
    elif isinstance(content, list):
        read = _records(path, content, choice)
    else:
        read = _document(path, content, choice)
    if not read.rows:
        raise CompareError(f"{path}: has no samples; {EXPECTED}")
    return read


def bare_name(path: Path) -> str:
    """A file's name without its suffix and that of its compression."""
    name = path.name.removesuffix(".gz")
    return name.removesuffix(Path(name).suffix)


def _document(path: Path, whole: Mapping[str, Any], choice: Choice) -> Read:
    if "eval" in whole and "status" in whole:
        samples = whole.get("samples") or []
        return _inspect(path, whole, samples, choice)
    if "results" in whole and "configs" in whole:
        raise CompareError(
            f"{path}: a summary of lm-eval, which has no samples; run it with --log_samples and "
            "give its samples_*.jsonl"
        )
    if "config_general" in whole:
        raise CompareError(
            f"{path}: a summary of lighteval, which has no samples; run it with --save-details "
            "and give its details_*.parquet"
        )
    return _records(path, [Record("line 1", whole)], choice)  # a file with one line


def _records(path: Path, records: Sequence[Record], choice: Choice) -> Read:
    """Objects of some harness, by the keys of the first; the others must be of the same."""
    if not records:
        raise CompareError(f"{path}: has no samples; {EXPECTED}")
    keys = set(records[0].values)
    if keys >= LM_EVAL:
        _check_keys(path, records, LM_EVAL, "samples of lm-eval")
        return _lm_eval(path, records, choice)
    if keys >= VERL:
        _check_keys(path, records, VERL, "dumps of verl")
        return _verl(path, records, choice)
    return table_of(path, records, choice)


def _check_keys(path: Path, records: Iterable[Record], keys: frozenset[str], what: str) -> None:
    """Raises CompareError: an object lacks what its kind has."""
    for record in records:
        lacking = sorted(keys - set(record.values))
        if lacking:
            raise CompareError(
                f"{path}: {record.where} has no {lacking[0]!r}, which all lines of {what} have"
            )


def _has_share(records: Iterable[Mapping[str, Any]], name: str) -> bool:
    return any(_is_share(record.get(name)) for record in records)


def _is_share(value: Any) -> bool:
    return isinstance(value, bool | int | float) and 0 <= value <= 1


# --- lm-evaluation-harness
# ----------------------------------------------------------------------------------------------


def _lm_eval(path: Path, records: Sequence[Record], choice: Choice) -> Read:
    """One line per document and filter, its metrics among its keys."""
    names = _lm_eval_metrics(records)
    if not names:
        raise CompareError(f"{path}: samples of lm-eval without a metric between 0 and 1")
    chosen = choice.of(path, names)
    metric, _, wanted = chosen.partition(",")
    documents = []
    read = []
    without = 0
    for record in records:
        row = record.values
        if str(row.get("filter", "none")) != wanted:
            continue
        where = f"document {row['doc_id']}"
        documents.append(where)
        if metric not in row:
            without += 1
            continue
        text = str(row.get("doc_hash") or digest(row["doc"]))
        score = score_of(row[metric], path, where)
        read.append(Row(str(row["doc_id"]), score, _lm_eval_task(path), text))
    check_once(path, documents)
    notes = choice.note(chosen, names)
    if without:
        notes.append(f"{path.name}: {plural(without, 'document')} without {metric}: left out")
    return Read("lm-eval", read, chosen, notes)


def _lm_eval_metrics(records: Iterable[Record]) -> list[str]:
    """`exact_match,strict-match`, as lm-eval's own results name a metric and its filter."""
    names: dict[str, None] = {}
    for record in records:
        row = record.values
        listed = row.get("metrics")
        for key in listed if isinstance(listed, list) else [key for key in row if key != "doc_id"]:
            if _is_share(row.get(key)):
                names.setdefault(f"{key},{row.get('filter', 'none')}")
    return list(names)


def _lm_eval_task(path: Path) -> str:
    """`samples_gsm8k_2026-01-02T03-04-05.678.jsonl` is of gsm8k."""
    name = bare_name(path)
    match = re.fullmatch(r"samples_(.+)_\d{4}-\d\d-\d\dT[\d.:-]+", name)
    return match[1] if match else name.removeprefix("samples_")


# --- verl
# ----------------------------------------------------------------------------------------------


def _verl(path: Path, records: Sequence[Record], choice: Choice) -> Read:
    """verl's validation dump: one line per sample. It names no problems, so their prompts do."""
    steps = sorted({str(record.values["step"]) for record in records})
    if len(steps) > 1:
        raise CompareError(
            f"{path}: has samples of the steps {', '.join(steps[:4])}, which are of different "
            "policies; expected one step"
        )
    fixed = ("input", "output", "gts", "step")
    keys = dict.fromkeys(key for record in records for key in record.values if key not in fixed)
    names = [name for name in keys if _has_share((record.values for record in records), name)]
    names.sort(key=lambda name: name != "acc")  # a score may be a reward of -1 and 1
    if not names:
        raise CompareError(f"{path}: a dump of verl without a score between 0 and 1")
    chosen = choice.of(path, names)
    read = []
    for record in records:
        row = record.values
        problem = digest((row["input"], row.get("gts")))
        benchmark = str(row.get("data_source") or "")
        read.append(Row(problem, score_of(row.get(chosen), path, record.where), benchmark, problem))
    return Read("verl", read, chosen, choice.note(chosen, names))


# --- Inspect
# ----------------------------------------------------------------------------------------------


def _inspect_archive(path: Path, archive: zipfile.ZipFile, choice: Choice) -> Read:
    """Inspect's `.eval`: a zip with a header and a file for each sample."""
    names = archive.namelist()
    header_name = "header.json" if "header.json" in names else "_journal/start.json"
    if header_name not in names:
        raise CompareError(f"{path}: a zip file that is no log of Inspect; {EXPECTED}")
    try:
        header = entry_of(archive, header_name)
        parts = [name for name in names if re.fullmatch(r"samples/.+\.json", name)]
        samples = [entry_of(archive, name) for name in parts]
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise CompareError(f"{path}: a log of Inspect that cannot be read: {error}") from None
    return _inspect(path, header, samples, choice)


def _inspect(path: Path, log: Any, samples: Sequence[Any], choice: Choice) -> Read:
    _check_inspect(path, log, samples)
    scored = [sample for sample in samples if sample.get("scores")]
    if not scored:
        raise CompareError(f"{path}: a log of Inspect without scored samples")
    names = _inspect_metrics(scored)
    chosen = choice.of(path, names)
    task = str(log["eval"].get("task") or "").rpartition("/")[2]
    read = []
    places = []
    for sample in scored:
        where = f"sample {sample['id']!r}, epoch {sample.get('epoch', 1)}"
        places.append(where)
        score = score_of(_inspect_value(sample["scores"], chosen), path, where)
        read.append(Row(str(sample["id"]), score, task, digest(sample.get("input"))))
    check_once(path, places)
    notes = choice.note(chosen, names)
    status = log.get("status", "started")
    if status != "success":
        notes.append(f"{path.name}: its evaluation has the status {status}: it did not end well")
    if len(scored) < len(samples):
        without = len(samples) - len(scored)
        notes.append(f"{path.name}: {without} of {len(samples)} samples have no score: left out")
    return Read("Inspect", read, chosen, notes)


def _check_inspect(path: Path, log: Any, samples: Sequence[Any]) -> None:
    """Raises CompareError: a log lacks what all logs have."""
    if not isinstance(log, dict) or not isinstance(log.get("eval"), dict):
        raise CompareError(f"{path}: a log of Inspect without the section eval")
    for number, sample in enumerate(samples, 1):
        if not isinstance(sample, dict) or "id" not in sample:
            raise CompareError(f"{path}: sample {number} of a log of Inspect has no id")
        scores = sample.get("scores") or {}
        if not isinstance(scores, dict) or not all(
            isinstance(each, dict) for each in scores.values()
        ):
            raise CompareError(
                f"{path}: sample {sample['id']!r} has the scores {shown(scores)}; expected a "
                "mapping from scorer to score"
            )


def _inspect_metrics(samples: Iterable[Mapping[str, Any]]) -> list[str]:
    """`scorer`, or `scorer/key` where its value is a mapping; of all samples."""
    names: dict[str, None] = {}
    for sample in samples:
        for scorer, score in sample["scores"].items():
            value = score.get("value")
            keys = value if isinstance(value, Mapping) else None
            for name in [scorer] if keys is None else [f"{scorer}/{key}" for key in keys]:
                names.setdefault(name)
    return list(names)


def _inspect_value(scores: Mapping[str, Any], metric: str) -> Any:
    if metric in scores:
        return scores[metric].get("value")
    scorer, _, key = metric.rpartition("/")
    value = scores.get(scorer, {}).get("value")
    return value.get(key) if isinstance(value, Mapping) else None


# --- Parquet: ours, lighteval, any table
# ----------------------------------------------------------------------------------------------


def _parquet(path: Path, file: Parquet, choice: Choice) -> Read:
    columns = file.columns
    try:
        if set(columns) >= OURS:
            return _ours(path, file)
        for kind in LIGHTEVAL:
            if {kind.metrics, kind.told_by} <= set(columns):
                names = [name for name in columns if name in kind.columns]
                return _lighteval(path, file.rows(names), kind.metrics, choice)
        return table_of(path, file.rows(), choice)
    except pyarrow.ArrowException as error:
        raise CompareError(f"{path}: Parquet that cannot be read: {error}") from None
    except OSError as error:
        raise CompareError(f"{path}: Parquet that is damaged: {error}") from None


def _ours(path: Path, file: Parquet) -> Read:
    """Graded samples of this project."""
    wanted = ["problem_id", "sample", "problem", "correct", "cluster"]
    names = [name for name in wanted if name in file.columns]
    benchmark = path.parent.name if path.stem.startswith("step-") else bare_name(path)
    read = []
    places = []
    for record in file.rows(names):
        row = record.values
        places.append(f"problem {row['problem_id']!r}, sample {row['sample']}")
        score = score_of(row["correct"], path, record.where)
        text = digest(row["problem"]) if row.get("problem") else ""
        read.append(
            Row(str(row["problem_id"]), score, benchmark, text, str(row.get("cluster") or ""))
        )
    check_once(path, places)
    return Read("rpg", read, "correct")


@dataclass(frozen=True)
class _Lighteval:
    """The columns of lighteval's details: since 0.11, and before."""

    metrics: str
    told_by: str
    columns: tuple[str, ...]


LIGHTEVAL = (
    _Lighteval("metric", "doc", ("metric", "doc")),
    _Lighteval("metrics", "full_prompt", ("metrics", "full_prompt", "example", "specifics")),
)


def _lighteval(path: Path, records: Sequence[Record], metrics: str, choice: Choice) -> Read:
    """A row per document; a metric of samples is already a mean of them."""
    measured = [record.values[metrics] or {} for record in records]
    keys = dict.fromkeys(name for metric in measured for name in metric)
    shares = [name for name in keys if _has_share(measured, name)]
    if not shares:
        raise CompareError(f"{path}: details of lighteval without a metric between 0 and 1")
    chosen = choice.of(path, shares)
    task = re.sub(r"^details_|_\d{4}-\d\d-\d\dT.*$", "", bare_name(path))
    read = []
    for record, metric in zip(records, measured, strict=True):
        query = _lighteval_query(path, record)
        score = score_of(metric.get(chosen), path, record.where)
        read.append(Row(digest(query), score, task.replace("|", " "), digest(query)))
    return Read("lighteval", read, chosen, choice.note(chosen, shares))


def _lighteval_query(path: Path, record: Record) -> Any:
    """The document's question. Raises CompareError: it has none, and so no name."""
    document = record.values.get("doc") or {}
    query = document.get("query") or record.values.get("example")
    query = query or record.values.get("full_prompt")
    if not query:
        raise CompareError(f"{path}: {record.where} has no question, by which problems are paired")
    return query
