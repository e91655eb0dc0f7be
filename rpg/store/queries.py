"""Queries of the results database: what sweeps and runs are.

What the runs measured is in rpg.store.measured, whose queries are named here, too.
"""

import json
from collections.abc import Sequence
from typing import Any

import pandas

from rpg.store.frames import Database as Database
from rpg.store.frames import Series as Series
from rpg.store.frames import frame as frame
from rpg.store.frames import metric_names as metric_names
from rpg.store.measured import AXES as AXES
from rpg.store.measured import POINTS as POINTS
from rpg.store.measured import answers as answers
from rpg.store.measured import ends as ends
from rpg.store.measured import evaluations as evaluations
from rpg.store.measured import frontier as frontier
from rpg.store.measured import health_metrics as health_metrics
from rpg.store.measured import identical_variants as identical_variants
from rpg.store.measured import metric_curves as metric_curves
from rpg.store.measured import problem_scores as problem_scores
from rpg.store.measured import reward_and_held_out as reward_and_held_out
from rpg.store.measured import rules as rules
from rpg.store.measured import run_evals as run_evals
from rpg.store.measured import run_metrics as run_metrics
from rpg.store.measured import runs_with_samples as runs_with_samples
from rpg.store.measured import score_curves as score_curves
from rpg.store.measured import scores as scores
from rpg.store.measured import spending as spending
from rpg.store.measured import without_answer as without_answer
from rpg.store.run_provenance import differences as provenance_differences


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
            SELECT s.sweep, s.baseline, coalesce(s.description, '') AS description,
                   s.benchmarks, s.created, s.runs, s.superseded, {counts},
                   count(DISTINCT r.variant)::INTEGER AS variants,
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
                  steps, benchmarks, created, finished, seconds, attempts, superseded,
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
        """SELECT a.run, a.code, a.git_revision, a.versions, a.machine
           FROM attempts a JOIN runs r USING (sweep, run)
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
        record = {}
        if code is not None:
            record = {
                "code": code,
                "git_revision": revision,
                "sources": files.get(code, {}),
                "versions": json.loads(versions or "{}"),
                "machine": json.loads(machine or "{}"),
            }
        records.setdefault(name, []).append(record)
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
    return list(frame(db, "SELECT message FROM warnings ORDER BY sweep, run, message")["message"])


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


WHOLE = ", whole distributions"
"""Ends the name of a reference whose KL is a sum over the vocabulary."""


def references(db: Database, names: Sequence[str]) -> dict[tuple[str, str], str]:
    """(sweep, variant) -> the policy that its runs measured a KL against as the reference, in
    words, from the age that they wrote at each step: without a KL, or with beta 0, it is the old
    policy, whatever their settings say. A KL of whole distributions is named, since all others are
    estimates from the sampled tokens."""
    age = "reference_age" if "reference_age" in metric_names(db) else "NULL::DOUBLE"
    rows = db.execute(
        f"""WITH steps AS (
               SELECT sweep, run, {age} AS age,
                      coalesce(
                          lag(optimizer_step) OVER (PARTITION BY sweep, run ORDER BY step), 0
                      ) AS before
               FROM metrics WHERE list_contains($1, sweep))
           SELECT r.sweep, r.variant, any_value(r.spec->'$.algorithm.reference'),
                  any_value(r.spec->>'$.algorithm.kl.type') = 'distribution',
                  bool_and(age = before), bool_and(age = 0)
           FROM runs r LEFT JOIN steps USING (sweep, run)
           WHERE list_contains($1, r.sweep) AND r.variant IS NOT NULL GROUP BY ALL""",
        [list(names)],
    )
    schedules = {
        "every_k": "renewed every {k} optimizer steps",
        "kl_above": "renewed when kl_policy_to_ref exceeds {kappa}",
    }
    references = {}
    for sweep, variant, text, whole, initial, is_old in rows.fetchall():
        schedule = {"k": "?", "kappa": "?", **(json.loads(text or "null") or {})}
        renewed = schedules.get(str(schedule.get("type")), "renewed now and then").format_map(
            schedule
        )
        settled = renewed
        if initial:
            is_teacher = schedule.get("type") == "model"
            settled = "the teacher" if is_teacher else "the initial model"
        elif is_old:
            settled = "the old policy"
        if whole and not is_old:
            settled += WHOLE
        references[sweep, variant] = "unknown" if initial is None else settled
    return references


def benchmarks(db: Database, names: Sequence[str]) -> list[str]:
    """Benchmarks of the current runs of these sweeps, in the order in which they name them; those
    that only imported runs have come last, and those that no run names any more are left out."""
    rows = db.execute(
        """WITH listed AS (
               SELECT sweep, unnest(benchmarks) AS benchmark,
                      generate_subscripts(benchmarks, 1) AS place, imported IS NULL AS own
               FROM runs WHERE superseded IS NULL)
           SELECT e.benchmark FROM evals e JOIN listed l USING (sweep, benchmark)
           WHERE list_contains($1, e.sweep) GROUP BY ALL
           ORDER BY min(l.place) FILTER (own) NULLS LAST, min(l.place), e.benchmark""",
        [list(names)],
    )
    return [name for (name,) in rows.fetchall()]


def marks(db: Database) -> dict[str, tuple[str, list[str]]]:
    """SWEEP or SWEEP/RUN -> (label, tags)."""
    rows = db.execute("SELECT concat_ws('/', sweep, run), label, tags FROM marks").fetchall()
    return {name: (label, tags) for name, label, tags in rows}


def audits(db: Database) -> dict[str, str]:
    """Audit reports: name to JSON."""
    return dict(db.execute("SELECT name, report FROM audits ORDER BY name").fetchall())
