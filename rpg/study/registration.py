"""What a study will compare, written down before the first reported seed starts; and whether
reports follow from it."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rpg.config.identity import digest
from rpg.config.load import without_folders
from rpg.config.variant_names import value_text
from rpg.store import Layout, StoreError, atomic_write_json
from rpg.store.current import current_runs
from rpg.store.run_folder import FORMAT, read_checked
from rpg.study.trials import read_study
from rpg.study.tuning import few_searches
from rpg.system import provenance

OVER_LEVELS = "over levels of factors"
"""What a look is at, where factors are crossed with the seeds."""
STOPPING = (
    "Seeds come in as many portions as there are looks. After each, every variant's "
    "difference from the baseline is tested, "
    "with the error of all looks together kept (rpg.stats.sequential). The study stops when "
    "every difference is better, "
    "worse, or has an interval within the difference that matters; at the last look in any case."
)
_PLAN = (
    "study",
    "question",
    "base",
    "variants",
    "trials",
    "tuning",
    "baseline",
    "seeds",
    "benchmarks",
    "matters",
    "budget",
    "looks",
    "stopping",
    "factors",
    "runs",
)
"""What the digest of a record covers: all but its number, time, code and digest."""


@dataclass(frozen=True)
class Registration:
    """What is compared, as it was registered.

    variants: name -> its settings by dotted field; of a searched field a list, with a value for
    each search, where there are several. factors: dotted field -> levels, crossed with the seeds.
    runs: folder in the sweep `sweep` -> {variant, seed, settings: {searched field: value}, factors:
    {field: level}, run_id}. trials: variant -> those that won, one for each search. deviations: how
    what there is departs from the record, a sentence each; none: the badge holds.
    """

    variants: dict[str, dict[str, Any]]
    baseline: str
    seeds: tuple[int, ...]
    benchmarks: tuple[str, ...]
    matters: float
    looks: int
    factors: dict[str, list[Any]]
    runs: dict[str, dict[str, Any]]
    trials: dict[str, list[int]]
    sweep: str
    digest: str
    registered_at: float
    number: int
    deviations: list[str]

    @property
    def caution(self) -> str:
        """What limits every verdict of the study; "" if nothing does."""
        return few_searches(len(next(iter(self.trials.values()))), len(self.seeds))


def record_path(layout: Layout, study: str, number: int | None = None) -> Path:
    """The record of a study; with `number` a former one."""
    name = "registered.json" if number is None else f"registered-{number}.json"
    return layout.study_folder(study) / name


def reported_sweep(study: str, record_digest: str) -> str:
    """Name of the sweep that a record plans: another record is another sweep."""
    return f"{study}.{record_digest[:8]}"


def reported_variant(variant: str, levels: Mapping[str, Any]) -> str:
    """Name of a variant in the reported sweep, at one level of every factor."""
    words = [variant]
    words += [f"{field}={value_text(level)}" for field, level in levels.items()]
    return " ".join(words)


def register(
    layout: Layout, plan: Mapping[str, Any], former: Mapping[str, Any] | None = None
) -> str:
    """Write the record of what will be compared (the keys of `_PLAN`), atomically. `former` is the
    record it replaces, which is kept under its number. Returns the digest."""
    study = str(plan["study"])
    before = int(former["number"]) if former else 0
    if former:
        atomic_write_json(record_path(layout, study, before), former)
    record = {
        "format": FORMAT,
        "number": before + 1,
        "digest": digest({name: plan[name] for name in _PLAN}),
        "registered_at": time.time(),
        "revision": provenance.git_revision(),
        "versions": provenance.versions(),
    }
    record |= plan
    atomic_write_json(record_path(layout, study), record)
    return str(record["digest"])


def read_record(layout: Layout, study: str, number: int | None = None) -> dict[str, Any] | None:
    """The record of a study, or a former one; None if nothing is registered. Raises StoreError: it
    cannot be read."""
    path = record_path(layout, study, number)
    if not path.exists():
        return None
    return read_checked(path, ("digest", "number", "registered_at", *_PLAN))


def registration(layout: Layout, study: str) -> Registration | None:
    """What a study has registered, and how what there is departs from it; None before. Raises
    StoreError: the record cannot be read."""
    record = read_record(layout, study)
    if record is None:
        return None
    more = {
        "sweep": reported_sweep(study, record["digest"]),
        "deviations": list(deviations(layout, record)),
    }
    return TypeAdapter(Registration).validate_python({**record, **more})


def deviations(layout: Layout, record: Mapping[str, Any]) -> Iterator[str]:
    """How what there is departs from the record, a sentence each."""
    study = record["study"]
    now = digest({name: record[name] for name in _PLAN})
    if now != record["digest"]:
        yield (
            f"the record was edited after it was written: it names digest {record['digest']}, "
            f"but its content has digest {now}"
        )
    for number in range(1, int(record["number"])):
        former = read_record(layout, study, number)
        if former is None:
            yield f"record {number} of {record['number']} is missing"
        else:
            for line in differences(former, record):
                yield f"registered again after record {number}: {line}"
    for line in changes(layout, record):
        yield f"the study's file was changed after the registration: {line}"
    sweep = reported_sweep(study, record["digest"])
    if layout.sweep_folder(sweep).is_dir():
        yield from _of_sweep(layout, sweep, record)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """`matters was 0.03, is 0.05` for every part of two records that is not the same; runs follow
    from the rest."""
    before, after = (
        {**record, "base": without_folders(record["base"])} for record in (before, after)
    )
    lines = []
    for name in _PLAN:
        if name != "runs" and before[name] != after[name]:
            shown = [str(part[name]) for part in (before, after)]
            short = max(map(len, shown)) <= 80
            lines.append(
                f"{name} was {shown[0]}, is {shown[1]}" if short else f"{name} has changed"
            )
    return lines


def changes(layout: Layout, record: Mapping[str, Any]) -> list[str]:
    """How the study's file, as it was read last, differs from the record, a sentence each."""
    study = read_study(layout, str(record["study"]))
    report = study["spec"]["report"]
    says = {
        "seeds": report["seeds"],
        "matters": report["matters"],
        "looks": report["looks"],
        "budget": (report["budget"] or {}).get("tokens"),
        "baseline": report["baseline"] or next(iter(study["variants"])),
        "factors": study["spec"]["factors"],
    }
    changed = [(name, value) for name, value in says.items() if value != record[name]]
    lines = [f"{name} is {value}, {record[name]} was registered" for name, value in changed]
    registered_searches = len(next(iter(record["trials"].values())))
    if study["searches"] != registered_searches:
        lines.append(f"searches is {study['searches']}, {registered_searches} was registered")
    tuned = {tuning["variant"]: tuning["digest"] for tuning in study["tuning"]}
    for variant in sorted(set(tuned) | set(record["tuning"])):
        if tuned.get(variant) != record["tuning"].get(variant):
            lines.append(f"the settings or the tuning of {variant} are not the registered ones")
    return lines


def _of_sweep(layout: Layout, sweep: str, record: Mapping[str, Any]) -> Iterator[str]:
    """What the runs that are reported have that the record does not."""
    with contextlib.suppress(StoreError):
        written = layout.read_sweep(sweep)
        first = {field: levels[0] for field, levels in record["factors"].items()}
        planned = {**record, "baseline": reported_variant(record["baseline"], first)}
        for name in ("matters", "benchmarks", "baseline", "budget"):
            value = written.get(name)
            if value != planned[name]:
                yield f"{name} of the reported sweep is {value}, {planned[name]} was registered"
    for folder in current_runs(layout, sweep):
        planned = record["runs"].get(folder.name)
        if planned is None:
            yield f"{folder.name} was not registered"
        elif folder.manifest_path.exists():
            run = folder.read_manifest()["run_id"]
            if run != planned["run_id"]:
                yield (
                    f"{folder.name} has other settings or data than registered (it is run {run}, "
                    f"registered was {planned['run_id']})"
                )
            rows = folder.read_metrics()
            if rows and (began := rows[0].get("time")) and began < record["registered_at"]:
                yield f"{folder.name} had been trained before the registration"
    taken = counted_looks(layout, record)
    looks = {(look.get("compared"), tuple(look.get("runs", ()))) for look in taken}
    if len(looks) > record["looks"]:
        yield f"the differences were tested {len(looks)} times, registered were {record['looks']}"


def counted_looks(layout: Layout, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The looks at the reported sweep that decide: where factors are crossed, those over their
    levels."""
    looks = layout.read_looks(reported_sweep(record["study"], record["digest"]))
    return [look for look in looks if not record["factors"] or look.get("compared") == OVER_LEVELS]


def runs_done(layout: Layout, registered: Registration) -> set[str]:
    """Folders of the registered runs that are done."""
    sweep = registered.sweep
    return {run for run in registered.runs if layout.run(sweep, run).done_path.exists()}


def is_at_a_look(layout: Layout, registered: Registration) -> bool:
    """Whether verdicts can be shown: all runs are done, or those of a look that was taken. Verdicts
    on other runs would be a look that is not registered."""
    done = runs_done(layout, registered)
    looks = [set(look["runs"]) for look in layout.read_looks(registered.sweep)]
    return done == set(registered.runs) or done in looks
