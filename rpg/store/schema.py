"""Tables and views of the results database, with the meaning of every column.

docs/database.md is checked against this file by a test.
"""

from rpg.metrics import METRICS

VERSION = 8  # raise it when a table changes: databases of another version are rebuilt from the run folders

TABLES: dict[str, dict[str, tuple[str, str]]] = {
    "meta": {
        "schema_version": ("INTEGER", "version of these tables"),
        "built": ("DOUBLE", "when this version was built (unix seconds)"),
        "fingerprint": ("VARCHAR", "what the sweep files and audits looked like when read"),
    },
    "sweeps": {
        "sweep": ("VARCHAR", "name of the sweep, its folder under runs/"),
        "created": ("DOUBLE", "when it was begun (unix seconds)"),
        "baseline": ("VARCHAR", "variant that the others are compared with, or null"),
        "source": ("VARCHAR", "the sweep's YAML"),
        "benchmarks": ("VARCHAR[]", "benchmarks its checkpoints are evaluated on"),
        "runs": ("INTEGER", "runs of its newest file, begun or not"),
        "superseded": ("INTEGER", "older runs of the same name that are still on disk"),
    },
    "runs": {
        "sweep": ("VARCHAR", "sweep of the run"),
        "run": ("VARCHAR", "folder name of the run; (sweep, run) identifies it everywhere"),
        "run_id": ("VARCHAR", "hash of its resolved settings and data"),
        "variant": ("VARCHAR", "what is compared: the settings without the seed; null until the run began"),
        "superseded": (
            "VARCHAR",
            "null for the runs of the sweep's newest file; else in which settings this older run differs from them: "
            "it is in no view of means and has a variant of its own",
        ),
        "planned_variant": (
            "VARCHAR",
            "variant under which it was begun; another only where it is superseded",
        ),
        "algorithm": ("VARCHAR", "catalogue name of the algorithm"),
        "display_name": ("VARCHAR", "the algorithm's name as papers write it"),
        "seed": ("BIGINT", "seed; the same seed of two variants has the same data order and warm start"),
        "axes": ("JSON", "the sweep's axes and this run's values"),
        "identity": ("JSON", "what run_id is a hash of: the settings that train it, and the data"),
        "state": ("VARCHAR", "pending, running, done, failed or interrupted, when the database was built"),
        "error": ("VARCHAR", "one line, when it failed"),
        "log": ("VARCHAR", "log file of the failure"),
        "steps": ("BIGINT", "training steps it shall have"),
        "step": ("BIGINT", "last step in its metrics"),
        "benchmarks": ("VARCHAR[]", "benchmarks of the run"),
        "created": ("DOUBLE", "when the manifest was written (unix seconds)"),
        "finished": ("DOUBLE", "when it was done (unix seconds)"),
        "seconds": ("DOUBLE", "seconds of work until done, all attempts together"),
        "attempts": ("INTEGER", "attempts that wrote metrics"),
        "outdated": (
            "JSON",
            "of a run that `rpg sweep --fresh` set aside: its code, and the files that have changed",
        ),
        "code": (
            "VARCHAR",
            "digest of the source files its newest attempt imported; null where it is not recorded",
        ),
        "git_revision": ("VARCHAR", "revision of the checkout, `+` where files were edited"),
        "versions": ("JSON", "versions of the libraries"),
        "machine": ("JSON", "the machine"),
        "spec": ("JSON", "the resolved settings"),
        "imported": (
            "JSON",
            "where a run comes from that was trained elsewhere (rpg import); null for one's own",
        ),
        "fingerprint": ("VARCHAR", "what the run's files looked like when read (names, sizes, times)"),
    },
    "metrics": {
        "sweep": ("VARCHAR", "sweep of the run"),
        "run": ("VARCHAR", "run"),
        "attempt": ("INTEGER", "attempt that wrote this step (the highest one that did)"),
        "step": ("BIGINT", "training step: one rollout and its updates"),
        "optimizer_step": ("BIGINT", "optimizer steps taken so far"),
        "time": ("DOUBLE", "when the step ended (unix seconds)"),
    },
    "attempts": {
        "sweep": ("VARCHAR", "sweep of the run"),
        "run": ("VARCHAR", "run"),
        "attempt": ("INTEGER", "attempt of which steps count"),
        "code": ("VARCHAR", "digest of the source files it imported; null where it is not recorded"),
        "git_revision": ("VARCHAR", "revision of the checkout, `+` where files were edited"),
        "versions": ("JSON", "versions of the packages that its numbers depend on"),
        "machine": ("JSON", "the machine it ran on"),
        "begun": ("DOUBLE", "when it ended its first step (unix seconds)"),
    },
    "sources": {
        "code": ("VARCHAR", "digest of all files together"),
        "file": ("VARCHAR", "source file, from the folder in which the package `rpg` lies"),
        "digest": ("VARCHAR", "digest of its text"),
    },
    "samples": {
        "sweep": ("VARCHAR", "sweep of the run"),
        "run": ("VARCHAR", "run"),
        "benchmark": ("VARCHAR", "benchmark"),
        "step": ("BIGINT", "training step of the checkpoint"),
        "problem_id": ("VARCHAR", "problem"),
        "sample": ("INTEGER", "number of the sample, from 0"),
        "correct": ("BOOLEAN", "whether the verifier accepted the answer"),
        "extracted": ("VARCHAR", "answer found in the response, null when there was none"),
        "reason": ("VARCHAR", "why the verifier decided so"),
        "tokens": ("INTEGER", "tokens of the response"),
        "truncated": ("BOOLEAN", "whether the response hit the length limit"),
        "reward": (
            "DOUBLE",
            "what it earned, all parts of the reward; null where that is the verifier's verdict alone",
        ),
    },
    "evals": {
        "sweep": ("VARCHAR", "sweep of the run"),
        "run": ("VARCHAR", "run"),
        "benchmark": ("VARCHAR", "benchmark"),
        "step": ("BIGINT", "training step of the checkpoint"),
        "problems": ("INTEGER", "problems that were evaluated"),
        "k": ("INTEGER", "samples per problem (the smallest number)"),
        "accuracy": ("DOUBLE", "mean@k: mean over problems of the share of correct samples"),
        "standard_error": ("DOUBLE", "of mean@k over problems (samples of a problem are not independent)"),
        "pass_at_k": ("DOUBLE", "chance that one of k samples is right, unbiased, mean over problems"),
        "maj_at_k": ("DOUBLE", "share of problems whose most frequent answer is right, ties shared"),
        "tokens": ("DOUBLE", "mean tokens per response"),
        "truncated": ("DOUBLE", "share of responses that hit the length limit"),
        "reward": (
            "DOUBLE",
            "mean over problems of the samples' reward; null where that is the verifier's verdict alone",
        ),
        "rules": ("VARCHAR", "rules by which answers were graded (docs/grading.md); null in old files"),
    },
    "marks": {
        "sweep": ("VARCHAR", "sweep"),
        "run": ("VARCHAR", "run, or null: the mark is the sweep's"),
        "tags": ("VARCHAR[]", "tags (rpg tag)"),
        "notes": ("VARCHAR", "notes, a line each (rpg note)"),
    },
    "drift": {
        "sweep": ("VARCHAR", "sweep of the run"),
        "run": ("VARCHAR", "run"),
        "benchmark": ("VARCHAR", "benchmark whose problems the responses answer"),
        "step": ("BIGINT", "training step of the checkpoint"),
        "direction": (
            "VARCHAR",
            "policy_to_initial: KL(policy || initial model); initial_to_policy: the other way",
        ),
        "per_response": (
            "DOUBLE",
            "KL between whole responses, nats: mean over responses of the first of the two",
        ),
        "per_response_se": ("DOUBLE", "its standard error over problems"),
        "per_token": ("DOUBLE", "the same per token, nats"),
        "per_token_se": ("DOUBLE", "its standard error over problems"),
        "responses": ("BIGINT", "responses it was measured on"),
        "problems": ("BIGINT", "problems they answer"),
    },
    "audits": {
        "name": ("VARCHAR", "file name without .json under audits/"),
        "report": ("JSON", "the audit's report"),
    },
    "warnings": {
        "sweep": ("VARCHAR", "sweep"),
        "run": ("VARCHAR", "run, or null"),
        "message": ("VARCHAR", "what could not be read, in one line"),
    },
}
# Columns of `metrics` that are not measurements. Those become DOUBLE columns as they appear in the files;
# rpg.metrics knows what the trainers' own mean.
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


def create_tables() -> str:
    """SQL that creates the empty tables."""
    return "".join(
        f"CREATE TABLE {table} ({', '.join(f'{quote(name)} {kind}' for name, (kind, _) in columns.items())});"
        for table, columns in TABLES.items()
    )


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
