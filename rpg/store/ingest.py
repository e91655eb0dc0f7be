"""From run folders into the tables of an open database. What cannot be read becomes a row of `warnings`."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow

from rpg.store import run_provenance
from rpg.store.atomic_files import StoreError, read_json_object
from rpg.store.current import OUTDATED, current_runs, superseded_runs, superseded_variant, why_superseded
from rpg.store.layout import Layout
from rpg.store.notes import FILE as NOTES
from rpg.store.notes import notes_and_tags
from rpg.store.run_folder import IMPORTED, RunFolder
from rpg.store.samples import EVAL_COLUMNS, drift_path
from rpg.store.schema import KEYS, TABLES, VERSION, create_views, quote

Rows = list[dict[str, Any]]


class Source(NamedTuple):
    """A run's files as they were when looked at: equal fingerprints mean nothing has to be read again."""

    folder: RunFolder
    state: str
    fingerprint: str


def look(layout: Layout) -> list[Source]:
    """Every run with its state and fingerprint, without opening its files."""
    return [_source(folder) for sweep in layout.sweeps() for folder in layout.run_folders(sweep)]


def _source(folder: RunFolder) -> Source:
    # What a live process says about itself is left out: it changes often and says nothing beyond the state.
    seen = []
    if folder.path.is_dir():
        for entry in os.scandir(folder.path):
            if entry.name.endswith((".json", ".jsonl")) and entry.name not in ("lease.json", "waiting.json"):
                seen.append(_mark(entry.name, entry))
        evals = folder.path / "evals"
        for benchmark in folder.benchmarks():
            for entry in os.scandir(evals / benchmark):
                if entry.name.endswith(".parquet") and not entry.name.startswith("."):
                    seen.append(_mark(f"{benchmark}/{entry.name}", entry))
    state = folder.state()
    return Source(folder, state, f"{state} {_digest(sorted(seen))}")


def _mark(name: str, entry: os.DirEntry[str] | Path) -> str:
    stat = entry.stat()
    return f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def look_aside(layout: Layout) -> str:
    """A fingerprint of the files that belong to no run: sweep files and audits."""
    paths = [
        *layout.runs.glob("*/sweep.json"),
        *layout.runs.glob(f"*/{NOTES}"),
        *layout.audits.glob("*.json"),
    ]
    return _digest(sorted(_mark(str(path), path) for path in paths))


def ingest(db: duckdb.DuckDBPyConnection, layout: Layout, sources: list[Source], aside: str) -> None:
    """Replace what `db` holds about these runs by what their folders hold now; sweeps and audits anew."""
    forget(db, [(source.folder.sweep, source.folder.name) for source in sources])
    warnings: Rows = []
    _runs(db, sources, warnings)
    _metrics(db, sources, warnings)
    _attempts(db, sources, warnings)
    _samples(db, sources, warnings)
    _evals(db)
    _drift(db, sources, warnings)
    _scores(db, sources, warnings)
    _sweeps_and_audits(db, layout, warnings)
    _marks(db, layout, warnings)
    _mark_superseded(db, layout)
    _insert(db, "warnings", warnings)
    measurements = db.execute("SELECT * FROM metrics LIMIT 0").description
    db.execute(create_views(len(measurements) > len(KEYS)))
    db.execute("DELETE FROM meta")
    db.execute("INSERT INTO meta VALUES (?, ?, ?)", [VERSION, time.time(), aside])


def forget(db: duckdb.DuckDBPyConnection, keys: list[tuple[str, str]]) -> None:
    """Delete all rows of these runs, (sweep, run) each; they stay in the temporary table `changed`."""
    _temporary(db, "changed", [{"sweep": sweep, "run": run} for sweep, run in keys], ("sweep", "run"))
    for table in ("runs", "metrics", "attempts", "samples", "evals", "drift", "warnings"):
        db.execute(f"DELETE FROM {table} t USING changed c WHERE t.sweep = c.sweep AND t.run = c.run")


def _runs(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    rows = []
    for folder, state, fingerprint in sources:
        row: dict[str, Any] = {
            "sweep": folder.sweep,
            "run": folder.name,
            "state": state,
            "fingerprint": fingerprint,
        }
        try:
            if folder.path.is_dir():
                row |= _manifest(folder.read_manifest())
            row["benchmarks"] = row.get("benchmarks") or folder.benchmarks()
            failed, done = folder.read_failed() or {}, folder.read_done() or {}
            row |= {"error": _text(failed.get("error")), "log": _text(failed.get("log"))}
            row |= {"finished": _number(done.get("finished")), "seconds": _number(done.get("seconds"))}
        except StoreError as error:
            warnings.append({"sweep": folder.sweep, "run": folder.name, "message": str(error)})
        rows.append(row)
    _insert(db, "runs", rows)


def _manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: _text(manifest.get(name)) for name in ("run_id", "variant", "algorithm", "git_revision")
    }
    row["planned_variant"] = row["variant"]
    row["display_name"] = _text(manifest.get("display_name")) or row["algorithm"]
    row |= {name: _integer(manifest.get(name)) for name in ("seed", "steps")}
    row |= {
        name: json.dumps(manifest.get(name)) for name in ("axes", "versions", "machine", "spec", "identity")
    }
    row["imported"] = json.dumps(manifest["imported"]) if manifest.get("imported") else None
    row["outdated"] = json.dumps(manifest[OUTDATED]) if manifest.get(OUTDATED) else None
    row["created"] = _number(manifest.get("created"))
    row["benchmarks"] = _names(manifest.get("benchmarks"))
    return row


def _metrics(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    # Attempts ascend within a run and rows keep the files' order: the last row of a step is the valid one.
    files = [
        {"filename": str(folder.metrics_path(attempt)), "attempt": attempt, **_key(folder)}
        for folder, _, _ in sources
        for attempt in folder.attempts()
    ]
    if not files:
        return
    _temporary(db, "files", files, ("filename", "sweep", "run", "attempt"))
    files, names = _measurements(db, files, warnings)
    if not files:
        return
    kinds = {"step": "JSON", "optimizer_step": "BIGINT", "time": "DOUBLE"} | dict.fromkeys(names, "DOUBLE")
    columns = ", ".join(f"'{_sql_text(name)}': '{kind}'" for name, kind in kinds.items())
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE raw AS SELECT * REPLACE (
              CASE WHEN regexp_full_match(step::VARCHAR, '[0-9]+') THEN try_cast(step AS BIGINT) END AS step)
            FROM read_json(?, format='newline_delimited', columns={{{columns}}}, ignore_errors=true,
                           filename=true, hive_partitioning=false)""",
        [_patterns(files)],
    )
    known = {column[0] for column in db.execute("SELECT * FROM metrics LIMIT 0").description}
    for name in names:
        if name not in known:
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
        message = (
            f"{sweep}/{run}/metrics-{attempt}.jsonl: {count} unreadable line{'s' * (count > 1)} left out"
        )
        warnings.append({"sweep": sweep, "run": run, "message": message})
    db.execute("DROP TABLE raw")
    db.execute(
        """UPDATE runs SET step = m.step, attempts = m.attempts
           FROM (SELECT sweep, run, max(step) AS step, count(DISTINCT attempt) AS attempts
                 FROM metrics JOIN changed USING (sweep, run) GROUP BY ALL) m
           WHERE runs.sweep = m.sweep AND runs.run = m.run"""
    )


def _measurements(db: duckdb.DuckDBPyConnection, files: Rows, warnings: Rows) -> tuple[Rows, list[str]]:
    """The files that can be opened, and the names of all measurements in them.

    Columns ignore case, so of `A` and `a` only the first is kept.
    """
    found: set[str] = set()

    def scan(part: Rows) -> None:
        rows = db.execute(
            """SELECT DISTINCT unnest(json_keys(json)) FROM read_json_objects(?, format='newline_delimited',
               ignore_errors=true, hive_partitioning=false)""",
            [_patterns(part)],
        )
        found.update(name for (name,) in rows.fetchall())

    files = _each_readable(files, scan, warnings)
    known = {
        column[0].lower(): column[0] for column in db.execute("SELECT * FROM metrics LIMIT 0").description
    }
    names = []
    for name in sorted(found):
        if not name or name.lower() in {*KEYS, "filename"}:
            continue
        kept = known.setdefault(name.lower(), name)
        if kept == name:
            names.append(name)
        else:
            message = f"metric {name!r} left out: it differs from {kept!r} only in case"
            warnings.append({"sweep": None, "run": None, "message": message})
    return files, names


def _each_readable(files: Rows, read: Callable[[Rows], object], warnings: Rows) -> Rows:
    """Call `read` on all files at once, or, when it fails, on halves: the files that could be read.

    One statement over thousands of files is a hundred times faster than one statement per file.
    """
    try:
        read(files)
        return files
    except duckdb.Error as error:
        if len(files) > 1:
            half = len(files) // 2
            return _each_readable(files[:half], read, warnings) + _each_readable(files[half:], read, warnings)
        file = files[0]
        message = f"{file['filename']} left out: {str(error).splitlines()[0]}"
        warnings.append({"sweep": file["sweep"], "run": file["run"], "message": message})
        return []


def _attempts(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    """What computed the attempts whose steps count; a run's own columns say what its newest one was computed by."""
    rows: Rows = []
    files: dict[str, dict[str, str]] = {}
    for folder, _, _ in sources:
        for attempt in folder.attempts():
            row = {**_key(folder), "attempt": attempt}
            try:
                record = run_provenance.read(folder, attempt)
            except StoreError as error:
                warnings.append({**_key(folder), "message": str(error)})
                record = {}
            if record:
                row |= {name: _text(record.get(name)) for name in ("code", "git_revision")}
                row |= {name: json.dumps(record.get(name)) for name in ("versions", "machine")}
                row["begun"] = _number(record.get("time"))
                files[str(row["code"])] = record["sources"]
            rows.append(row)
    _insert(db, "attempts", rows)
    known = {code for (code,) in db.execute("SELECT DISTINCT code FROM sources").fetchall()}
    found = [
        {"code": code, "file": str(name), "digest": _text(digest)}
        for code, own in files.items()
        if code not in known
        for name, digest in own.items()
    ]
    _insert(db, "sources", found)
    db.execute(
        """DELETE FROM attempts WHERE NOT EXISTS (SELECT 1 FROM metrics m
           WHERE (m.sweep, m.run, m.attempt) = (attempts.sweep, attempts.run, attempts.attempt))"""
    )
    db.execute(
        """UPDATE runs SET code = a.code, git_revision = a.git_revision, versions = a.versions, machine = a.machine
           FROM (SELECT sweep, run, max_by(attempts, attempt) AS a FROM attempts JOIN changed USING (sweep, run)
                 WHERE code IS NOT NULL GROUP BY ALL)
           WHERE (runs.sweep, runs.run) = (a.sweep, a.run)"""
    )


# Runs whose samples have a reward beside the verifier's verdict (rpg.rewards.scoring.Scorer.plain).
_REWARDED = """SELECT sweep, run FROM runs
               WHERE json_array_length(spec, '$.reward') > 1 OR spec->>'$.reward[0].type' <> 'correctness'"""


def _samples(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    files = [
        {"filename": str(folder.eval_path(name, step)), "benchmark": name, "step": step, **_key(folder)}
        for folder, _, _ in sources
        for name in folder.benchmarks()
        for step in folder.eval_steps(name)
    ]
    db.execute(
        "CREATE OR REPLACE TEMP TABLE graded (sweep VARCHAR, run VARCHAR, benchmark VARCHAR, step BIGINT, rules VARCHAR)"
    )
    if not files:
        return
    _temporary(db, "files", files, ("filename", "sweep", "run", "benchmark", "step"))
    rewarded = set(db.execute(_REWARDED).fetchall())
    readable: Rows = []
    for extra in (("reward",), ()):
        part = [file for file in files if ((file["sweep"], file["run"]) in rewarded) == bool(extra)]
        columns = [name for name in TABLES["samples"] if name in (*EVAL_COLUMNS, *extra)]
        sql = f"""INSERT INTO samples BY NAME SELECT f.sweep, f.run, f.benchmark, f.step, {", ".join(columns)}
                  FROM read_parquet(?, filename=true, hive_partitioning=false) p JOIN files f USING (filename)"""

        def read(some: Rows, sql: str = sql) -> object:
            return db.execute(sql, [_patterns(some)])

        if part:
            readable += _each_readable(part, read, warnings)
    if readable:
        db.execute(
            """INSERT INTO graded SELECT f.sweep, f.run, f.benchmark, f.step, decode(m.value)
               FROM parquet_kv_metadata(?) m JOIN files f ON f.filename = m.file_name WHERE decode(m.key) = 'rules'""",
            [_patterns(readable)],
        )


def _evals(db: duckdb.DuckDBPyConnection) -> None:
    """Summaries of the evaluations of the changed runs; formulas in docs/statistics.md."""
    db.execute(
        """INSERT INTO evals BY NAME
        WITH s AS (SELECT samples.* FROM samples JOIN changed USING (sweep, run)),
        answers AS (SELECT sweep, run, benchmark, step, problem_id, extracted, count(*) AS votes,
                           avg(correct::INTEGER) AS right_share
                    FROM s WHERE extracted IS NOT NULL GROUP BY ALL),
        tops AS (SELECT *, max(votes) OVER (PARTITION BY sweep, run, benchmark, step, problem_id) AS top
                 FROM answers),
        majority AS (SELECT sweep, run, benchmark, step, problem_id, avg(right_share) AS majority
                     FROM tops WHERE votes = top GROUP BY ALL),
        p AS (SELECT sweep, run, benchmark, step, problem_id, count(*) AS n, sum(correct::INTEGER) AS c,
                     sum(tokens) AS tokens, sum(truncated::INTEGER) AS truncated, avg(reward) AS reward
              FROM s GROUP BY ALL),
        k AS (SELECT *, min(n) OVER (PARTITION BY sweep, run, benchmark, step) AS k FROM p)
        SELECT sweep, run, benchmark, step, count(*) AS problems, any_value(k) AS k, avg(c / n) AS accuracy,
               stddev_samp(c / n) / sqrt(count(*)) AS standard_error,
               avg(1 - list_aggregate(list_transform(range(k), lambda i: greatest(n - c - i, 0) / (n - i)),
                                      'product')) AS pass_at_k,
               avg(coalesce(majority, 0)) AS maj_at_k, sum(tokens) / sum(n) AS tokens,
               sum(truncated) / sum(n) AS truncated, avg(reward) AS reward, any_value(rules) AS rules
        FROM k LEFT JOIN majority USING (sweep, run, benchmark, step, problem_id)
        LEFT JOIN graded USING (sweep, run, benchmark, step)
        GROUP BY sweep, run, benchmark, step ORDER BY sweep, run, benchmark, step"""
    )


_DRIFT = tuple(
    name for name in TABLES["drift"] if name not in ("sweep", "run", "benchmark", "step", "direction")
)


def _drift(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    """KL between policy and initial model, of the evaluations that measured it."""
    files = [
        {"filename": str(path), "benchmark": name, "step": step, **_key(folder)}
        for folder, _, _ in sources
        for name in folder.benchmarks()
        for step in folder.eval_steps(name)
        if (path := drift_path(folder.eval_path(name, step))).exists()
    ]
    if not files:
        return
    _temporary(db, "files", files, ("filename", "sweep", "run", "benchmark", "step"))
    kinds = ", ".join(f"{name} {TABLES['drift'][name][0]}" for name in _DRIFT)
    directions = ("policy_to_initial", "initial_to_policy")
    columns = ", ".join(f"'{direction}': 'STRUCT({kinds})'" for direction in directions)
    for direction in directions:
        sql = f"""INSERT INTO drift BY NAME SELECT f.sweep, f.run, f.benchmark, f.step, '{direction}' AS direction,
                    {", ".join(f"d.{direction}.{name}" for name in _DRIFT)}
                  FROM read_json(?, columns={{{columns}}}, filename=true, hive_partitioning=false) d
                  JOIN files f USING (filename) WHERE d.{direction} IS NOT NULL"""
        files = _each_readable(files, lambda part, sql=sql: db.execute(sql, [_patterns(part)]), warnings)  # type: ignore[misc]


def _scores(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    """Scores of runs that were trained elsewhere: without samples, so without all that is computed from those."""
    rows: Rows = []
    for folder, _, _ in sources:
        path = folder.path / IMPORTED
        if not path.is_file():
            continue
        try:
            for benchmark, found in read_json_object(path)["scores"].items():
                rows += [
                    {**_key(folder), "benchmark": benchmark, "step": int(step), "accuracy": float(value)}
                    for step, value in found.items()
                    if not folder.eval_path(benchmark, int(step)).exists()  # its samples say more
                ]
        except (StoreError, KeyError, ValueError, AttributeError, TypeError) as error:
            warnings.append({**_key(folder), "message": f"{path}: {error}"})
    _insert(db, "evals", rows)


def _marks(db: duckdb.DuckDBPyConnection, layout: Layout, warnings: Rows) -> None:
    """Tags and notes of all sweeps and runs, anew: they are few."""
    db.execute("DELETE FROM marks")
    rows: Rows = []
    for path in sorted([*layout.runs.glob(f"*/{NOTES}"), *layout.runs.glob(f"*/*/{NOTES}")]):
        parts = path.parent.relative_to(layout.runs).parts
        key = {"sweep": parts[0], "run": parts[1] if len(parts) > 1 else None}
        try:
            record = notes_and_tags(path.parent)
            text = "\n".join(str(note.get("text", "")) for note in record["notes"])
            rows.append({**key, "tags": record["tags"], "notes": text})
        except StoreError as error:
            warnings.append({**key, "message": str(error)})
    _insert(db, "marks", rows)


def _sweeps_and_audits(db: duckdb.DuckDBPyConnection, layout: Layout, warnings: Rows) -> None:
    db.execute("DELETE FROM sweeps; DELETE FROM audits; DELETE FROM warnings WHERE run IS NULL")
    sweeps: Rows = []
    for name in layout.sweeps():
        row: dict[str, Any] = {"sweep": name, "runs": len(current_runs(layout, name)), "benchmarks": []}
        row["superseded"] = len(superseded_runs(layout, name))
        try:
            sweep = layout.read_sweep(name)
            row |= {"created": _number(sweep.get("created")), "baseline": _text(sweep.get("baseline"))}
            row |= {"source": _text(sweep.get("source")), "benchmarks": _names(sweep.get("benchmarks"))}
        except StoreError as error:
            warnings.append({"sweep": name, "run": None, "message": str(error)})
        sweeps.append(row)
    _insert(db, "sweeps", sweeps)
    audits: Rows = []
    for path in sorted(layout.audits.glob("[!.]*.json")):
        try:
            audits.append({"name": path.stem, "report": json.dumps(read_json_object(path), allow_nan=True)})
        except StoreError as error:
            warnings.append({"sweep": None, "run": None, "message": str(error)})
    _insert(db, "audits", audits)


def _mark_superseded(db: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    """Which runs the sweeps' newest files still name: of all runs, since another file changes others than its own."""
    db.execute("UPDATE runs SET superseded = NULL, variant = planned_variant WHERE superseded IS NOT NULL")
    marks: Rows = []
    for sweep in layout.sweeps():
        current = {folder.name for folder in current_runs(layout, sweep)}
        names = [run for (run,) in db.execute("SELECT run FROM runs WHERE sweep = ?", [sweep]).fetchall()]
        if current.issuperset(names):
            continue
        rows = db.execute(
            "SELECT run, variant, seed, spec, identity, outdated FROM runs WHERE sweep = ?", [sweep]
        )
        parts = ("spec", "identity", OUTDATED)
        manifests = {
            run: {"variant": variant, "seed": seed, **dict(zip(parts, map(_json, texts), strict=True))}
            for run, variant, seed, *texts in rows.fetchall()
        }
        old = {run: manifest for run, manifest in manifests.items() if run not in current}
        whys = why_superseded(old, (manifests[run] for run in manifests if run in current))
        for run, manifest in old.items():
            shown = None if manifest["variant"] is None else superseded_variant(manifest, whys[run])
            marks.append({"sweep": sweep, "run": run, "superseded": whys[run], "variant": shown})
    if marks:
        _temporary(db, "marks", marks, ("sweep", "run", "superseded", "variant"))
        db.execute(
            """UPDATE runs SET superseded = m.superseded, variant = m.variant FROM marks m
               WHERE (runs.sweep, runs.run) = (m.sweep, m.run)"""
        )


def _json(text: str | None) -> Any:
    return json.loads(text or "null") or {}


_ARROW = {
    "VARCHAR": pyarrow.string(),
    "JSON": pyarrow.string(),
    "VARCHAR[]": pyarrow.list_(pyarrow.string()),
    "INTEGER": pyarrow.int32(),
    "BIGINT": pyarrow.int64(),
    "DOUBLE": pyarrow.float64(),
}


def _insert(db: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    """Append rows, missing keys as null; through Arrow, since parameters cost a millisecond a row."""
    if rows:
        schema = pyarrow.schema([(name, _ARROW[kind]) for name, (kind, _) in TABLES[table].items()])
        db.register("incoming", pyarrow.Table.from_pylist(rows, schema))
        db.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
        db.unregister("incoming")


def _temporary(db: duckdb.DuckDBPyConnection, table: str, rows: Rows, columns: tuple[str, ...]) -> None:
    data = {name: [row[name] for row in rows] for name in columns}
    kinds = [(name, pyarrow.int64() if name in ("attempt", "step") else pyarrow.string()) for name in columns]
    db.register("incoming", pyarrow.table(data, pyarrow.schema(kinds)))
    db.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM incoming")
    db.unregister("incoming")


def _key(folder: RunFolder) -> dict[str, str]:
    return {"sweep": folder.sweep, "run": folder.name}


def _patterns(files: Rows) -> list[str]:
    """The files' names, escaped so that DuckDB takes no character in them for a pattern."""
    return [file["filename"].replace("[", "[[]").replace("*", "[*]").replace("?", "[?]") for file in files]


def _sql_text(text: str) -> str:
    return text.replace("'", "''")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**63 else None
