"""Queries of what runs measured: curves, evaluations, spending, answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas

from rpg.stats import t_quantile
from rpg.store.frames import Database, Series, columns, frame, metric_names
from rpg.store.schema import quote

POINTS = 200  # points per curve: more are indistinguishable on a screen and make pages slow

# What can stand on the x axis, as an SQL expression over `metrics m` (`w`: over the steps of one
# run, in order).
AXES = {
    "step": "m.step",
    "optimizer_step": "m.optimizer_step",
    "tokens": "m.tokens",
    "hours": "sum(m.seconds_step) OVER w / 3600",
}

_COUNTS_AS = "CASE WHEN m.step = (r.ended->>'$.step')::BIGINT THEN r.steps ELSE m.step END"
"""The step of the checkpoint that follows a training step: the last checkpoint of a run that ended
early stands at its last planned step (rpg.backends.early_end)."""

_CHOSEN = "chosen AS (SELECT unnest($1::VARCHAR[]) AS sweep, unnest($2::VARCHAR[]) AS variant)"
_CHECKPOINTS = "checkpoints AS (SELECT unnest($1::VARCHAR[]) AS run, unnest($2::BIGINT[]) AS step)"


def metric_curves(
    db: Database,
    series: Sequence[Series],
    metrics: Sequence[str],
    x: str = "step",
    points: int | None = POINTS,
    each_seed: bool = False,
) -> pandas.DataFrame:
    """Curves of metrics: mean and 95 % t interval over seeds.

    Seeds are added up in their order: the same runs give the same digits from any database.

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
    named = ", ".join(quote(name) for name in metrics)
    curves = frame(
        db,
        f"""WITH {_CHOSEN}, base AS (
              SELECT m.sweep, m.run, r.variant, r.seed, m.step,
                     ({axis})::DOUBLE AS "x axis", {named}
              FROM metrics m JOIN runs r USING (sweep, run) JOIN chosen USING (sweep, variant)
              WINDOW w AS (PARTITION BY m.sweep, m.run ORDER BY m.step)),
            wide AS (SELECT greatest(1, ceil(max(step) / $3::DOUBLE))::BIGINT AS width FROM base),
            long AS (UNPIVOT base ON {named} INTO NAME metric VALUE value),
            thin AS (
              SELECT metric, sweep, variant, seed, run, width, (step - 1) // width AS bin,
                     avg(step) AS step, avg("x axis") AS x,
                     CASE WHEN bool_and(isfinite(value))
                          THEN avg(value ORDER BY step) FILTER (isfinite(value)) END AS value
              FROM long, wide GROUP BY metric, sweep, variant, seed, run, width, bin)
            SELECT metric, sweep, variant{seed}, avg(x) AS x, avg(step) AS step,
                   CASE WHEN count(value) = count(*) THEN avg(value ORDER BY seed, run) END AS mean,
                   stddev_samp(value ORDER BY seed, run) AS spread,
                   min(value) AS lowest, max(value) AS highest,
                   count(*)::INTEGER AS seeds, any_value(width) AS width
            FROM thin GROUP BY metric, sweep, variant{seed}, bin
            ORDER BY metric, sweep, variant{seed}, bin""",
        [*columns(series, 2), points or 10**9],
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
              SELECT m.sweep, m.run, {_COUNTS_AS} AS step, ({axis})::DOUBLE AS x
              FROM metrics m JOIN runs r USING (sweep, run) JOIN chosen USING (sweep, variant)
              WINDOW w AS (PARTITION BY m.sweep, m.run ORDER BY m.step))
            SELECT s.benchmark, s.sweep, s.variant{seed}, s.step,
                   avg(CASE WHEN s.step = 0 THEN 0 ELSE a.x END) AS x,
                   avg(s.accuracy ORDER BY s.seed, s.run) AS mean,
                   stddev_samp(s.accuracy ORDER BY s.seed, s.run) AS spread,
                   min(s.accuracy) AS lowest, max(s.accuracy) AS highest, count(*)::INTEGER AS seeds
            FROM every_score s JOIN chosen USING (sweep, variant)
                               LEFT JOIN axis a USING (sweep, run, step)
            WHERE list_contains($3, s.benchmark)
            GROUP BY s.benchmark, s.sweep, s.variant{seed}, s.step
            ORDER BY s.benchmark, s.sweep, s.variant{seed}, s.step""",
        [*columns(series, 2), list(names)],
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
        f"""WITH {_CHECKPOINTS}
           SELECT run, step, benchmark, problem_id, avg(correct::INTEGER) AS accuracy,
                  count(*)::INTEGER AS samples, max(cluster) AS cluster
           FROM samples JOIN checkpoints USING (run, step)
           WHERE sweep = $3 GROUP BY ALL ORDER BY ALL""",
        [*columns(checkpoints, 2), sweep],
    )


def spending(db: Database, sweep: str) -> pandas.DataFrame:
    """What runs had spent at their evaluated steps: run, step, responses, tokens, updates, seconds
    (null if unknown)."""
    recorded = set(metric_names(db))

    def column(name: str) -> str:
        return f"m.{name}" if name in recorded else "NULL"

    return frame(
        db,
        f"""WITH spent AS (
              SELECT m.run, {_COUNTS_AS} AS step, m.optimizer_step AS updates,
                     {column("tokens")} AS tokens,
                     sum({column("seconds_step")}) OVER w AS seconds,
                     sum({column("groups_sampled")}) OVER w
                       * (r.spec->>'$.rollout.group_size')::DOUBLE AS responses
              FROM metrics m JOIN runs r USING (sweep, run) WHERE m.sweep = $1
              WINDOW w AS (PARTITION BY m.run ORDER BY m.step))
            SELECT run, step, responses::DOUBLE AS responses, tokens::DOUBLE AS tokens,
                   updates::DOUBLE AS updates, seconds::DOUBLE AS seconds
            FROM spent SEMI JOIN (SELECT run, step FROM evals WHERE sweep = $1) USING (run, step)
            WHERE step > 0
            UNION ALL SELECT DISTINCT run, 0, 0, 0, 0, 0 FROM evals WHERE sweep = $1 AND step = 0
            ORDER BY run, step""",
        [sweep],
    )


def frontier(db: Database, sweep: str) -> pandas.DataFrame:
    """Accuracy and KL to the initial model of every evaluated checkpoint: run, variant, seed, step,
    direction, accuracy, pass_at_k, maj_at_k, and per_response and per_token in nats."""
    return frame(
        db,
        """SELECT run, variant, seed, step, direction, accuracy, pass_at_k, maj_at_k,
                  per_response, per_token
           FROM frontier WHERE sweep = ? AND variant IS NOT NULL
           ORDER BY variant, seed, step, direction""",
        [sweep],
    )


def answers(db: Database, sweep: str, checkpoints: Sequence[tuple[str, int]]) -> pandas.DataFrame:
    """Every graded sample of these (run, step): run, benchmark, problem_id, extracted, its vote,
    correct, in this order."""
    return frame(
        db,
        f"""WITH {_CHECKPOINTS}
           SELECT run, benchmark, problem_id, extracted, vote, correct
           FROM samples JOIN checkpoints USING (run, step) LEFT JOIN votes USING (extracted)
           WHERE sweep = $3
           ORDER BY run, benchmark, problem_id, sample""",
        [*columns(checkpoints, 2), sweep],
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
                  maj_at_k, tokens, truncated, unread, second_reading, engine, rules, draws,
                  sweep, run, step
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


def reward_and_held_out(db: Database, sweep: str, window: int) -> pandas.DataFrame:
    """For each current run and benchmark whose best evaluation is at least `window` steps before
    its last one: run, benchmark, best_step, last_step, accuracy and standard error of the problems
    at both (best, best_error, last, last_error), and mean and standard error of the training reward
    in the `window` steps up to both (reward_best, ...; the first steps where there are fewer).
    """
    if "reward" not in metric_names(db):
        return pandas.DataFrame(columns=["run"])
    return frame(
        db,
        """WITH ends AS (
               SELECT e.sweep, e.run, e.benchmark,
                      min_by(e.step, (-e.accuracy, e.step)) AS best_step,
                      max(e.step) AS last_step
               FROM evals e JOIN runs r USING (sweep, run)
               WHERE r.sweep = $1 AND r.superseded IS NULL
               GROUP BY ALL HAVING last_step >= greatest(best_step, $2) + $2)
           SELECT n.run, n.benchmark, n.best_step, n.last_step,
                  any_value(b.accuracy) AS best, any_value(b.standard_error) AS best_error,
                  any_value(l.accuracy) AS last, any_value(l.standard_error) AS last_error,
                  avg(m.reward) FILTER (m.step <= greatest(n.best_step, $2)) AS reward_best,
                  stddev_samp(m.reward) FILTER (m.step <= greatest(n.best_step, $2)) / sqrt($2)
                      AS reward_best_error,
                  avg(m.reward) FILTER (m.step > n.last_step - $2) AS reward_last,
                  stddev_samp(m.reward) FILTER (m.step > n.last_step - $2) / sqrt($2)
                      AS reward_last_error
           FROM ends n
           JOIN evals b ON (b.sweep, b.run, b.benchmark, b.step)
                         = (n.sweep, n.run, n.benchmark, n.best_step)
           JOIN evals l ON (l.sweep, l.run, l.benchmark, l.step)
                         = (n.sweep, n.run, n.benchmark, n.last_step)
           JOIN metrics m ON (m.sweep, m.run) = (n.sweep, n.run)
                         AND m.step <= n.last_step
                         AND (m.step > n.last_step - $2 OR
                              (m.step > n.best_step - $2 AND m.step <= greatest(n.best_step, $2)))
           GROUP BY ALL ORDER BY ALL""",
        [sweep, window],
    )


def ends(db: Database, sweep: str) -> pandas.DataFrame:
    """How far each current run that may end early has come: run, variant, seed, the accuracy that
    ends it (null: none), its last step and the response tokens by then, the planned steps, and the
    step and reason of an early end (null: there was none)."""
    tokens = "max(m.tokens)" if "tokens" in metric_names(db) else "NULL"
    return frame(
        db,
        f"""SELECT r.run, r.variant, r.seed, r.steps,
                   (r.spec->>'$.training.until.accuracy')::DOUBLE AS accuracy,
                   max(m.step) AS step, {tokens}::DOUBLE AS tokens,
                   (r.ended->>'$.step')::BIGINT AS ended, r.ended->>'$.reason' AS reason
            FROM runs r JOIN metrics m USING (sweep, run)
            WHERE r.sweep = $1 AND r.superseded IS NULL AND r.variant IS NOT NULL
            GROUP BY ALL HAVING accuracy IS NOT NULL OR ended IS NOT NULL
            ORDER BY r.variant, r.seed""",
        [sweep],
    )


def identical_variants(db: Database, sweep: str) -> list[list[str]]:
    """Groups of variants whose runs agree in every number of every step (but times) and in every
    graded sample."""
    numbers = [
        name for name in metric_names(db) if name != "tokens_per_second" and "seconds" not in name
    ]
    groups = db.execute(
        f"""WITH trained AS (
               SELECT run, bit_xor(hash({", ".join(map(quote, ["step", *numbers]))})) AS digest
               FROM metrics WHERE sweep = $1 GROUP BY run),
             evaluated AS (
               SELECT run, bit_xor(hash(
                   benchmark, step, problem_id, sample, correct, extracted, tokens)) AS digest
               FROM samples WHERE sweep = $1 GROUP BY run),
             digests AS (
               SELECT r.variant, list((r.seed, t.digest, e.digest) ORDER BY r.seed) AS digest
               FROM runs r JOIN trained t USING (run) JOIN evaluated e USING (run)
               WHERE r.sweep = $1 AND r.superseded IS NULL GROUP BY r.variant)
            SELECT list(variant ORDER BY variant) FROM digests
            GROUP BY digest HAVING count(*) > 1 ORDER BY ALL""",
        [sweep],
    )
    return [variants for (variants,) in groups.fetchall()]


def runs_with_samples(db: Database, sweep: str) -> set[str]:
    """The runs of a sweep that have an evaluation with its samples; an imported score has none."""
    cursor = db.execute(
        "SELECT DISTINCT run FROM evals WHERE sweep = $1 AND k IS NOT NULL", [sweep]
    )
    return {str(run) for (run,) in cursor.fetchall()}


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
        """SELECT s.run, s.benchmark, s.step,
                  avg((s.extracted IS NULL)::INTEGER) AS missing,
                  any_value(e.unread) AS unread,
                  map_entries(histogram(s.unread) FILTER (s.unread IS NOT NULL)) AS forms,
                  any_value(e.accuracy) AS accuracy,
                  any_value(e.second_reading) AS second_reading,
                  mode(s.extracted) AS answer,
                  CASE WHEN count(DISTINCT s.problem_id) < 8 THEN 0
                       ELSE coalesce(list_max(map_values(histogram(s.extracted))), 0) / count(*)
                  END AS repeated
           FROM samples s JOIN evals e USING (sweep, run, benchmark, step)
                          JOIN runs r USING (sweep, run)
           WHERE r.sweep = $1 AND r.superseded IS NULL
             AND NOT starts_with(coalesce(e.rules, ''), 'reward>=')
           GROUP BY s.run, s.benchmark, s.step
           QUALIFY row_number() OVER (PARTITION BY s.run, s.benchmark ORDER BY s.step DESC) = 1
           ORDER BY ALL""",
        [sweep],
    )


def _axis(x: str, metrics: set[str]) -> str:
    """The SQL expression of an axis; NULL if the metric that it needs is not in the database."""
    needed = {"tokens": "tokens", "hours": "seconds_step"}.get(x)
    return AXES[x] if needed is None or needed in metrics else "NULL"


def _with_interval(curves: pandas.DataFrame) -> pandas.DataFrame:
    """Replace `spread` by the bounds of Student's interval over seeds (null for one seed)."""
    half = t_quantile(curves["seeds"] - 1) * curves.pop("spread") / np.sqrt(curves["seeds"])
    place = curves.columns.get_loc("mean") + 1
    curves.insert(place, "low", curves["mean"] - half)
    curves.insert(place + 1, "high", curves["mean"] + half)
    return curves
