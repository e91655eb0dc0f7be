"""From run folders into the tables of an open database. What cannot be read becomes a row of
`warnings`."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from rpg.store import ingest_files, run_provenance
from rpg.store.atomic_files import StoreError, read_json_object
from rpg.store.current import current_runs, superseded_runs, superseded_variant, why_superseded
from rpg.store.file_records import Records
from rpg.store.ingest_files import NO_RUN, Rows, Source, insert_rows, run_key, temporary_table
from rpg.store.layout import Layout
from rpg.store.notes import FILE as NOTES
from rpg.store.notes import read_marks
from rpg.store.run_folder import IMPORTED, UNREADABLE, Inspection, RunFolder, step_name
from rpg.store.schema import KEYS, VERSION, create_views

Key = tuple[str, str]
"""(sweep, run), or NO_RUN."""


@dataclass(frozen=True)
class MadeOf:
    """What a database is made of: a fingerprint of each run, and the records of its files."""

    fingerprints: Mapping[Key, str]
    files: Mapping[Key, Records]


def ingest(
    db: duckdb.DuckDBPyConnection, layout: Layout, sources: list[Source], made_of: MadeOf
) -> None:
    """Replace the rows of these runs by what their folders contain now, and all rows of sweeps,
    audits and evaluations by hand.

    `made_of` says of which files, of all runs.
    """
    for table in ("samples", "evals", "warnings"):
        db.execute(f"DELETE FROM {table} WHERE sweep = ''")
    hand = ingest_files.by_hand(layout)
    readable = [source for source in sources if source.state != UNREADABLE]
    folders = [source.folder for source in readable]
    replaced = [source.key for source in sources]
    replaced += dict.fromkeys(("", file["run"]) for file in hand)
    forget(db, replaced)
    warnings: Rows = []
    _runs(db, sources, warnings)
    inspections = [source.folder.inspect(seen=source.files) for source in readable]
    damaged = _damaged(folders, inspections, warnings)
    ingest_files.ingest_metrics(db, folders, damaged, warnings)
    _attempts(db, folders, warnings)
    evaluations = ingest_files.evaluations_of(readable, inspections)
    ingest_files.ingest_samples(db, hand + [each.samples for each in evaluations], warnings)
    ingest_files.summarise_evaluations(db)
    drift = [each.drift for each in evaluations if each.drift]
    ingest_files.ingest_drift(db, drift, warnings)
    _scores(db, folders, warnings)
    _sweeps_and_audits(db, layout, warnings)
    _notes(db, layout, warnings)
    _mark_superseded(db, layout)
    insert_rows(db, "warnings", warnings)
    measurements = db.execute("SELECT * FROM metrics LIMIT 0").description
    db.execute(create_views(len(measurements) > len(KEYS)))
    _files(db, made_of.files)
    db.execute("DELETE FROM meta")
    meta = [VERSION, time.time(), made_of.fingerprints[NO_RUN]]
    db.execute("INSERT INTO meta VALUES (?, ?, ?)", meta)


def _files(db: duckdb.DuckDBPyConnection, files: Mapping[Key, Records]) -> None:
    db.execute("DELETE FROM file_records")
    rows = [
        {"sweep": sweep, "run": run, "file": name, **record.as_json()}
        for (sweep, run), records in files.items()
        for name, record in records.items()
    ]
    insert_rows(db, "file_records", rows)


def forget(db: duckdb.DuckDBPyConnection, keys: list[tuple[str, str]]) -> None:
    """Delete all rows of these runs, (sweep, run) each; they stay in the temporary table
    `changed`."""
    temporary_table(
        db, "changed", [{"sweep": sweep, "run": run} for sweep, run in keys], ("sweep", "run")
    )
    for table in ("runs", "metrics", "attempts", "samples", "evals", "drift", "warnings"):
        db.execute(
            f"DELETE FROM {table} t USING changed c WHERE t.sweep = c.sweep AND t.run = c.run"
        )


def _runs(db: duckdb.DuckDBPyConnection, sources: list[Source], warnings: Rows) -> None:
    rows = []
    for source in sources:
        folder = source.folder
        state = source.state
        row: dict[str, Any] = {**run_key(folder), "state": state, "fingerprint": source.fingerprint}
        try:
            if state == UNREADABLE:
                raise StoreError(source.why_unreadable)
            # A run that has not begun gets its manifest a moment after its folder.
            if folder.manifest_path.exists() or (folder.path.is_dir() and state != "pending"):
                row |= _manifest(folder.read_manifest())
            row["benchmarks"] = row.get("benchmarks") or folder.benchmarks()
            failed = folder.read_failed() or {}
            done = folder.read_done() or {}
            row |= {"error": _text(failed.get("error")), "log": _text(failed.get("log"))}
            row |= {
                "finished": _number(done.get("finished")),
                "seconds": _number(done.get("seconds")),
            }
        except StoreError as error:
            warnings.append({**run_key(folder), "message": str(error)})
        rows.append(row)
    insert_rows(db, "runs", rows)


def _damaged(folders: list[RunFolder], inspections: list[Inspection], warnings: Rows) -> set[Path]:
    """Files that are not as they were when their run ended: nothing of them is read."""
    damaged = set()
    for folder, inspection in zip(folders, inspections, strict=True):
        for name, why in inspection.damage.items():
            path = folder.path / name
            damaged.add(path)
            # The reader of the manifest has its own words for it.
            if path != folder.manifest_path:
                warnings.append({**run_key(folder), "message": f"{path} {why}"})
    return damaged


def _manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """The columns of `runs` that a manifest gives."""
    texts = ("run_id", "variant", "algorithm", "git_revision")
    row: dict[str, Any] = {name: _text(manifest.get(name)) for name in texts}
    row["planned_variant"] = row["variant"]
    row["display_name"] = _text(manifest.get("display_name")) or row["algorithm"]
    for name in ("seed", "steps"):
        value = manifest.get(name)
        fits = isinstance(value, int) and abs(value) < 2**63
        row[name] = value if fits else None
    for name in ("axes", "versions", "machine", "spec", "identity"):
        row[name] = json.dumps(manifest.get(name))
    row["imported"] = json.dumps(manifest["imported"]) if manifest.get("imported") else None
    row["ended"] = json.dumps(manifest["ended"]) if manifest.get("ended") else None
    row["created"] = _number(manifest.get("created"))
    row["benchmarks"] = _names(manifest.get("benchmarks"))
    return row


def _attempts(db: duckdb.DuckDBPyConnection, folders: list[RunFolder], warnings: Rows) -> None:
    """The code and machine of each attempt whose steps count; columns of `runs` repeat those of the
    newest attempt."""
    rows: Rows = []
    files: dict[str, dict[str, str]] = {}
    for folder in folders:
        for attempt in folder.attempts():
            row = {**run_key(folder), "attempt": attempt}
            try:
                record = run_provenance.read(folder, attempt)
            except StoreError as error:
                warnings.append({**run_key(folder), "message": str(error)})
                record = {}
            if record:
                row |= {name: _text(record.get(name)) for name in ("code", "git_revision")}
                row |= {name: json.dumps(record.get(name)) for name in ("versions", "machine")}
                row["begun"] = _number(record.get("time"))
                files[str(row["code"])] = record["sources"]
            rows.append(row)
    insert_rows(db, "attempts", rows)
    present = {code for (code,) in db.execute("SELECT DISTINCT code FROM sources").fetchall()}
    sources_of_code = [
        {"code": code, "file": str(name), "digest": _text(digest)}
        for code, digests in files.items()
        if code not in present
        for name, digest in digests.items()
    ]
    insert_rows(db, "sources", sources_of_code)
    db.execute(
        """DELETE FROM attempts WHERE NOT EXISTS (SELECT 1 FROM metrics m
           WHERE (m.sweep, m.run, m.attempt) = (attempts.sweep, attempts.run, attempts.attempt))"""
    )
    db.execute(
        """UPDATE runs SET code = a.code, git_revision = a.git_revision, versions = a.versions,
           machine = a.machine
           FROM (SELECT sweep, run, max_by(attempts, attempt) AS a FROM attempts JOIN changed
               USING (sweep, run)
                 WHERE code IS NOT NULL GROUP BY ALL)
           WHERE (runs.sweep, runs.run) = (a.sweep, a.run)"""
    )


def _scores(db: duckdb.DuckDBPyConnection, folders: list[RunFolder], warnings: Rows) -> None:
    """Scores of runs that were trained elsewhere, which have no samples and nothing that is
    computed from samples."""
    rows: Rows = []
    for folder in folders:
        path = folder.path / IMPORTED
        if not path.is_file():
            continue
        try:
            for benchmark, scores in read_json_object(path)["scores"].items():
                rows += [
                    {
                        **run_key(folder),
                        "benchmark": benchmark,
                        "step": int(step),
                        "accuracy": float(value),
                    }
                    | {
                        "origin": "imported",
                        "model": f"{folder.sweep}/{folder.name}/{step_name(int(step))}",
                    }
                    for step, value in scores.items()
                    if not folder.eval_path(benchmark, int(step)).exists()  # its samples have more
                ]
        except (StoreError, KeyError, ValueError, AttributeError, TypeError) as error:
            warnings.append({**run_key(folder), "message": f"{path}: {error}"})
    insert_rows(db, "evals", rows)


def _notes(db: duckdb.DuckDBPyConnection, layout: Layout, warnings: Rows) -> None:
    """Replace what people have added to all sweeps and runs, of which there are few."""
    db.execute("DELETE FROM marks")
    rows: Rows = []
    paths = list(layout.runs.glob(f"*/{NOTES}"))
    paths += layout.runs.glob(f"*/*/{NOTES}")
    for path in sorted(paths):
        parts = path.parent.relative_to(layout.runs).parts
        key = {"sweep": parts[0], "run": parts[1] if len(parts) > 1 else None}
        try:
            record = read_marks(path.parent)
            text = "\n".join(str(note.get("text", "")) for note in record["notes"])
            rows.append(key | record | {"notes": text})
        except StoreError as error:
            warnings.append({**key, "message": str(error)})
    insert_rows(db, "marks", rows)


def _sweeps_and_audits(db: duckdb.DuckDBPyConnection, layout: Layout, warnings: Rows) -> None:
    db.execute("DELETE FROM sweeps; DELETE FROM audits; DELETE FROM warnings WHERE run IS NULL")
    warnings += [
        {"sweep": name, "run": None, "message": why} for name, why in layout.closed_sweeps().items()
    ]
    sweeps: Rows = []
    for name in layout.sweeps():
        row: dict[str, Any] = {
            "sweep": name,
            "runs": len(current_runs(layout, name)),
            "benchmarks": [],
        }
        row["superseded"] = len(superseded_runs(layout, name))
        try:
            sweep = layout.read_sweep(name)
            row |= {
                "created": _number(sweep.get("created")),
                "baseline": _text(sweep.get("baseline")),
            }
            row |= {
                "source": _text(sweep.get("source")),
                "benchmarks": _names(sweep.get("benchmarks")),
            }
            row |= {
                "description": _text(sweep.get("description")),
                "labels": json.dumps(sweep.get("labels")),
            }
        except StoreError as error:
            warnings.append({"sweep": name, "run": None, "message": str(error)})
        sweeps.append(row)
    insert_rows(db, "sweeps", sweeps)
    audits: Rows = []
    for path in sorted(layout.audits.glob("[!.]*.json")):
        try:
            audits.append(
                {"name": path.stem, "report": json.dumps(read_json_object(path), allow_nan=True)}
            )
        except StoreError as error:
            warnings.append({"sweep": None, "run": None, "message": str(error)})
    insert_rows(db, "audits", audits)


def _mark_superseded(db: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    """Mark the runs that the newest files of their sweeps do not name, among all runs: a new file
    changes old runs."""
    db.execute(
        "UPDATE runs SET superseded = NULL, variant = planned_variant WHERE superseded IS NOT NULL"
    )
    replaced: Rows = []
    for sweep in layout.sweeps():
        current = {folder.name for folder in current_runs(layout, sweep)}
        names = [
            run for (run,) in db.execute("SELECT run FROM runs WHERE sweep = ?", [sweep]).fetchall()
        ]
        if current.issuperset(names):
            continue
        query = "SELECT run, variant, seed, spec, identity FROM runs WHERE sweep = ?"
        rows = db.execute(query, [sweep])
        parts = ("spec", "identity")
        manifests = {
            run: {"variant": variant, "seed": seed}
            | {
                name: json.loads(text or "null") or {}
                for name, text in zip(parts, texts, strict=True)
            }
            for run, variant, seed, *texts in rows.fetchall()
        }
        former = {run: manifest for run, manifest in manifests.items() if run not in current}
        newest = [manifests[run] for run in manifests if run in current]
        whys = why_superseded(former, newest)
        for run, manifest in former.items():
            shown = None if manifest["variant"] is None else superseded_variant(manifest, whys[run])
            replaced.append({"sweep": sweep, "run": run, "superseded": whys[run], "variant": shown})
    if replaced:
        temporary_table(db, "replaced", replaced, ("sweep", "run", "superseded", "variant"))
        db.execute(
            """UPDATE runs SET superseded = m.superseded, variant = m.variant FROM replaced m
               WHERE (runs.sweep, runs.run) = (m.sweep, m.run)"""
        )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
