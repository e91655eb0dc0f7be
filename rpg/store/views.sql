-- The views of the results database; the comment before a view says what its rows are (rpg/store/schema.py reads both).

-- `metrics` of the sweeps' current runs in long form: one row per run, step and metric, with variant and seed
CREATE OR REPLACE VIEW curves AS
SELECT r.variant, r.seed, u.* FROM
(UNPIVOT metrics ON COLUMNS(* EXCLUDE (sweep, run, attempt, step, optimizer_step, time)) INTO NAME metric VALUE value) u
JOIN runs r USING (sweep, run) WHERE r.superseded IS NULL;

-- per problem of each evaluation: number of samples, number and share of correct ones
CREATE OR REPLACE VIEW problems AS
SELECT sweep, run, benchmark, step, problem_id, count(*)::INTEGER AS samples,
       sum(correct::INTEGER)::INTEGER AS correct, avg(correct::INTEGER) AS accuracy
FROM samples GROUP BY ALL;

-- `scores` of current and superseded runs, each under its own variant
CREATE OR REPLACE VIEW every_score AS
SELECT r.variant, r.seed, e.sweep, e.run, e.benchmark, e.step, e.accuracy, e.pass_at_k, e.maj_at_k,
       e.unread
FROM evals e JOIN runs r USING (sweep, run)
UNION ALL
SELECT any_value(r.variant), any_value(r.seed), e.sweep, e.run, 'mean', e.step, avg(e.accuracy),
       avg(e.pass_at_k), avg(e.maj_at_k), avg(e.unread)
FROM evals e JOIN (SELECT * REPLACE (CASE WHEN imported IS NULL THEN benchmarks ELSE judged END AS benchmarks)
                   FROM runs LEFT JOIN (SELECT sweep, benchmarks AS judged FROM sweeps) USING (sweep)) r
     USING (sweep, run)
WHERE list_contains(r.benchmarks, e.benchmark)
GROUP BY e.sweep, e.run, e.step
HAVING count(*) = any_value(len(r.benchmarks));

-- `evals` of the sweeps' current runs with variant and seed, and a benchmark `mean`: the mean over the benchmarks of
-- the run (for an imported run: of the sweep), at steps evaluated on all of them
CREATE OR REPLACE VIEW scores AS
SELECT s.* FROM every_score s JOIN runs r USING (sweep, run) WHERE r.superseded IS NULL;

-- `scores` of benchmark `mean` beside the KL between policy and initial model in both directions, means over the
-- benchmarks, nats per response and per token with standard errors
CREATE OR REPLACE VIEW frontier AS
SELECT s.sweep, s.run, s.variant, s.seed, s.step, any_value(s.accuracy) AS accuracy,
       any_value(s.pass_at_k) AS pass_at_k, any_value(s.maj_at_k) AS maj_at_k, d.direction,
       avg(d.per_response) AS per_response,
       sqrt(sum(d.per_response_se ** 2)) / count(*) AS per_response_se,
       avg(d.per_token) AS per_token, sqrt(sum(d.per_token_se ** 2)) / count(*) AS per_token_se
FROM scores s JOIN drift d USING (sweep, run, step) JOIN runs r USING (sweep, run)
WHERE s.benchmark = 'mean' AND list_contains(r.benchmarks, d.benchmark)
GROUP BY s.sweep, s.run, s.variant, s.seed, s.step, d.direction;

-- per run and benchmark (and `mean`): first, last and best accuracy and their steps; best is the maximum over
-- checkpoints, hence optimistic
CREATE OR REPLACE VIEW last_best AS
SELECT sweep, run, variant, seed, benchmark,
       min(step) AS first_step, arg_min(accuracy, step) AS first,
       max(step) AS last_step, arg_max(accuracy, step) AS last,
       min_by(step, (-accuracy, step)) AS best_step, max(accuracy) AS best
FROM scores GROUP BY sweep, run, variant, seed, benchmark;

-- per problem, at the last step both have: accuracy of a variant and of the sweep's baseline with the same seed, and
-- their difference
CREATE OR REPLACE VIEW paired AS
WITH both_have AS (
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
                 = (t.sweep, t.baseline_run, t.benchmark, t.step, p.problem_id);
