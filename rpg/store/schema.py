"""Tables and views of the results database, with the meaning of every column.

A test compares docs/database.md with them.
"""

import re
from pathlib import Path

from rpg.metrics import METRICS

VERSION = 8  # raise it when a table changes: databases of another version are rebuilt from the run folders

CREATE_TABLES = Path(__file__).with_suffix(".sql").read_text("utf-8")
_COLUMN = re.compile(r"^    (\w+) (\S+?),?  -- (.*)$", re.MULTILINE)

TABLES: dict[str, dict[str, tuple[str, str]]] = {
    table: {name: (kind, meaning) for name, kind, meaning in _COLUMN.findall(columns)}
    for table, columns in re.findall(
        r"^CREATE TABLE (\w+) \(\n(.*?)^\);", CREATE_TABLES, re.MULTILINE | re.DOTALL
    )
}
"""Table -> column -> (type, meaning), from schema.sql."""

# Columns of `metrics` that are not measurements. Measurements become DOUBLE columns as they appear in the files.
KEYS = tuple(TABLES["metrics"])

VIEWS: dict[str, tuple[str, str]] = {
    "curves": (
        "`metrics` of the sweeps' current runs in long form: one row per run, step and metric, with variant and seed",
        """SELECT r.variant, r.seed, u.* FROM
           (UNPIVOT metrics ON COLUMNS(* EXCLUDE ({keys})) INTO NAME metric VALUE value) u
           JOIN runs r USING (sweep, run) WHERE r.superseded IS NULL""",
    ),
    "problems": (
        "per problem of each evaluation: samples, correct ones, and their share",
        """SELECT sweep, run, benchmark, step, problem_id, count(*)::INTEGER AS samples,
                  sum(correct::INTEGER)::INTEGER AS correct, avg(correct::INTEGER) AS accuracy
           FROM samples GROUP BY ALL""",
    ),
    "every_score": (
        "`scores` of the current and of the superseded runs, each under its own variant",
        """SELECT r.variant, r.seed, e.sweep, e.run, e.benchmark, e.step, e.accuracy, e.pass_at_k, e.maj_at_k
           FROM evals e JOIN runs r USING (sweep, run)
           UNION ALL
           SELECT any_value(r.variant), any_value(r.seed), e.sweep, e.run, 'mean', e.step, avg(e.accuracy),
                  avg(e.pass_at_k), avg(e.maj_at_k)
           FROM evals e JOIN (SELECT * REPLACE (CASE WHEN imported IS NULL THEN benchmarks ELSE judged END AS benchmarks)
                              FROM runs LEFT JOIN (SELECT sweep, benchmarks AS judged FROM sweeps) USING (sweep)) r
                USING (sweep, run)
           WHERE list_contains(r.benchmarks, e.benchmark)
           GROUP BY e.sweep, e.run, e.step
           HAVING count(*) = any_value(len(r.benchmarks))""",
    ),
    "scores": (
        "`evals` of the sweeps' current runs with variant and seed, and a benchmark `mean`: the mean over the run's "
        "benchmarks (an imported run's: the sweep's), at steps that have them all",
        """SELECT s.* FROM every_score s JOIN runs r USING (sweep, run) WHERE r.superseded IS NULL""",
    ),
    "frontier": (
        "`scores` of benchmark `mean` beside the KL between policy and initial model in both directions, means over the "
        "benchmarks, nats per response and per token with standard errors",
        """SELECT s.sweep, s.run, s.variant, s.seed, s.step, any_value(s.accuracy) AS accuracy,
                  any_value(s.pass_at_k) AS pass_at_k, any_value(s.maj_at_k) AS maj_at_k, d.direction,
                  avg(d.per_response) AS per_response,
                  sqrt(sum(d.per_response_se ** 2)) / count(*) AS per_response_se,
                  avg(d.per_token) AS per_token, sqrt(sum(d.per_token_se ** 2)) / count(*) AS per_token_se
           FROM scores s JOIN drift d USING (sweep, run, step) JOIN runs r USING (sweep, run)
           WHERE s.benchmark = 'mean' AND list_contains(r.benchmarks, d.benchmark)
           GROUP BY s.sweep, s.run, s.variant, s.seed, s.step, d.direction""",
    ),
    "last_best": (
        "per run and benchmark (and `mean`): first, last and best accuracy and their steps; best is the "
        "maximum over checkpoints, hence optimistic",
        """SELECT sweep, run, variant, seed, benchmark,
                  min(step) AS first_step, arg_min(accuracy, step) AS first,
                  max(step) AS last_step, arg_max(accuracy, step) AS last,
                  min_by(step, (-accuracy, step)) AS best_step, max(accuracy) AS best
           FROM scores GROUP BY sweep, run, variant, seed, benchmark""",
    ),
    "paired": (
        "per problem, at the last step both have: accuracy of a variant and of the sweep's baseline with the "
        "same seed, and their difference",
        """WITH both_have AS (
             SELECT v.sweep, v.run, b.run AS baseline_run, v.variant, b.variant AS baseline, v.seed,
                    e.benchmark, max(e.step) AS step
             FROM runs v
             JOIN sweeps s USING (sweep)
             JOIN runs b ON (b.sweep, b.variant, b.seed) = (v.sweep, s.baseline, v.seed)
             JOIN evals e ON (e.sweep, e.run) = (v.sweep, v.run)
             JOIN evals f ON (f.sweep, f.run, f.benchmark, f.step) = (b.sweep, b.run, e.benchmark, e.step)
             WHERE v.variant <> s.baseline AND v.superseded IS NULL AND b.superseded IS NULL
             GROUP BY ALL)
           SELECT t.sweep, t.variant, t.baseline, t.seed, t.benchmark, t.step, p.problem_id, p.accuracy,
                  q.accuracy AS baseline_accuracy, p.accuracy - q.accuracy AS difference
           FROM both_have t
           JOIN problems p USING (sweep, run, benchmark, step)
           JOIN problems q ON (q.sweep, q.run, q.benchmark, q.step, q.problem_id)
                            = (t.sweep, t.baseline_run, t.benchmark, t.step, p.problem_id)""",
    ),
}


def quote(name: str) -> str:
    """A name as an SQL identifier, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def create_views(measurements: bool) -> str:
    """SQL that creates the views; without measurement columns there is nothing to unpivot in `curves`."""
    views = {name: sql.format(keys=", ".join(KEYS)) for name, (_, sql) in VIEWS.items()}
    if not measurements:
        columns = ("variant", "seed", *KEYS, "metric", "value")
        views["curves"] = "SELECT " + ", ".join(f"NULL AS {name}" for name in columns) + " WHERE false"
    return "".join(f"CREATE OR REPLACE VIEW {name} AS {sql};" for name, sql in views.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def documentation() -> str:
    """The tables and views as Markdown, as docs/database.md holds them."""
    lines = []
    for table, columns in TABLES.items():
        lines += [f"### `{table}`", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in columns.items()]
        if table == "metrics":
            lines += [f"| `{name}` | DOUBLE | {_cell(m.meaning)} |" for name, m in METRICS.items()]
        lines.append("")
    lines += ["### Views", "", "| view | rows |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, (meaning, _) in VIEWS.items()]
    return "\n".join(lines) + "\n"
