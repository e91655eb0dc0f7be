"""Queries of the results database, answered as pandas frames. Values are bound, never inserted into
the SQL text."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas

from rpg.stats import t_quantile
from rpg.store.run_provenance import differences as provenance_differences
from rpg.store.schema import KEYS, quote

Database = duckdb.DuckDBPyConnection
"""A connection to the results database."""

POINTS = 200  # points per curve: more are indistinguishable on a screen and make pages slow

# What can stand on the x axis, as an SQL expression over `metrics m` (`w`: over the steps of one
# run, in order).
AXES = {
    "step": "m.step",
    "optimizer_step": "m.optimizer_step",
    "tokens": "m.tokens",
    "hours": "sum(m.seconds_step) OVER w / 3600",
}


class Series(NamedTuple):
    """A curve: a variant of a sweep, over its seeds."""

    sweep: str
    variant: str


def frame(db: Database, sql: str, parameters: Sequence[Any] = ()) -> pandas.DataFrame:
    try:
        return db.execute(sql, list(parameters)).df()
    except (duckdb.InterruptException, RuntimeError) as error:
        if "interrupted" in str(error).lower():  # DuckDB's words for Ctrl-C
            raise KeyboardInterrupt from None
        raise


def sweeps(db: Database) -> pandas.DataFrame:
    """One row per sweep, newest first, with the number of its runs in each state; and what people
    have added to it: its label, the tags and notes of it and of its runs, as texts, empty if there
    are none."""
    states = ("done", "running", "failed", "interrupted", "pending")
    counts = ", ".join(
        f"count(r.run) FILTER (r.state = '{state}')::INTEGER AS {state}" for state in states
    )
    return frame(
        db,
        f"""WITH added AS (
                SELECT sweep, any_value(label) FILTER (run IS NULL) AS label,
                       array_to_string(list_sort(list_distinct(flatten(list(tags)))), ', ') AS tags,
                       string_agg(notes, chr(10) ORDER BY run NULLS FIRST) AS notes
                FROM marks GROUP BY sweep)
            SELECT s.sweep, s.baseline, coalesce(s.description, '') AS description, s.benchmarks,
                s.created,
                   s.runs, s.superseded, {counts}, count(DISTINCT r.variant)::INTEGER AS variants,
                   coalesce(a.label, '') AS label, coalesce(a.tags, '') AS tags,
                       coalesce(a.notes, '') AS notes
            FROM sweeps s LEFT JOIN runs r ON r.sweep = s.sweep AND r.superseded IS NULL
                          LEFT JOIN added a ON a.sweep = s.sweep
            GROUP BY ALL ORDER BY s.created DESC NULLS LAST, s.sweep""",
    )


def runs(db: Database, sweep: str, superseded: bool = False) -> pandas.DataFrame:
    """The current runs of a sweep without their settings, by variant and seed; optionally the
    superseded ones after them."""
    return frame(
        db,
        """SELECT sweep, run, variant, algorithm, display_name, seed, state, error, log, step,
           steps,
                  benchmarks, created, finished, seconds, attempts, superseded,
                      imported->>'$.from' AS imported
           FROM runs WHERE sweep = $1 AND ($2 OR superseded IS NULL)
           ORDER BY superseded NULLS FIRST, variant, seed, run""",
        [sweep, superseded],
    )


def manifests(db: Database, sweep: str) -> dict[str, dict[str, Any]]:
    """Current run that has begun here -> what distinguishes it: variant, seed, run_id, axes, spec
    and identity."""
    rows = db.execute(
        """SELECT run, variant, seed, run_id, axes, spec, identity FROM runs
           WHERE sweep = ? AND superseded IS NULL AND variant IS NOT NULL AND imported IS NULL
               ORDER BY run""",
        [sweep],
    )
    names = ("axes", "spec", "identity")
    return {
        run: {"variant": variant, "seed": seed, "run_id": run_id}
        | {name: json.loads(text or "null") or {} for name, text in zip(names, texts, strict=True)}
        for run, variant, seed, run_id, *texts in rows.fetchall()
    }


def provenance(db: Database, sweep: str) -> dict[str, list[dict[str, Any]]]:
    """Current run that has begun -> what its attempts were computed with
    (rpg.store.run_provenance.Record), oldest first."""
    rows = db.execute(
        """SELECT a.run, a.code, a.git_revision, a.versions, a.machine FROM attempts a JOIN runs r
           USING (sweep, run)
           WHERE a.sweep = ? AND r.superseded IS NULL AND r.imported IS NULL
               ORDER BY a.run, a.attempt""",
        [sweep],
    ).fetchall()
    files: dict[str, dict[str, str]] = {}
    codes = list({code for _, code, *_ in rows if code is not None})
    sources = db.execute("SELECT * FROM sources WHERE list_contains(?, code)", [codes])
    for code, file, digest in sources.fetchall():
        files.setdefault(code, {})[file] = digest
    records: dict[str, list[dict[str, Any]]] = {}
    for name, code, revision, versions, machine in rows:
        record = {"code": code, "git_revision": revision, "sources": files.get(code, {})}
        record |= {"versions": json.loads(versions or "{}"), "machine": json.loads(machine or "{}")}
        records.setdefault(name, []).append(record if code is not None else {})
    return records


def differences(db: Database, sweep: str) -> list[str]:
    """Notes on the differences in what the current runs of a sweep were computed with."""
    return provenance_differences(provenance(db, sweep))


def run(db: Database, sweep: str, name: str) -> dict[str, Any] | None:
    """All columns of one run, or None."""
    rows = frame(db, "SELECT * FROM runs WHERE sweep = ? AND run = ?", [sweep, name])
    return None if rows.empty else rows.iloc[0].to_dict()


def warnings(db: Database) -> list[str]:
    """What could not be read, one line each."""
    return [*frame(db, "SELECT message FROM warnings ORDER BY sweep, run, message")["message"]]


def metric_names(db: Database) -> list[str]:
    """Measurements in the database, in the order of their columns."""
    return [name for name, *_ in db.execute("DESCRIBE metrics").fetchall() if name not in KEYS]


def variants(db: Database, names: Sequence[str]) -> pandas.DataFrame:
    """Variants of these sweeps: sweep, variant, algorithm behind it, its display_name, number of
    seeds. Superseded runs have variants of their own, which are left out."""
    return frame(
        db,
        """SELECT sweep, variant, any_value(algorithm) AS algorithm,
           any_value(display_name) AS display_name,
                  count(*)::INTEGER AS seeds, any_value(s.labels)::VARCHAR AS labels
           FROM runs r LEFT JOIN sweeps s USING (sweep)
           WHERE list_contains($1, sweep) AND variant IS NOT NULL AND r.superseded IS NULL
           GROUP BY ALL ORDER BY sweep, variant""",
        [list(names)],
    )


def references(db: Database, names: Sequence[str]) -> dict[tuple[str, str], str]:
    """(sweep, variant) -> the policy that its runs measured a KL against as the reference, in
    words, from the age that they wrote at each step: without a KL, or with beta 0, it is the old
    policy, whatever their settings say."""
    age = "reference_age" if "reference_age" in metric_names(db) else "NULL::DOUBLE"
    rows = db.execute(
        f"""WITH steps AS (
               SELECT sweep, run, {age} AS age,
                      coalesce(lag(optimizer_step) OVER (PARTITION BY sweep, run ORDER BY step),
                          0) AS before
               FROM metrics WHERE list_contains($1, sweep))
           SELECT r.sweep, r.variant, any_value(r.spec->'$.algorithm.reference'),
               bool_and(age = before), bool_and(age = 0)
           FROM runs r LEFT JOIN steps USING (sweep, run)
           WHERE list_contains($1, r.sweep) AND r.variant IS NOT NULL GROUP BY ALL""",
        [list(names)],
    )
    schedules = {
        "every_k": "renewed every {k} optimizer steps",
        "kl_above": "renewed at a KL of {kappa}",
    }
    references = {}
    for sweep, variant, text, initial, old in rows.fetchall():
        schedule = {"k": "?", "kappa": "?", **(json.loads(text or "null") or {})}
        renewed = schedules.get(str(schedule.get("type")), "renewed now and then").format_map(
            schedule
        )
        first = "the teacher" if schedule.get("type") == "model" else "the initial model"
        settled = first if initial else "the old policy" if old else renewed
        references[sweep, variant] = "unknown" if initial is None else settled
    return references


def benchmarks(db: Database, names: Sequence[str]) -> list[str]:
    """Benchmarks of the current runs of these sweeps, in the order in which they name them; those
    that only imported runs have come last, and those that no run names any more are left out."""
    rows = db.execute(
        """WITH listed AS (SELECT sweep, unnest(benchmarks) AS benchmark,
           generate_subscripts(benchmarks, 1) AS place,
                                  imported IS NULL AS own FROM runs WHERE superseded IS NULL)
           SELECT e.benchmark FROM evals e JOIN listed l USING (sweep, benchmark)
           WHERE list_contains($1, e.sweep) GROUP BY ALL
           ORDER BY min(l.place) FILTER (own) NULLS LAST, min(l.place), e.benchmark""",
        [list(names)],
    )
    return [name for (name,) in rows.fetchall()]


def metric_curves(
    db: Database,
    series: Sequence[Series],
    metrics: Sequence[str],
    x: str = "step",
    points: int | None = POINTS,
    each_seed: bool = False,
) -> pandas.DataFrame:
    """Curves of metrics: mean and 95 % t interval over seeds.

    Columns: metric, sweep, variant, x, step, mean, low, high, seeds, width. Runs longer than
    `points` steps are averaged over `width` neighbouring steps first; None keeps every step. Where
    a seed's value is not finite the mean is null. `each_seed`: a curve for every seed instead, with
    the column seed. Raises KeyError for an unknown metric or axis.
    """
    seed = ", seed" if each_seed else ""
    recorded = set(metric_names(db))
    for name in metrics:
        if name not in recorded:
            raise KeyError(f"unknown metric {name!r}")
    if not metrics or not series:
        return pandas.DataFrame(columns="metric sweep variant x step mean low high seeds".split())
    axis = _axis(x, recorded)
    columns = ", ".join(quote(name) for name in metrics)
    curves = frame(
        db,
        f"""WITH {_CHOSEN}, base AS (
              SELECT m.sweep, m.run, r.variant, r.seed, m.step, ({axis})::DOUBLE AS "x axis",
                  {columns}
              FROM metrics m JOIN runs r USING (sweep, run) JOIN chosen USING (sweep, variant)
              WINDOW w AS (PARTITION BY m.sweep, m.run ORDER BY m.step)),
            wide AS (SELECT greatest(1, ceil(max(step) / $3::DOUBLE))::BIGINT AS width FROM base),
            long AS (UNPIVOT base ON {columns} INTO NAME metric VALUE value),
            thin AS (
              SELECT metric, sweep, variant, seed, run, width, (step - 1) // width AS bin,
                     avg(step) AS step, avg("x axis") AS x,
                     CASE WHEN bool_and(isfinite(value)) THEN avg(value) FILTER (isfinite(value))
                         END AS value
              FROM long, wide GROUP BY metric, sweep, variant, seed, run, width, bin)
            SELECT metric, sweep, variant{seed}, avg(x) AS x, avg(step) AS step,
                   CASE WHEN count(value) = count(*) THEN avg(value) END AS mean,
                   stddev_samp(value) AS spread, min(value) AS lowest, max(value) AS highest,
                   count(*)::INTEGER AS seeds, any_value(width) AS width
            FROM thin GROUP BY metric, sweep, variant{seed}, bin
                ORDER BY metric, sweep, variant{seed}, bin""",
        [*_columns(series, 2), points or 10**9],
    )
    return _with_interval(curves)


def score_curves(
    db: Database,
    series: Sequence[Series],
    names: Sequence[str],
    x: str = "step",
    each_seed: bool = False,
) -> pandas.DataFrame:
    """Accuracy (mean@k) against training: mean and 95 % t interval over seeds.

    `names`: benchmarks, among them `mean` for the mean over a run's benchmarks. Columns: benchmark,
    sweep, variant, x, step, mean, low, high, seeds. `each_seed`: a curve for every seed instead,
    with the column seed.
    """
    seed = ", s.seed" if each_seed else ""
    axis = _axis(x, set(metric_names(db)))
    curves = frame(
        db,
        f"""WITH {_CHOSEN}, axis AS (
              SELECT m.sweep, m.run, m.step, ({axis})::DOUBLE AS x
              FROM metrics m JOIN runs r USING (sweep, run) JOIN chosen USING (sweep, variant)
              WINDOW w AS (PARTITION BY m.sweep, m.run ORDER BY m.step))
            SELECT s.benchmark, s.sweep, s.variant{seed}, s.step,
                   avg(CASE WHEN s.step = 0 THEN 0 ELSE a.x END) AS x,
                   avg(s.accuracy) AS mean, stddev_samp(s.accuracy) AS spread,
                   min(s.accuracy) AS lowest, max(s.accuracy) AS highest, count(*)::INTEGER AS seeds
            FROM every_score s JOIN chosen USING (sweep, variant) LEFT JOIN axis a
                USING (sweep, run, step)
            WHERE list_contains($3, s.benchmark)
            GROUP BY s.benchmark, s.sweep, s.variant{seed}, s.step
            ORDER BY s.benchmark, s.sweep, s.variant{seed}, s.step""",
        [*_columns(series, 2), list(names)],
    )
    return _with_interval(curves)


def scores(db: Database, sweep: str) -> pandas.DataFrame:
    """Every evaluation of a sweep, `mean` included: run, variant, seed, benchmark, step and the
    scores."""
    return frame(
        db,
        """SELECT run, variant, seed, benchmark, step, accuracy, pass_at_k, maj_at_k, unread
           FROM scores WHERE sweep = ? AND variant IS NOT NULL
               ORDER BY variant, seed, run, benchmark, step""",
        [sweep],
    )


def rules(db: Database, sweep: str) -> list[str]:
    """Names of the rules by which answers of the sweep's current runs were graded, as far as the
    files record them."""
    rows = db.execute(
        """SELECT DISTINCT e.rules FROM evals e JOIN runs r USING (sweep, run)
           WHERE e.sweep = ? AND e.rules IS NOT NULL AND r.superseded IS NULL ORDER BY 1""",
        [sweep],
    )
    return [name for (name,) in rows.fetchall()]


def problem_scores(
    db: Database, sweep: str, checkpoints: Sequence[tuple[str, int]]
) -> pandas.DataFrame:
    """Per problem of these (run, step): run, step, benchmark, problem_id, accuracy, samples,
    cluster (null for problems that stand for themselves)."""
    return frame(
        db,
        """SELECT run, step, benchmark, problem_id, avg(correct::INTEGER) AS accuracy,
           count(*)::INTEGER AS samples,
                  max(cluster) AS cluster
           FROM samples JOIN (SELECT unnest($1::VARCHAR[]) AS run, unnest($2::BIGINT[]) AS step)
               USING (run, step)
           WHERE sweep = $3 GROUP BY ALL ORDER BY ALL""",
        [*_columns(checkpoints, 2), sweep],
    )


def spending(db: Database, sweep: str) -> pandas.DataFrame:
    """What runs had spent at their evaluated steps: run, step, responses, tokens, updates, seconds
    (null if unknown)."""
    recorded = set(metric_names(db))
    names = ("tokens", "seconds_step", "groups_sampled")
    tokens, seconds, groups = (name if name in recorded else "NULL" for name in names)
    return frame(
        db,
        f"""WITH spent AS (
              SELECT m.run, m.step, m.optimizer_step AS updates, m.{tokens} AS tokens,
                  sum({seconds}) OVER w AS seconds,
                     sum({groups}) OVER w * (r.spec->>'$.rollout.group_size')::DOUBLE AS responses
              FROM metrics m JOIN runs r USING (sweep, run) WHERE m.sweep = $1
              WINDOW w AS (PARTITION BY m.run ORDER BY m.step))
            SELECT run, step, responses::DOUBLE AS responses, tokens::DOUBLE AS tokens,
                updates::DOUBLE AS updates,
                   seconds::DOUBLE AS seconds
            FROM spent SEMI JOIN (SELECT run, step FROM evals WHERE sweep = $1) USING (run, step)
                WHERE step > 0
            UNION ALL SELECT DISTINCT run, 0, 0, 0, 0, 0 FROM evals WHERE sweep = $1 AND step = 0
            ORDER BY run, step""".replace("m.NULL", "NULL"),
        [sweep],
    )


def frontier(db: Database, sweep: str) -> pandas.DataFrame:
    """Accuracy and KL to the initial model of every evaluated checkpoint: run, variant, seed, step,
    direction, accuracy, pass_at_k, maj_at_k, and per_response and per_token in nats."""
    return frame(
        db,
        """SELECT run, variant, seed, step, direction, accuracy, pass_at_k, maj_at_k, per_response,
           per_token
           FROM frontier WHERE sweep = ? AND variant IS NOT NULL
               ORDER BY variant, seed, step, direction""",
        [sweep],
    )


def answers(db: Database, sweep: str, checkpoints: Sequence[tuple[str, int]]) -> pandas.DataFrame:
    """Every graded sample of these (run, step): run, benchmark, problem_id, extracted, its vote,
    correct, in this order."""
    return frame(
        db,
        """SELECT run, benchmark, problem_id, extracted, vote, correct
           FROM samples JOIN (SELECT unnest($1::VARCHAR[]) AS run, unnest($2::BIGINT[]) AS step)
               USING (run, step)
                LEFT JOIN votes USING (extracted) WHERE sweep = $3
                    ORDER BY run, benchmark, problem_id, sample""",
        [*_columns(checkpoints, 2), sweep],
    )


def run_metrics(db: Database, sweep: str, name: str) -> pandas.DataFrame:
    """Every measurement of one run, by step."""
    return frame(
        db, "SELECT * FROM metrics WHERE sweep = ? AND run = ? ORDER BY step", [sweep, name]
    )


def run_evals(db: Database, sweep: str, name: str) -> pandas.DataFrame:
    """Every evaluation of one run."""
    sql = "SELECT * FROM evals WHERE sweep = ? AND run = ? ORDER BY benchmark, step"
    return frame(db, sql, [sweep, name])


def evaluations(db: Database) -> pandas.DataFrame:
    """Every evaluation with where it comes from, those by hand first."""
    return frame(
        db,
        """SELECT model, benchmark, origin, k, problems, accuracy, standard_error, pass_at_k,
           maj_at_k, tokens, truncated,
                  unread, second_reading, engine, rules, draws, sweep, run, step
           FROM evals ORDER BY origin = 'sweep', origin, model, benchmark, k""",
    )


def health_metrics(
    db: Database, sweep: str, first: int, last: int
) -> dict[str, list[dict[str, Any]]]:
    """Current run -> its `first` and `last` steps with every measurement (no others: runs may have
    thousands)."""
    cursor = db.execute(
        """SELECT m.* EXCLUDE (sweep, attempt) FROM metrics m JOIN runs r USING (sweep, run)
           WHERE r.sweep = $1 AND r.superseded IS NULL
           QUALIFY m.step <= $2 OR row_number() OVER (PARTITION BY m.run ORDER BY m.step DESC) <= $3
           ORDER BY m.run, m.step""",
        [sweep, first, last],
    )
    names = [column[0] for column in cursor.description or ()]
    rows: dict[str, list[dict[str, Any]]] = {}
    for values in cursor.fetchall():  # a data frame would turn missing values into NaN
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        rows.setdefault(str(row["run"]), []).append(row)
    return rows


def identical_variants(db: Database, sweep: str) -> list[list[str]]:
    """Groups of variants whose runs agree in every number of every step (but times) and in every
    graded sample."""
    numbers = [
        name for name in metric_names(db) if name != "tokens_per_second" and "seconds" not in name
    ]
    groups = db.execute(
        f"""WITH trained AS (SELECT run,
            bit_xor(hash({", ".join(map(quote, ["step", *numbers]))})) AS digest
                          FROM metrics WHERE sweep = $1 GROUP BY run),
               evaluated AS (SELECT run, bit_xor(hash(benchmark, step, problem_id, sample, correct,
                   extracted, tokens))
                                    AS digest FROM samples WHERE sweep = $1 GROUP BY run),
               digests AS (SELECT r.variant, list((r.seed, t.digest, e.digest)
                   ORDER BY r.seed) AS digest
                           FROM runs r JOIN trained t USING (run) JOIN evaluated e USING (run)
                           WHERE r.sweep = $1 AND r.superseded IS NULL GROUP BY r.variant)
            SELECT list(variant ORDER BY variant) FROM digests GROUP BY digest HAVING count(*) > 1
                ORDER BY ALL""",
        [sweep],
    )
    return [variants for (variants,) in groups.fetchall()]


def without_answer(db: Database, sweep: str) -> pandas.DataFrame:
    """For each current run's last evaluation of a benchmark: run, benchmark, step, share of samples
    without an answer (missing), share with one that could not be read (unread), the ten most
    frequent reasons for that (forms), accuracy, and accuracy with what a second reader made of
    those (second_reading), and the most frequent answer (answer) with its share of the samples
    (repeated; 0 with fewer than eight problems, which may have it in common). Where the reward
    decides what is right (rpg.tasks.rewards.graders), no answer is extracted.
    """
    return frame(
        db,
        """SELECT s.run, s.benchmark, s.step, avg((s.extracted IS NULL)::INTEGER) AS missing,
           any_value(e.unread) AS unread,
                  map_entries(histogram(s.unread) FILTER (s.unread IS NOT NULL)) AS forms,
                      any_value(e.accuracy) AS accuracy,
                  any_value(e.second_reading) AS second_reading, mode(s.extracted) AS answer,
                  CASE WHEN count(DISTINCT s.problem_id) < 8 THEN 0
                       ELSE coalesce(list_max(map_values(histogram(s.extracted))), 0) / count(*)
                           END AS repeated
           FROM samples s JOIN evals e USING (sweep, run, benchmark, step) JOIN runs r
               USING (sweep, run)
           WHERE r.sweep = $1 AND r.superseded IS NULL AND NOT starts_with(coalesce(e.rules, ''),
               'reward>=')
           GROUP BY s.run, s.benchmark, s.step
           QUALIFY row_number() OVER (PARTITION BY s.run, s.benchmark ORDER BY s.step DESC) = 1
           ORDER BY ALL""",
        [sweep],
    )


def marks(db: Database) -> dict[str, tuple[str, list[str]]]:
    """SWEEP or SWEEP/RUN -> (label, tags)."""
    rows = db.execute("SELECT concat_ws('/', sweep, run), label, tags FROM marks").fetchall()
    return {name: (label, tags) for name, label, tags in rows}


def audits(db: Database) -> dict[str, str]:
    """Audit reports: name to JSON."""
    return dict(db.execute("SELECT name, report FROM audits ORDER BY name").fetchall())


def _axis(x: str, metrics: set[str]) -> str:
    """The SQL expression of an axis; NULL if the metric that it needs is not in the database."""
    needed = {"tokens": "tokens", "hours": "seconds_step"}.get(x)
    return AXES[x] if needed is None or needed in metrics else "NULL"


_CHOSEN = "chosen AS (SELECT unnest($1::VARCHAR[]) AS sweep, unnest($2::VARCHAR[]) AS variant)"


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Rows as a list for each of `count` columns, which can be bound."""
    return [[row[column] for row in rows] for column in range(count)]


def _with_interval(curves: pandas.DataFrame) -> pandas.DataFrame:
    """Replace `spread` by the bounds of Student's interval over seeds (null for one seed)."""
    half = t_quantile(curves["seeds"] - 1) * curves.pop("spread") / np.sqrt(curves["seeds"])
    place = curves.columns.get_loc("mean") + 1
    curves.insert(place, "low", curves["mean"] - half)
    curves.insert(place + 1, "high", curves["mean"] + half)
    return curves
