"""Graded samples as logs of Inspect AI (inspect.aisi.org.uk), so that its viewer shows ours; and
its logs as ours."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inspect_ai import log, model, scorer

from rpg.config.errors import ConfigError
from rpg.config.task import MathVerifier
from rpg.evaluation.standalone import RECORD
from rpg.store.atomic_files import atomic_path, atomic_write_json, read_json_object
from rpg.store.ingest_files import by_hand
from rpg.store.layout import Layout
from rpg.store.locks import in_turn
from rpg.store.samples import metadata, read_samples, write_samples

ENGINE = "inspect"
SCORER = "rpg"
"""The name of our verdicts in a log."""


def export_logs(layout: Layout, target: Path, sweeps: Sequence[str]) -> Iterator[Path]:
    """Write a log, `<name>.eval`, for every file of graded samples: those of the sweeps, or of all
    evaluations by hand if none is named. Raises StoreError: a file cannot be read.
    """
    for name, samples in _files(layout, sweeps):
        path = target.absolute() / f"{name.replace('/', '--')}.eval"
        with atomic_path(path) as part:
            log.write_eval_log(_as_log(name, samples), str(part), format="eval")
        yield path


def _files(layout: Layout, sweeps: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """(model and benchmark, file)."""
    for sweep in sweeps:
        for folder in layout.run_folders(sweep):
            for benchmark in folder.benchmarks():
                for step in folder.eval_steps(benchmark):
                    path = folder.eval_path(benchmark, step)
                    yield f"{sweep}/{folder.name}/{path.stem}/{benchmark}", path
    if not sweeps:
        for file in by_hand(layout):
            yield f"{file['run']}/{file['benchmark']}", Path(file["filename"])


def _as_log(name: str, path: Path) -> log.EvalLog:
    rows = read_samples(path).to_pylist()
    model_name, _, benchmark = name.rpartition("/")
    problems = list(dict.fromkeys(row["problem_id"] for row in rows))
    epochs = max((row["sample"] for row in rows), default=0) + 1
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    evaluated = log.EvalSpec(
        created=written,
        task=benchmark,
        model=model_name,
        dataset=log.EvalDataset(name=benchmark, samples=len(problems), sample_ids=problems),
        config=log.EvalConfig(epochs=epochs),
        metadata=metadata(path),
    )
    samples = [_as_sample(model_name, row) for row in rows]
    return log.EvalLog(status="success", eval=evaluated, results=_results(rows), samples=samples)


def _results(rows: Sequence[dict[str, Any]]) -> log.EvalResults:
    right = sum(row["correct"] for row in rows)
    accuracy = log.EvalMetric(name="accuracy", value=right / max(len(rows), 1))
    score = log.EvalScore(name=SCORER, scorer=SCORER, metrics={"accuracy": accuracy})
    return log.EvalResults(total_samples=len(rows), completed_samples=len(rows), scores=[score])


def _as_sample(model_name: str, row: dict[str, Any]) -> log.EvalSample:
    reason = "max_tokens" if row["truncated"] else "stop"
    output = model.ModelOutput.from_content(model_name, row["response"], stop_reason=reason)
    output.usage = model.ModelUsage(output_tokens=row["tokens"])
    value = scorer.CORRECT if row["correct"] else scorer.INCORRECT
    verdict = scorer.Score(value=value, answer=row["extracted"], explanation=row["reason"])
    question = model.ChatMessageUser(content=row["problem"])
    return log.EvalSample(
        id=row["problem_id"],
        epoch=row["sample"] + 1,
        input=row["problem"],
        target=row["answer"],
        messages=[question, output.message],
        output=output,
        scores={SCORER: verdict},
        metadata={},
    )


def import_log(layout: Layout, file: Path) -> Path:
    """Store the samples of a log beside the evaluations by hand, in
    `evaluations/<model>/<task>.parquet`; returns that file.

    Verdicts are those of the log's first scorer: right is its `C`, or a value of 1. Raises
    ConfigError: it is not a log, has no samples or scores, epochs are missing, or another
    evaluation has its place.
    """
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; expected a log of Inspect AI (.eval or .json)")
    try:
        whole = log.read_eval_log(str(file))
    except Exception as error:  # noqa: BLE001 - whatever its readers raise, the file is not a log that they know
        why = (
            f"{file}: not a log of Inspect AI: "
            f"{(str(error) or type(error).__name__).splitlines()[0][:200]}"
        )
        raise ConfigError(why) from None
    samples = whole.samples or []
    rows = [_row(sample, file) for sample in samples]
    counts = Counter(row["problem_id"] for row in rows)
    if not rows or len(set(counts.values())) > 1:
        sizes = f"{min(counts.values())} to {max(counts.values())}" if rows else "no"
        raise ConfigError(
            f"{file}: {sizes} samples per problem; expected as many of each, one at least"
        )
    [k] = set(counts.values())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    folder = layout.evaluations / _as_name(whole.eval.model)
    benchmark = _as_name(whole.eval.task)
    path = folder / f"{benchmark}.parquet"
    judge = next(iter(samples[0].scores or ()))
    with in_turn(folder / ".lock"):
        record = read_json_object(folder / RECORD) if (folder / RECORD).exists() else {}
        if benchmark in record and record[benchmark].get("draws") != digest:
            why = (
                f"{path}: another evaluation of {whole.eval.model} on {benchmark} is there; "
                "move it away"
            )
            raise ConfigError(why)
        about = {"model": whole.eval.model, "engine": ENGINE, "draws": digest}
        write_samples(path, rows, f"{ENGINE}-{judge}", about)
        verifier = MathVerifier(fallback="boxed").model_dump(mode="json")
        identity = {"samples_per_problem": k, "verifier": verifier}
        record[benchmark] = {"identity": identity, "draws": digest, "source": str(file)}
        atomic_write_json(folder / RECORD, record)
    return path


def _as_name(text: str) -> str:
    """A name from a log as that of a file or folder, whatever it contains."""
    return re.sub(r"[^\w.-]+", "--", text).strip(".-") or "unnamed"


def _row(sample: log.EvalSample, file: Path) -> Mapping[str, Any]:
    if not sample.scores:
        why = f": {sample.error.message.splitlines()[0][:200]}" if sample.error else ""
        raise ConfigError(f"{file}: sample {sample.id!r}, epoch {sample.epoch}, has no score{why}")
    score = next(iter(sample.scores.values()))
    output = sample.output
    text = (
        sample.input if isinstance(sample.input, str) else "\n\n".join(m.text for m in sample.input)
    )
    target = sample.target if isinstance(sample.target, str) else sample.target[0]
    return {
        "problem_id": str(sample.id),
        "sample": sample.epoch - 1,
        "problem": text,
        "answer": target,
        "response": output.completion,
        "extracted": score.answer,
        "correct": score.value in ("C", 1, 1.0, True),
        "reason": (score.explanation or "").splitlines()[0][:200] if score.explanation else "",
        "tokens": output.usage.output_tokens if output.usage else 0,
        "truncated": output.stop_reason in ("max_tokens", "model_length"),
    }
