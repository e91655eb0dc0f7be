"""What the database is built from: the run folders with their fingerprints, and their metrics,
samples and drift, which are read into the tables of an open database thousands of files per
statement.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow

from rpg.errors import plural
from rpg.store.atomic_files import StoreError, readable
from rpg.store.file_records import FileRecord, Records, contents, records_of
from rpg.store.layout import Layout
from rpg.store.live_status import EVALUATION, TRAINING
from rpg.store.notes import FILE as NOTES
from rpg.store.run_folder import UNREADABLE, Inspection, RunFolder, eval_name
from rpg.store.samples import (
    CLUSTER,
    DRIFT,
    EVAL_COLUMNS,
    MARK,
    SECOND,
    UNREAD,
    drift_path,
)
from rpg.store.schema import KEYS, TABLES, quote

NO_RUN = ("", "")
"""Stands for the files that belong to no run: sweep files, notes, audits, evaluations by hand."""
LIVE = ("lease.json", "waiting.json", TRAINING, EVALUATION)
"""Files that a live process renews: they change often, and the database reads nothing of them."""


@dataclass(frozen=True)
class Source:
    """A run with its state and the records of its files. If these are as they were, nothing of the
    run has to be read again."""

    folder: RunFolder
    state: str
    files: dict[str, FileRecord]
    why_unreadable: str = ""
    """Of an UNREADABLE run, in a sentence."""

    @property
    def key(self) -> tuple[str, str]:
        return self.folder.sweep, self.folder.name

    @property
    def fingerprint(self) -> str:
        """Of the state, and of the names and contents of the files."""
        more = [self.state]
        if self.why_unreadable:
            more.append(self.why_unreadable)
        return fingerprint(self.files, more)


def run_sources(layout: Layout, seen: Mapping[tuple[str, str], Records] = {}) -> list[Source]:
    """Every run with its state and files. A file is opened only if it is not as in `seen`, where it
    is known by size and time: (sweep, run) -> records."""
    sources = []
    for sweep in layout.sweeps():
        for folder in layout.run_folders(sweep):
            sources.append(_source(folder, seen.get((sweep, folder.name), {})))
    return sources


def _source(folder: RunFolder, seen: Records) -> Source:
    try:
        with readable("read", folder.path):
            names = _names(folder)
            known = seen
            if not seen.keys() >= set(names):
                known = {**folder.recorded(), **seen}
            files = records_of(folder.path, names, known)
        return Source(folder, folder.state(), files)
    except StoreError as error:
        return Source(folder, UNREADABLE, {}, why_unreadable=str(error))


def _names(folder: RunFolder) -> list[str]:
    """The files of a run that the database reads."""
    if not folder.path.is_dir():
        return []
    names = [
        name
        for name in os.listdir(folder.path)
        if name.endswith((".json", ".jsonl")) and name not in LIVE
    ]
    for benchmark in folder.benchmarks():
        place = f"evals/{benchmark}"
        names += [
            f"{place}/{name}"
            for name in os.listdir(folder.path / place)
            if name.endswith((".parquet", DRIFT)) and not name.startswith(".")
        ]
    return sorted(names)


def fingerprint(files: Records, more: Iterable[str] = ()) -> str:
    """A digest of the names and contents of files, and of what else counts."""
    lines = [f"{name} {digest}" for name, digest in sorted(contents(files).items())]
    lines += more
    text = "\n".join(lines)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


Rows = list[dict[str, Any]]


def files_beside_runs(layout: Layout, seen: Mapping[str, FileRecord] = {}) -> dict[str, FileRecord]:
    """The files that belong to no run: sweep files, notes, audits and evaluations by hand."""
    paths = list(layout.runs.glob("*/sweep.json"))
    paths += layout.runs.glob(f"*/{NOTES}")
    paths += layout.audits.glob("*.json")
    paths += [Path(file["filename"]) for file in by_hand(layout)]
    names = sorted(str(path.relative_to(layout.home)) for path in paths)
    return records_of(layout.home, names, seen)


def by_hand(layout: Layout) -> Rows:
    """The files of graded samples that belong to no run (rpg evaluate)."""
    place = layout.evaluations
    about = {"step": 0, "sweep": ""}
    paths = list(place.glob("*/*.parquet"))
    paths += place.glob("*/*/*.parquet")
    return [
        {
            "filename": str(path),
            "benchmark": path.stem,
            "run": str(path.parent.relative_to(place)),
            **about,
        }
        for path in sorted(paths)
        if not path.name.startswith(".") and MARK not in path.name
    ]


_ARROW = {
    "VARCHAR": pyarrow.string(),
    "JSON": pyarrow.string(),
    "VARCHAR[]": pyarrow.list_(pyarrow.string()),
    "INTEGER": pyarrow.int32(),
    "BIGINT": pyarrow.int64(),
    "DOUBLE": pyarrow.float64(),
}


def insert_rows(db: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    """Append rows, missing keys as null; through Arrow, since parameters cost a millisecond a
    row."""
    if rows:
        schema = pyarrow.schema([(name, _ARROW[kind]) for name, (kind, _) in TABLES[table].items()])
        db.register("incoming", pyarrow.Table.from_pylist(rows, schema))
        db.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
        db.unregister("incoming")


def temporary_table(
    db: duckdb.DuckDBPyConnection, table: str, rows: Rows, columns: tuple[str, ...]
) -> None:
    data = {name: [row[name] for row in rows] for name in columns}
    kinds = [
        (name, pyarrow.int64() if name in ("attempt", "step") else pyarrow.string())
        for name in columns
    ]
    db.register("incoming", pyarrow.table(data, pyarrow.schema(kinds)))
    db.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM incoming")
    db.unregister("incoming")


def run_key(folder: RunFolder) -> dict[str, str]:
    return {"sweep": folder.sweep, "run": folder.name}


def patterns(files: Rows) -> list[str]:
    """The files' names, escaped so that DuckDB takes no character in them for a pattern."""
    return [
        file["filename"].replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
        for file in files
    ]


def each_readable(files: Rows, read: Callable[[Rows], object], warnings: Rows) -> Rows:
    """Call `read` on all files at once, or, when it fails, on halves: the files that could be read.
    One statement over thousands of files is a hundred times faster than one statement per file."""
    try:
        read(files)
        return files
    except duckdb.Error as error:
        if len(files) > 1:
            half = len(files) // 2
            return each_readable(files[:half], read, warnings) + each_readable(
                files[half:], read, warnings
            )
        file = files[0]
        message = f"{file['filename']} left out: {str(error).splitlines()[0]}"
        warnings.append({"sweep": file["sweep"], "run": file["run"], "message": message})
        return []


def ingest_metrics(
    db: duckdb.DuckDBPyConnection, folders: list[RunFolder], damaged: set[Path], warnings: Rows
) -> None:
    # Attempts ascend within a run and rows keep the files' order: the last row of a step is the
    # valid one.
    files = [
        {"filename": str(folder.metrics_path(attempt)), "attempt": attempt, **run_key(folder)}
        for folder in folders
        for attempt in folder.attempts()
        if folder.metrics_path(attempt) not in damaged
    ]
    if not files:
        return
    temporary_table(db, "files", files, ("filename", "sweep", "run", "attempt"))
    files, names = _measurements(db, files, warnings)
    if not files:
        return
    kinds = {"step": "JSON", "optimizer_step": "BIGINT", "time": "DOUBLE"} | dict.fromkeys(
        names, "DOUBLE"
    )
    quoted = {name.replace("'", "''"): kind for name, kind in kinds.items()}
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in quoted.items())
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE raw AS SELECT * REPLACE (
              CASE WHEN regexp_full_match(step::VARCHAR, '[0-9]+') THEN try_cast(step AS BIGINT)
                  END AS step)
            FROM read_json(?, format='newline_delimited', columns={{{columns}}}, ignore_errors=true,
                           filename=true, hive_partitioning=false)""",
        [patterns(files)],
    )
    existing = {column[0] for column in db.execute("SELECT * FROM metrics LIMIT 0").description}
    for name in names:
        if name not in existing:
            db.execute(f"ALTER TABLE metrics ADD COLUMN {quote(name)} DOUBLE")
    values = "".join(f", raw.{quote(name)}" for name in names)
    db.execute(
        f"""INSERT INTO metrics BY NAME
            SELECT f.sweep, f.run, f.attempt, raw.step, raw.optimizer_step, raw.time{values}
            FROM raw JOIN files f USING (filename)
            WHERE raw.rowid IN (SELECT max(raw.rowid) FROM raw JOIN files f USING (filename)
                                WHERE raw.step IS NOT NULL GROUP BY f.sweep, f.run, raw.step)
            ORDER BY raw.rowid"""
    )
    bad = db.execute(
        """SELECT f.sweep, f.run, f.attempt, count(*) FROM raw JOIN files f USING (filename)
           WHERE raw.step IS NULL GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    for sweep, run, attempt, count in bad:
        lines = plural(count, "unreadable line")
        message = f"{sweep}/{run}/metrics-{attempt}.jsonl: {lines} left out"
        warnings.append({"sweep": sweep, "run": run, "message": message})
    db.execute("DROP TABLE raw")
    db.execute(
        """UPDATE runs SET step = m.step, attempts = m.attempts
           FROM (SELECT sweep, run, max(step) AS step, count(DISTINCT attempt) AS attempts
                 FROM metrics JOIN changed USING (sweep, run) GROUP BY ALL) m
           WHERE runs.sweep = m.sweep AND runs.run = m.run"""
    )


def _measurements(
    db: duckdb.DuckDBPyConnection, files: Rows, warnings: Rows
) -> tuple[Rows, list[str]]:
    """The files that can be opened, and the names of their measurements: of `A` and `a`, one
    column, only the first."""
    written: set[str] = set()

    def scan(part: Rows) -> None:
        rows = db.execute(
            """SELECT DISTINCT unnest(json_keys(json)) FROM read_json_objects(?,
               format='newline_delimited',
               ignore_errors=true, hive_partitioning=false)""",
            [patterns(part)],
        )
        written.update(name for (name,) in rows.fetchall())

    files = each_readable(files, scan, warnings)
    described = db.execute("SELECT * FROM metrics LIMIT 0").description
    columns = {column[0].lower(): column[0] for column in described}
    names = []
    for name in sorted(written):
        if not name or name.lower() in {*KEYS, "filename"}:
            continue
        kept = columns.setdefault(name.lower(), name)
        if kept == name:
            names.append(name)
        else:
            message = f"metric {name!r} left out: it differs from {kept!r} only in case"
            warnings.append({"sweep": None, "run": None, "message": message})
    return files, names


@dataclass(frozen=True)
class EvaluationFiles:
    """Of one evaluation of a run: its samples, and the KL to the initial model where it was
    measured. Each is a file with the key of its rows."""

    samples: dict[str, Any]
    drift: dict[str, Any] | None


def evaluations_of(
    sources: Iterable[Source], inspections: Iterable[Inspection]
) -> list[EvaluationFiles]:
    """The evaluations of runs that are not damaged; `inspections` are those of the sources'
    folders."""
    found = []
    for source, inspection in zip(sources, inspections, strict=True):
        place = str(source.folder.path)
        for benchmark, steps in inspection.evaluations.steps.items():
            for step in steps:
                name = eval_name(benchmark, step)
                key = {"benchmark": benchmark, "step": step, **run_key(source.folder)}
                drift = None
                drift_file = str(drift_path(Path(name)))
                if drift_file in source.files:
                    drift = {"filename": f"{place}/{drift_file}", **key}
                found.append(EvaluationFiles({"filename": f"{place}/{name}", **key}, drift))
    return found


def ingest_samples(db: duckdb.DuckDBPyConnection, files: Rows, warnings: Rows) -> None:
    """`files` of graded samples, each with the key of its rows."""
    key = ("sweep", "run", "benchmark", "step")
    db.execute(
        "CREATE OR REPLACE TEMP TABLE graded (sweep VARCHAR, run VARCHAR, benchmark "
        "VARCHAR, step BIGINT, rules VARCHAR, "
        "model VARCHAR, engine VARCHAR, draws VARCHAR)"
    )
    if not files:
        return
    temporary_table(db, "files", files, ("filename", *key))
    more: dict[str, set[str]] = {file["filename"]: set() for file in files}

    def scan(part: Rows) -> None:
        query = "SELECT file_name, name FROM parquet_schema(?) WHERE name IN ('reward', ?, ?)"
        for file, column in db.execute(query, [patterns(part), SECOND, CLUSTER]).fetchall():
            more[file].add(column)

    files = each_readable(files, scan, warnings)
    readable: Rows = []
    for extra in {frozenset(more[file["filename"]]) for file in files}:
        columns = [name for name in TABLES["samples"] if name in (*EVAL_COLUMNS, *extra)]
        sql = f"""INSERT INTO samples BY NAME SELECT f.sweep, f.run, f.benchmark, f.step,
                  {", ".join(columns)},
                    CASE WHEN NOT correct THEN nullif(regexp_extract(reason, '{UNREAD}', 1), '')
                        END AS unread
                  FROM read_parquet(?, filename=true, hive_partitioning=false) p JOIN files f
                      USING (filename)"""

        def read(part: Rows, sql: str = sql) -> object:
            return db.execute(sql, [patterns(part)])

        readable += each_readable(
            [file for file in files if more[file["filename"]] == extra], read, warnings
        )
    if readable:
        about = ("rules", "model", "engine", "draws")
        named = ", ".join(
            f"max(decode(m.value)) FILTER (decode(m.key) = '{name}')" for name in about
        )
        db.execute(
            f"""INSERT INTO graded SELECT {", ".join(f"f.{name}" for name in key)}, {named}
               FROM parquet_kv_metadata(?) m JOIN files f ON f.filename = m.file_name
                   GROUP BY ALL""",
            [patterns(readable)],
        )


def summarise_evaluations(db: duckdb.DuckDBPyConnection) -> None:
    """Summaries of the evaluations of the changed runs; formulas in docs/statistics.md."""
    rows = db.execute("SELECT DISTINCT extracted FROM samples ANTI JOIN votes USING (extracted)")
    new = [text for (text,) in rows.fetchall() if text is not None]
    if new:
        from rpg.answers.numbers import vote  # noqa: PLC0415 - takes as long as adding a run

        insert_rows(db, "votes", [{"extracted": text, "vote": vote(text)} for text in new])
    db.execute(
        """INSERT INTO evals BY NAME
        WITH s AS (SELECT samples.* FROM samples JOIN changed USING (sweep, run)),
        answers AS (SELECT sweep, run, benchmark, step, problem_id, vote, count(*) AS votes,
                           avg(correct::INTEGER) AS right_share
                    FROM s JOIN votes USING (extracted) GROUP BY ALL),
        tops AS (SELECT *, max(votes) OVER (PARTITION BY sweep, run, benchmark, step,
            problem_id) AS top
                 FROM answers),
        majority AS (SELECT sweep, run, benchmark, step, problem_id, avg(right_share) AS majority
                     FROM tops WHERE votes = top GROUP BY ALL),
        p AS (SELECT sweep, run, benchmark, step, problem_id, count(*) AS n,
            sum(correct::INTEGER) AS c,
                     sum(tokens) AS tokens, sum(truncated::INTEGER) AS truncated,
                         avg(reward) AS reward,
                     count(unread) AS unread,
                         sum((correct OR coalesce(second_reading, false))::INTEGER) AS reread,
                     count(second_reading) AS second
              FROM s GROUP BY ALL),
        k AS (SELECT *, min(n) OVER (PARTITION BY sweep, run, benchmark, step) AS k FROM p)
        SELECT sweep, run, benchmark, step, count(*) AS problems, any_value(k) AS k,
            avg(c / n) AS accuracy,
               stddev_samp(c / n) / sqrt(count(*)) AS standard_error,
               avg(1 - list_aggregate(list_transform(range(k),
                   lambda i: greatest(n - c - i, 0) / (n - i)),
                                      'product')) AS pass_at_k,
               avg(coalesce(majority, 0)) AS maj_at_k, sum(tokens) / sum(n) AS tokens,
               sum(truncated) / sum(n) AS truncated, avg(reward) AS reward,
                   any_value(rules) AS rules,
               sum(unread) / sum(n) AS unread, CASE WHEN sum(second) > 0 THEN avg(reread / n)
                   END AS second_reading,
               CASE WHEN sweep = '' THEN 'hand' WHEN any_value(imported) IS NULL THEN 'sweep'
                   ELSE 'joined' END AS origin,
               CASE WHEN origin = 'sweep' THEN format('{}/{}/step-{:06d}', sweep, run, step)
                    ELSE coalesce(any_value(model), run) END AS model,
               coalesce(any_value(engine), any_value(spec->>'$.evaluation.engine.type')) AS engine,
               any_value(draws) AS draws
        FROM k LEFT JOIN majority USING (sweep, run, benchmark, step, problem_id)
        LEFT JOIN graded USING (sweep, run, benchmark, step)
        LEFT JOIN (SELECT sweep, run, imported, spec FROM runs) USING (sweep, run)
        GROUP BY sweep, run, benchmark, step ORDER BY sweep, run, benchmark, step"""
    )


_DRIFT_KEYS = ("sweep", "run", "benchmark", "step", "direction")
_DRIFT = tuple(name for name in TABLES["drift"] if name not in _DRIFT_KEYS)


def ingest_drift(db: duckdb.DuckDBPyConnection, files: Rows, warnings: Rows) -> None:
    """KL between policy and initial model, of the evaluations that measured it. Files of older
    versions do not name their estimator; it was biased, so they are left out."""
    if not files:
        return
    temporary_table(db, "files", files, ("filename", "sweep", "run", "benchmark", "step"))
    kinds = ", ".join(f"{name} {TABLES['drift'][name][0]}" for name in _DRIFT)
    directions = ("policy_to_initial", "initial_to_policy")
    columns = ", ".join(f"'{direction}': 'STRUCT({kinds})'" for direction in directions)
    for direction in directions:
        sql = f"""INSERT INTO drift BY NAME SELECT f.sweep, f.run, f.benchmark, f.step,
                  '{direction}' AS direction,
                    {", ".join(f"d.{direction}.{name}" for name in _DRIFT)}
                  FROM read_json(?, columns={{{columns}}}, filename=true, hive_partitioning=false) d
                  JOIN files f USING (filename) WHERE d.{direction}.estimator IS NOT NULL"""

        def load(part: Rows, sql: str = sql) -> None:
            db.execute(sql, [patterns(part)])

        files = each_readable(files, load, warnings)
