"""A model on benchmarks by hand: any checkpoint or Hugging Face model, resumable, one engine for all benchmarks."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rpg.config.errors import ConfigError
from rpg.config.evaluation import EngineSpec, OnRay
from rpg.evaluation.benchmark_summary import Summary, summarise
from rpg.evaluation.engines.protocol import Engine, Sampling
from rpg.evaluation.engines.start import start_engine
from rpg.evaluation.graded_samples import Progress, evaluate_problems
from rpg.evaluation.partial_samples import Partial
from rpg.models.model_cache import pretrained_folder
from rpg.models.truncated_sampling import WHOLE, Restriction
from rpg.rewards.graders import rules_name
from rpg.rewards.scoring import Scorer
from rpg.store.atomic_files import atomic_write_json, read_json_object
from rpg.store.checkpoints import model_digest
from rpg.store.layout import home
from rpg.store.locks import only_one
from rpg.store.samples import graded_by, read_samples, write_samples
from rpg.tasks.benchmark_loading import LoadedBenchmark, check, load_benchmark
from rpg.tasks.benchmarks import Benchmark, benchmark
from rpg.tasks.leaks import Checks
from rpg.tasks.training_sets import load_training, training_set

RECORD = "evaluation.json"
_SAY_SECONDS = 10.0


@dataclass(frozen=True)
class Result:
    """One benchmark: its numbers, and the file with every graded sample."""

    benchmark: str
    summary: Summary
    samples: Path
    notes: list[str]
    checks: Checks
    rules: str | None
    """Those by which its samples were graded (rpg.rewards.graders); None where they come from before rules had names."""
    without_leaks: Summary | None
    """The same numbers over the problems that are not in the training data; None where none or all are."""


def evaluate(
    checkpoint: str | Path,
    benchmarks: Sequence[str | Path] = ("aime24", "aime25", "amc23"),
    *,
    engine: str | dict | EngineSpec = "local",
    place: dict | OnRay | None = None,
    out: Path | None = None,
    data: Path | None = None,
    training: str | None = None,
    samples_per_problem: int | None = None,
    limit: int | None = None,
    temperature: float = 1.0,
    restriction: Restriction = WHOLE,
    max_prompt_tokens: int = 2048,
    max_response_tokens: int = 2048,
    seed: int = 0,
    device: str = "cpu",
    bfloat16: bool = False,
    revision: str | None = None,
    grading_workers: int = 1,
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Evaluate a model; the same call again does only what is missing, also after a kill.

    Args:
        checkpoint: a Hugging Face model folder or hub id.
        benchmarks: names (`rpg.tasks.benchmarks.benchmarks()`) or paths of YAML files.
        engine: `local`, `huggingface`, `vllm`, or a mapping with the `type` and its settings.
        place: where on a Ray cluster, e.g. `{"address": "auto", "workers": 8, "gpus": 1}`; None is this process.
        out: folder of the results (default: `<home>/evaluations/<name of the checkpoint>`); it receives
            `<benchmark>.parquet` with every graded sample and `evaluation.json`.
        data: folder of local copies of the benchmarks (default: $RPG_DATA, then the hub).
        training: what the model was trained on (a JSON-lines, Parquet or YAML file, as `task.train` of a run): problems
            of the benchmarks that are in it, word for word or nearly so, are named, and counted separately.
        samples_per_problem: k (default: each benchmark's own). Temperature 0 is greedy and takes one sample.
        restriction: which tokens can be drawn, and texts that end a response.
        limit: the first so many problems of each benchmark only, to try things out.

    Raises:
        ConfigError, DataError, ModelError, EngineError, GradingError, StoreError: each with one readable line. Of
            two calls at once into one folder the second gets Busy, a StoreError.
    """
    checkpoint = pretrained_folder(str(checkpoint), home(), say)
    spec, where = _section(EngineSpec, engine, "engine"), _place(place)
    sets = [_first(load_benchmark(one, folder=data), limit) for one in _chosen(benchmarks)]
    train = None if training is None else load_training(training_set(training), data)
    known = (train.problems, train.source) if train else ()
    folder = Path(out) if out is not None else default_folder(checkpoint, home())
    sampling = Sampling(temperature, max_prompt_tokens, max_response_tokens, restriction)
    common = {
        "model": _identity(checkpoint, revision),
        "engine": spec.model_dump(mode="json"),
        "sampling": sampling.record(),
        "seed": seed,
        "device": device,
        "bfloat16": bfloat16,
    }
    results = []
    with (
        only_one(folder / ".lock", f"{folder}: an evaluation is going on here already,"),
        _Engine(
            lambda: start_engine(spec, sampling, device, bfloat16, where, say), checkpoint, revision
        ) as running,
    ):
        record = _read_record(folder)
        for loaded in sets:
            name, own = loaded.benchmark.name, loaded.benchmark
            k = 1 if temperature == 0 else samples_per_problem or own.samples_per_problem
            identity = {**common, "samples_per_problem": k, **_set_identity(loaded)}
            if limit is not None:
                identity["limit"] = limit
            path = folder / f"{name}.parquet"
            partial_path = folder / f"{name}.partial.jsonl"
            done = record.get(name, {}).get("identity") == identity and path.exists()
            if done:
                rows = read_samples(path).to_pylist()
                say(f"{name}: done before")
            else:
                with Scorer(own.verifier, workers=grading_workers) as scorer:
                    rows = evaluate_problems(
                        running.loaded(),
                        loaded.problems,
                        samples_per_problem=k,
                        seed=seed,
                        scorer=scorer,
                        partial=Partial(partial_path, json.dumps(identity, sort_keys=True)),
                        progress=_now_and_then(name, say),
                    )
                write_samples(path, rows, rules_name(own.verifier))
            result = _result(loaded, rows, path, check(loaded, *known))
            again = {"regraded": record[name]["regraded"]} if done and "regraded" in record[name] else {}
            record[name] = {"identity": identity, "source": loaded.source, **_as_json(result), **again}
            atomic_write_json(folder / RECORD, record)
            partial_path.unlink(missing_ok=True)
            results.append(result)
    return results


class _Engine:
    """Starts its engine when it is first needed, and closes it at the end."""

    def __init__(self, start: Callable[[], Engine], model: str | Path, revision: str | None):
        self._start, self._model, self._revision = start, model, revision
        self._engine: Engine | None = None

    def loaded(self) -> Engine:
        if self._engine is None:
            self._engine = self._start()
            self._engine.load(self._model, self._revision)
        return self._engine

    def __enter__(self) -> _Engine:
        return self

    def __exit__(self, *_exc) -> None:
        if self._engine is not None:
            self._engine.close()


def _first(loaded: LoadedBenchmark, limit: int | None) -> LoadedBenchmark:
    """With its first `limit` problems only; the digest stays that of the whole benchmark."""
    return loaded if limit is None else replace(loaded, problems=loaded.problems[:limit])


def _chosen(names: Sequence[str | Path]) -> list[Benchmark]:
    found = [benchmark(name) for name in names]
    doubled = [name for name, count in Counter(one.name for one in found).items() if count > 1]
    if not found or doubled:
        what = f"{doubled[0]!r} is named twice" if doubled else "none is named"
        raise ConfigError(f"benchmarks: {what}; expected names such as aime24, each once")
    return found


def _section(kind: Any, value: Any, field: str) -> Any:
    """A part of a configuration given as a mapping, or by its `type` alone."""
    value = {"type": value} if isinstance(value, str) else value
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "union_tag_invalid":
            known = first["ctx"]["expected_tags"].replace("'", "")
            raise ConfigError(f"{field}: {first['ctx']['tag']!r} is not known; known: {known}") from None
        where = ".".join([field, *(str(part) for part in first["loc"] if part not in ("local", "ray"))])
        raise ConfigError(f"{where}: {first['msg']} (got {first['input']!r})") from None


def _place(place: dict | OnRay | None) -> OnRay | None:
    if isinstance(place, dict):
        place = {"type": "ray", **place}
    return None if place is None else _section(OnRay, place, "place")


def _read_record(folder: Path) -> dict[str, Any]:
    return read_json_object(folder / RECORD) if (folder / RECORD).exists() else {}


def _result(loaded: LoadedBenchmark, rows: list[dict[str, Any]], path: Path, checks: Checks) -> Result:
    leaked = {leak.problem for leak in checks.leaks}
    clean = [row for row in rows if row["problem_id"] not in leaked]
    without = summarise(clean) if leaked and clean else None
    return Result(
        loaded.benchmark.name, summarise(rows), path, loaded.notes, checks, graded_by(path), without
    )


def _as_json(result: Result) -> dict[str, Any]:
    without = result.without_leaks
    return {
        "rules": result.rules,
        "notes": result.notes,
        "summary": result.summary.as_json(),
        "checks": asdict(result.checks),
        "summary_without_leaks": None if without is None else without.as_json(),
    }


def _set_identity(loaded: LoadedBenchmark) -> dict:
    own = loaded.benchmark
    return {
        "problems": loaded.digest,
        "prompt": own.prompt.model_dump(mode="json"),
        # Without the default of a field that is younger than records: these stay what they are.
        "verifier": {
            k: v for k, v in own.verifier.model_dump(mode="json").items() if (k, v) != ("rules", "default")
        },
    }


def _identity(checkpoint: str | Path, revision: str | None) -> str:
    """What tells this model from another: its recorded digest, else its files' names, sizes and times."""
    folder = Path(checkpoint).expanduser()
    if not folder.is_dir():
        return f"{checkpoint}@{revision or 'newest'}"
    if (folder / "checkpoint.json").is_file():
        return model_digest(folder)
    files = [
        (p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.iterdir()) if p.is_file()
    ]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def default_folder(checkpoint: str | Path, home: Path) -> Path:
    """Where the results of a model go when nothing else is said."""
    return home / "evaluations" / (str(checkpoint).strip("/").replace("/", "--") or "model")


def _now_and_then(name: str, say: Callable[[str], None]) -> Callable[[Progress], None]:
    last = 0.0

    def progress(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > _SAY_SECONDS or now.done == now.total:
            last = time.monotonic()
            say(f"{name}: {now}")

    return progress
