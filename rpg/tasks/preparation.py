"""From a task to Parquet files in verl's schema, once per digest.

    <home>/cache/data/<digest>/train.parquet, chain-easy.parquet, ..., data.json, dropped.jsonl

One row per problem: data_source, prompt = [{role, content}], ability, reward_model {ground_truth,
style}, extra_info {index, split, problem_id, raw_problem, demonstration, columns, chat, cluster}.
Both back ends read these files.
"""

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rpg.config.identity import frozen_dump
from rpg.config.reward import PythonReward
from rpg.config.run_spec import RunSpec
from rpg.store import atomic_files, locks
from rpg.tasks import DataError, Problem, Splits, data_identity, kind_of, load_problems

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class PreparedData:
    """Where a run's problems lie. `benchmarks` are those the run is evaluated on, in its order."""

    digest: str
    train: Path
    benchmarks: dict[str, Path]


def data_digest(spec: RunSpec) -> str:
    """Identity of a run's data: of its settings where problems are made by code, of the files'
    contents otherwise. Raises DataError: a file cannot be read.
    """
    return data_identity.digest(_data_record(spec))


def older_data_digests(spec: RunSpec) -> tuple[str, ...]:
    """The digests that older versions gave to the same data."""
    if spec.task.type not in data_identity.OLDER:
        return ()
    return data_identity.older_digests(_data_record(spec))


def _data_record(spec: RunSpec) -> dict[str, Any]:
    fields = frozen_dump(spec.task, f"task.{spec.task.type}")
    fields |= kind_of(spec.task).data(spec.task)
    record: dict[str, Any] = {"schema": SCHEMA_VERSION, "task": fields}
    # Data that were prepared before there were reward functions lack their columns.
    if any(isinstance(part, PythonReward) for part in spec.reward):
        record["columns"] = "all"
    return record


def prepare_data(spec: RunSpec, home: Path) -> PreparedData:
    """Make sure the Parquet files of a run's task are there; safe to call from several processes at
    once. Raises DataError: problems that cannot be used (the message names file, line and field);
    StoreError: the cache cannot be written.
    """
    prepared = data_files(spec, home)
    folder = prepared.train.parent
    take_over(folder, older_data_digests(spec))
    with once(folder) as build:
        if build is not None:
            splits = load_problems(spec.task)
            files = {"train": splits.train, **splits.benchmarks}
            for name, problems in files.items():
                _write(
                    build / f"{name}.parquet",
                    name,
                    problems,
                    "train" if name == "train" else "test",
                )
            _write_report(
                build, spec, splits, {name: len(problems) for name, problems in files.items()}
            )
    return prepared


def data_files(spec: RunSpec, home: Path, digest: str | None = None) -> PreparedData:
    """Where the Parquet files of a run's task are or will be; `digest` if known. Raises DataError:
    unreadable files."""
    digest = digest or data_digest(spec)
    folder = Path(home) / "cache" / "data" / digest
    benchmarks = {name: folder / f"{name}.parquet" for name in spec.benchmarks()}
    return PreparedData(digest, folder / "train.parquet", benchmarks)


def data_notes(prepared: PreparedData) -> list[str]:
    """Notes on these problems for whoever reads results; data.json has the details."""
    record = atomic_files.read_json_object(prepared.train.parent / "data.json")
    notes = [str(note) for note in record.get("notes", [])]
    notes += [
        f"{leaked:,} training problems are also in a benchmark and were left out of training"
        for part in record.get("sources", [])
        if (leaked := part["dropped"].get("leaked"))
    ]
    pairs = Counter(pair["benchmark"] for pair in record.get("near_duplicates", []))
    return notes + [
        f"{name}: {count} pairs of problems are nearly the same" for name, count in pairs.items()
    ]


def take_over(folder: Path, older_names: Iterable[str]) -> None:
    """Give a cache folder that an older version filled under another name its name of today."""
    for older in (folder.with_name(name) for name in older_names):
        if older.is_dir() and not folder.is_dir():
            with contextlib.suppress(OSError):  # another process was first
                older.rename(folder)


@contextlib.contextmanager
def once(folder: Path) -> Iterator[Path | None]:
    """Fill a cache folder once: yields a folder to build in, or None where `folder` is already
    there.

    What was built is flushed and renamed into place; an exception or a kill leaves nothing behind
    that counts. Other processes that want the same folder wait for the one that builds it.
    """
    lock = folder.parent / f".{folder.name}.lock"
    waits = contextlib.nullcontext() if folder.is_dir() else locks.in_turn(lock)
    with waits:
        if folder.is_dir():
            yield None
            return
        # Of a process that was killed: we hold the lock.
        for stale in folder.parent.glob(f".{folder.name}.*.tmp"):
            shutil.rmtree(stale, ignore_errors=True)
        with atomic_files.atomic_folder(folder) as build:
            yield build


def _write_report(folder: Path, spec: RunSpec, splits: Splits, counts: dict[str, int]) -> None:
    """What the files hold (data.json), and every training problem that was left out with its reason
    (dropped.jsonl)."""
    keys = ("benchmark", "problem", "other", "similarity")
    report = {
        "files": spec.task.files(),
        "problems": counts,
        "sources": [asdict(summary) for summary in splits.summaries],
        "near_duplicates": [dict(zip(keys, pair, strict=True)) for pair in splits.near_duplicates],
        "notes": splits.notes,
    }
    atomic_files.atomic_write_json(folder / "data.json", report)
    if splits.summaries:
        lines = "".join(
            json.dumps(asdict(problem), ensure_ascii=False) + "\n" for problem in splits.dropped
        )
        atomic_files.atomic_write_text(folder / "dropped.jsonl", lines)


def _write(path: Path, name: str, problems: list[Problem], split: str) -> None:
    import pyarrow.parquet  # noqa: PLC0415 - a fifth of a second, which planning a run does not need

    rows = [
        {
            "data_source": problem.group if split == "train" else name,
            "prompt": problem.conversation(),
            "ability": problem.group,
            "reward_model": {"ground_truth": problem.answer, "style": "rule"},
            "extra_info": {
                "index": index,
                "split": split,
                "problem_id": problem.id,
                "raw_problem": problem.text,
                "demonstration": problem.demonstration,
                "columns": json.dumps(problem.columns, default=str) if problem.columns else None,
                "chat": problem.chat,
                "cluster": problem.cluster,
            },
        }
        for index, problem in enumerate(problems)
    ]
    text = pyarrow.string()
    schema = pyarrow.schema(
        {
            "data_source": text,
            "prompt": pyarrow.list_(pyarrow.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pyarrow.struct({"ground_truth": text, "style": text}),
            "extra_info": pyarrow.struct(
                {"index": pyarrow.int64(), "split": text, "problem_id": text, "raw_problem": text}
                | {"demonstration": text, "columns": text, "chat": pyarrow.bool_(), "cluster": text}
            ),
        }
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)


def read_problems(path: Path) -> list[Problem]:
    """Problems back from a Parquet file of :func:`prepare_data`, in order. Raises DataError:
    missing, or another schema."""
    import pyarrow.parquet  # noqa: PLC0415 - a fifth of a second, which planning a run does not need

    try:
        with pyarrow.parquet.ParquetFile(path) as file:  # read_table imports pandas
            rows = file.read().to_pylist()
        return [problem_of(row) for row in rows]
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, IndexError) as error:
        advice = "delete its folder to rebuild it"
        raise DataError(f"{path}: not a data file of this project ({error}); {advice}") from error


def problem_of(row: Mapping[str, Any]) -> Problem:
    """A problem from a row of these files."""
    extra = row["extra_info"]
    messages = tuple(row["prompt"])
    alone = len(messages) == 1 and messages[0]["role"] == "user"
    return Problem(
        id=extra["problem_id"],
        text=extra["raw_problem"],
        prompt=messages[-1]["content"],
        answer=row["reward_model"]["ground_truth"],
        group=row["ability"],
        demonstration=extra["demonstration"],
        columns=json.loads(extra.get("columns") or "{}"),
        messages=() if alone else messages,
        chat=bool(extra.get("chat")),
        cluster=extra.get("cluster"),
    )
