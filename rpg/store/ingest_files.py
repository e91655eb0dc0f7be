"""Metrics, samples and drift of run folders into the tables of an open database, thousands of files per statement."""

import duckdb

from rpg.store.bulk_rows import Rows, each_readable, patterns, run_key, temporary_table
from rpg.store.run_sources import Source
from rpg.store.samples import EVAL_COLUMNS, drift_path
from rpg.store.schema import KEYS, TABLES, quote

# Runs whose samples have a reward beside the verifier's verdict (rpg.rewards.scoring.Scorer.plain).
_REWARDED = """SELECT sweep, run FROM runs
               WHERE json_array_length(spec, '$.reward') > 1 OR spec->>'$.reward[0].type' <> 'correctness'"""


def ingest_metrics(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    # Attempts ascend within a run and rows keep the files' order: the last row of a step is the valid one.
    files = [
        {"filename": str(folder.metrics_path(attempt)), "attempt": attempt, **run_key(folder)}
        for folder, _, _ in sources
        for attempt in folder.attempts()
    ]
    if not files:
        return
    temporary_table(db, "files", files, ("filename", "sweep", "run", "attempt"))
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
        [patterns(files)],
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
            [patterns(part)],
        )
        found.update(name for (name,) in rows.fetchall())

    files = each_readable(files, scan, warnings)
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


def ingest_samples(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    files = [
        {"filename": str(folder.eval_path(name, step)), "benchmark": name, "step": step, **run_key(folder)}
        for folder, _, _ in sources
        for name in folder.benchmarks()
        for step in folder.eval_steps(name)
    ]
    db.execute(
        "CREATE OR REPLACE TEMP TABLE graded (sweep VARCHAR, run VARCHAR, benchmark VARCHAR, step BIGINT, rules VARCHAR)"
    )
    if not files:
        return
    temporary_table(db, "files", files, ("filename", "sweep", "run", "benchmark", "step"))
    rewarded = set(db.execute(_REWARDED).fetchall())
    readable: Rows = []
    for extra in (("reward",), ()):
        part = [file for file in files if ((file["sweep"], file["run"]) in rewarded) == bool(extra)]
        columns = [name for name in TABLES["samples"] if name in (*EVAL_COLUMNS, *extra)]
        sql = f"""INSERT INTO samples BY NAME SELECT f.sweep, f.run, f.benchmark, f.step, {", ".join(columns)}
                  FROM read_parquet(?, filename=true, hive_partitioning=false) p JOIN files f USING (filename)"""

        def read(some: Rows, sql: str = sql) -> object:
            return db.execute(sql, [patterns(some)])

        if part:
            readable += each_readable(part, read, warnings)
    if readable:
        db.execute(
            """INSERT INTO graded SELECT f.sweep, f.run, f.benchmark, f.step, decode(m.value)
               FROM parquet_kv_metadata(?) m JOIN files f ON f.filename = m.file_name WHERE decode(m.key) = 'rules'""",
            [patterns(readable)],
        )


def summarise_evaluations(db: duckdb.DuckDBPyConnection) -> None:
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


def ingest_drift(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    """KL between policy and initial model, of the evaluations that measured it."""
    files = [
        {"filename": str(path), "benchmark": name, "step": step, **run_key(folder)}
        for folder, _, _ in sources
        for name in folder.benchmarks()
        for step in folder.eval_steps(name)
        if (path := drift_path(folder.eval_path(name, step))).exists()
    ]
    if not files:
        return
    temporary_table(db, "files", files, ("filename", "sweep", "run", "benchmark", "step"))
    kinds = ", ".join(f"{name} {TABLES['drift'][name][0]}" for name in _DRIFT)
    directions = ("policy_to_initial", "initial_to_policy")
    columns = ", ".join(f"'{direction}': 'STRUCT({kinds})'" for direction in directions)
    for direction in directions:
        sql = f"""INSERT INTO drift BY NAME SELECT f.sweep, f.run, f.benchmark, f.step, '{direction}' AS direction,
                    {", ".join(f"d.{direction}.{name}" for name in _DRIFT)}
                  FROM read_json(?, columns={{{columns}}}, filename=true, hive_partitioning=false) d
                  JOIN files f USING (filename) WHERE d.{direction} IS NOT NULL"""
        files = each_readable(files, lambda part, sql=sql: db.execute(sql, [patterns(part)]), warnings)  # type: ignore[misc]


def _sql_text(text: str) -> str:
    return text.replace("'", "''")
