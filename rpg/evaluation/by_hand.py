"""A model on benchmarks by hand: any checkpoint or Hugging Face model, resumable, one engine for all benchmarks."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rpg.benchmarks import LoadedBenchmark, benchmark, load_benchmark
from rpg.config.errors import ConfigError
from rpg.config.spec import EngineSpec
from rpg.evaluation.engines import Sampling, start_engine
from rpg.evaluation.partial import Partial
from rpg.evaluation.samples import Progress, evaluate_problems
from rpg.evaluation.summary import Summary, summarise
from rpg.grading import grader_for
from rpg.store.checkpoints import model_digest
from rpg.store.files import atomic_write_json, read_json_object
from rpg.store.layout import home
from rpg.store.run import read_samples, write_samples

_SAY_SECONDS = 10.0


@dataclass(frozen=True)
class Result:
    """One benchmark: its numbers, and the file with every graded sample."""

    benchmark: str
    summary: Summary
    samples: Path
    notes: list[str]


def evaluate(
    checkpoint: str | Path,
    benchmarks: Sequence[str | Path] = ("aime24", "aime25", "amc23"),
    *,
    engine: str | dict | EngineSpec = "local",
    out: Path | None = None,
    data: Path | None = None,
    samples_per_problem: int | None = None,
    temperature: float = 1.0,
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
        benchmarks: names (`rpg.benchmarks.benchmarks()`) or paths of YAML files.
        engine: `local`, `huggingface`, `vllm`, or a mapping with the `type` and its settings.
        out: folder of the results (default: `<home>/evaluations/<name of the checkpoint>`); it receives
            `<benchmark>.parquet` with every graded sample and `evaluation.json`.
        data: folder of local copies of the benchmarks (default: $RPG_DATA, then the hub).
        samples_per_problem: k (default: each benchmark's own). Temperature 0 is greedy and takes one sample.

    Raises:
        ConfigError, DataError, ModelError, EngineError, GradingError, StoreError: each with one readable line.
    """
    spec = _engine_spec(engine)
    sets = [load_benchmark(benchmark(name), folder=data) for name in benchmarks]
    folder = Path(out) if out is not None else home() / "evaluations" / _label(checkpoint)
    sampling = Sampling(temperature, max_prompt_tokens, max_response_tokens)
    common = {
        "model": _identity(checkpoint, revision),
        "engine": spec.model_dump(mode="json"),
        "sampling": asdict(sampling),
        "seed": seed,
        "device": device,
        "bfloat16": bfloat16,
    }
    record_path = folder / "evaluation.json"
    record = read_json_object(record_path) if record_path.exists() else {}
    running = None
    results = []
    try:
        for loaded in sets:
            name, own = loaded.benchmark.name, loaded.benchmark
            k = 1 if temperature == 0 else samples_per_problem or own.samples_per_problem
            identity = {**common, "samples_per_problem": k, **_set_identity(loaded)}
            path = folder / f"{name}.parquet"
            if record.get(name, {}).get("identity") == identity and path.exists():
                rows = read_samples(path).to_pylist()
                say(f"{name}: done before")
            else:
                if running is None:
                    running = start_engine(spec, sampling, device, bfloat16)
                    running.load(checkpoint, revision)
                partial = Partial(folder / f"{name}.partial.jsonl", json.dumps(identity, sort_keys=True))
                grader = grader_for(own.verifier, grading_workers)
                try:
                    rows = evaluate_problems(
                        running,
                        loaded.problems,
                        samples_per_problem=k,
                        seed=seed,
                        grader=grader,
                        partial=partial,
                        progress=_now_and_then(name, say),
                    )
                finally:
                    grader.close()
                write_samples(path, rows)
            summary = summarise(rows)
            record[name] = {"identity": identity, "source": loaded.source, "notes": loaded.notes} | {
                "summary": {
                    key: v._asdict() if hasattr(v, "_asdict") else v for key, v in vars(summary).items()
                }
            }
            atomic_write_json(record_path, record)
            (folder / f"{name}.partial.jsonl").unlink(missing_ok=True)
            results.append(Result(name, summary, path, loaded.notes))
    finally:
        if running is not None:
            running.close()
    return results


def _engine_spec(engine: str | dict | EngineSpec):
    if isinstance(engine, str):
        engine = {"type": engine}
    try:
        return TypeAdapter(EngineSpec).validate_python(engine)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(
            f"engine: {first['msg']} (got {engine!r}); known: local, huggingface, vllm"
        ) from None


def _set_identity(loaded: LoadedBenchmark) -> dict:
    own = loaded.benchmark
    return {
        "problems": loaded.digest,
        "prompt": own.prompt.model_dump(mode="json"),
        "verifier": own.verifier.model_dump(mode="json"),
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


def _label(checkpoint: str | Path) -> str:
    return str(checkpoint).strip("/").replace("/", "--") or "model"


def _now_and_then(name: str, say: Callable[[str], None]) -> Callable[[Progress], None]:
    last = 0.0

    def progress(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > _SAY_SECONDS or now.done == now.total:
            last = time.monotonic()
            say(f"{name}: {now}")

    return progress
