"""A sweep is data: a base run, axes checked against the schema, and the list of runs they expand
to. :mod:`rpg.config.sweep_file` has the fields of the file."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rpg.config.errors import ConfigError, explain, nearest
from rpg.config.identity import canonical_json, identity
from rpg.config.load import load_raw_run, parse_yaml, read_mapping
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_file import (
    MAX_RUNS,
    Draft,
    SweepSpec,
    check_field,
    read_sweep,
    seed_list,
    with_values,
)
from rpg.errors import see


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep, resolved. `variant` is shared by the seeds of one setting."""

    folder: str
    run_id: str
    variant: str
    axes: dict[str, Any]
    spec: RunSpec
    data: str
    """Digest of its data."""


@dataclass(frozen=True)
class Sweep:
    """An expanded sweep: its specification, its runs in order, the baseline's variant and the
    file's text. `reported`: a report is written when its runs are over."""

    spec: SweepSpec
    runs: tuple[PlannedRun, ...]
    baseline: str | None
    source: str
    path: Path
    reported: bool = True
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Part of a variant's name -> what reports call it."""
    caution: str = ""
    """What limits every verdict about it; reports say it wherever they give one."""


def load_sweep(
    path: Path,
    overrides: dict[str, Any],
    data_digest: Callable[[RunSpec], str],
    *,
    axes: dict[str, Any] | None = None,
    name: str | None = None,
) -> Sweep:
    """Read, check and expand a sweep file.

    `overrides` (from `--set`) replace an axis of the same name by the one value; `axes` (from
    `--axis`) replace an axis or add one, and `seed` may be what `seeds` is in a file; `name`
    replaces the file's. `data_digest` maps a run to the digest of its data, which is part of the
    run's identity. Raises ConfigError: naming the file, the field, the value and what would be
    accepted.
    """
    draft = read_sweep(path, overrides, axes=axes, name=name)
    spec = draft.spec

    # A field that another field sets is no part of a variant's name.
    set_elsewhere = set(draft.axes) | set(draft.fixed)
    several: dict[str, list[Any]] = {}
    for axis, values in draft.axes.items():
        if len(values) > 1:
            several[axis] = [_without(value, axis, set_elsewhere) for value in values]

    runs: list[PlannedRun] = []
    by_id: dict[str, str] = {}
    labels: dict[str, str] = {}
    replaced = set(overrides) | set(axes or ())
    for chosen in _points(draft, path, overrides, replaced):
        point = {axis: _without(value, axis, set_elsewhere) for axis, value in chosen.items()}
        words = [f"{axis}={value_text(value)}" for axis, value in point.items()]
        words += _sets(overrides)
        at = ", ".join(words)
        run = with_values(draft.base, draft.fixed | chosen, path, at)
        planned = plan_run(run, point, several, data_digest(run))
        if planned.run_id in by_id:
            raise ConfigError(
                f"{path}: axes: {at} resolves to the same run as {by_id[planned.run_id]}: "
                f"an axis must be a field that affects training{see('configuration')}"
            )
        by_id[planned.run_id] = at
        runs.append(planned)
        for axis, value in point.items():
            text = draft.value_labels.get((axis, canonical_json(value)))
            if text:
                labels[_part(axis, value, several)] = text
    if not runs:
        raise ConfigError(f"{path}: exclude: leaves no run")
    _check_names(runs, path)

    baseline = _baseline(spec.baseline, runs, path, bool(overrides or axes))
    if spec.seeds and "seed" not in overrides:
        others = seed_list(spec.seeds.others or [])
        runs = [run for run in runs if run.variant == baseline or run.spec.seed in others]
    return Sweep(spec, tuple(runs), baseline, path.read_text(encoding="utf-8"), path, labels=labels)


def load_file(
    path: Path, overrides: dict[str, Any], data_digest: Callable[[RunSpec], str]
) -> Sweep:
    """A sweep file, or a run file as a sweep of one."""
    load = load_sweep if "name" in read_mapping(path) else single_run
    return load(path, overrides, data_digest)


def single_run(
    path: Path,
    overrides: dict[str, Any],
    data_digest: Callable[[RunSpec], str],
    *,
    name: str | None = None,
) -> Sweep:
    """A run file as a sweep of one, under `name` or that of the file. Raises ConfigError: as
    `load_sweep`."""
    data = load_raw_run(path)
    for dotted in overrides:
        check_field(dotted, path, "--set")
    run = with_values(data, overrides, path, ", ".join(_sets(overrides)))
    try:
        spec = SweepSpec(
            name=name or re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._") or "run"
        )
    except ValidationError as error:
        raise explain(error, SweepSpec, "--name") from None
    planned = plan_run(run, {}, {}, data_digest(run))
    return Sweep(spec, (planned,), None, path.read_text(encoding="utf-8"), path)


def _check_names(runs: list[PlannedRun], path: Path) -> None:
    """Runs that are averaged, as they have one variant, differ in their seed only."""
    settings: dict[str, str] = {}
    for run in runs:
        own = canonical_json({**run.axes, "seed": None})
        if settings.setdefault(run.variant, own) != own:
            why = f"two settings are called {run.variant!r}, and would be averaged"
            raise ConfigError(
                f"{path}: axes: {why}; choose values that differ in their first six digits"
            )


def _points(
    draft: Draft, path: Path, overrides: dict[str, Any], replaced: set[str]
) -> list[dict[str, Any]]:
    """All combinations of the axes in file order (the last axis fastest), zipped groups moving
    together, but for those that `exclude` leaves out. The file's own values of what is `replaced`
    need not be there."""
    axes = draft.axes
    spec = draft.spec
    total = draft.combinations
    if total > MAX_RUNS:
        raise ConfigError(
            f"{path}: axes: {total:,} runs; at most {MAX_RUNS:,} are accepted in one sweep"
        )
    groups: list[list[dict[str, Any]]] = []  # the values that each group of axes takes in turn
    for members in draft.moving_together():
        rows = zip(*(axes[member] for member in members), strict=True)
        groups.append([dict(zip(members, values, strict=True)) for values in rows])
    points = []
    for parts in itertools.product(*groups):
        point: dict[str, Any] = {}
        for part in parts:
            point |= part
        points.append(point)
    for entry in spec.exclude:
        if replaced.isdisjoint(entry) and not any(_has(point, entry) for point in points):
            values = ", ".join(f"{name}: {axes[name]}" for name in entry)
            raise ConfigError(
                f"{path}: exclude: {entry} leaves out no run; accepted: values of {values}"
            )
    return [p for p in points if not any(_has({**overrides, **p}, entry) for entry in spec.exclude)]


def _has(point: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether a combination has all values of an entry of `exclude`."""
    return canonical_json({k: v for k, v in point.items() if k in entry}) == canonical_json(entry)


def _sets(overrides: dict[str, Any]) -> list[str]:
    return [f"--set {field}={value_text(value)}" for field, value in overrides.items()]


def _without(value: Any, at: str, fields: set[str]) -> Any:
    """A value of the axis `at` without what other fields set, so that no name says it: with `--set
    algorithm.beta=0.1`, {name: grpo, beta: 0.3} is grpo."""
    if not isinstance(value, dict):
        return value
    return {
        k: _without(v, f"{at}.{k}", fields) for k, v in value.items() if f"{at}.{k}" not in fields
    }


def value_text(value: Any) -> str:
    """A value in the name of a variant."""
    if isinstance(value, dict):
        head = str(value.get("name") or value.get("type") or "")
        settings = ",".join(
            f"{k}={value_text(v)}" for k, v in value.items() if k not in ("name", "type")
        )
        return f"{head}({settings})" if head and settings else head or f"({settings})"
    if isinstance(value, list):
        return "[" + ",".join(map(value_text, value)) + "]"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def plan_run(
    run: RunSpec, point: dict[str, Any], varied: dict[str, list[Any]], digest: str
) -> PlannedRun:
    """Name a run: variant = algorithm and the varied axes but the seed; folder = variant, seed,
    identity."""
    parts = [_part("algorithm", point.get("algorithm", run.algorithm.name), varied)]
    for axis in varied:
        if axis not in ("algorithm", "seed"):
            parts.append(_part(axis, point[axis], varied))
    variant = " ".join(parts)
    run_id = identity(run, digest)
    return PlannedRun(run_folder(variant, run.seed, run_id), run_id, variant, point, run, digest)


def _part(axis: str, value: Any, varied: dict[str, list[Any]]) -> str:
    """What a value adds to the name of a variant."""
    text = value_text(_telling(value, varied.get(axis, [])))
    return text if axis == "algorithm" else f"{axis.removeprefix('algorithm.')}={text}"


def run_folder(name: str, seed: int, run_id: str) -> str:
    """The folder of a run, whatever characters are in the name of its variant."""
    slug = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:60].strip("-.")
    return f"{slug}-s{seed}-{run_id[:8]}"


def _telling(value: Any, values: list[Any]) -> Any:
    """A value of an axis without the fields in which all values of the axis agree."""
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in values):
        return value
    telling = {k for k, v in value.items() if any(other.get(k, ...) != v for other in values)}
    return {k: v for k, v in value.items() if k in telling | {"name", "type"}}


def _baseline(
    wanted: str | dict[str, Any] | None, runs: list[PlannedRun], path: Path, overridden: bool
) -> str | None:
    """The variant that `wanted` names or describes; None when there is none, or an override has
    changed the variants."""
    variants = list(dict.fromkeys(r.variant for r in runs))
    if wanted is None or wanted in variants:
        return wanted if isinstance(wanted, str) else None
    values = _described(wanted) if isinstance(wanted, str) else wanted
    fitting = list(dict.fromkeys(r.variant for r in runs if _fits(r, values)))
    if len(fitting) == 1:
        return fitting[0]
    if overridden:
        # `--set algorithm=...` may well have removed the baseline; that is not a mistake.
        return None
    hint = nearest(wanted, variants) if isinstance(wanted, str) else ";"
    wrong = f"matches {len(fitting)} variants; name one." if fitting else f"is not a variant{hint}"
    raise ConfigError(
        f"{path}: baseline: {wanted!r} {wrong} Accepted: {', '.join(fitting or variants)}"
    )


def _described(text: str) -> dict[str, Any]:
    """`grpo beta=1e-4` as {algorithm: grpo, beta: 0.0001}."""
    values: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals:
            values[name] = parse_yaml(value, "baseline")
        else:
            values["algorithm"] = word
    return values


def _fits(run: PlannedRun, values: dict[str, Any]) -> bool:
    """Whether a run has all the values: of an axis, or of any field; `algorithm.` may be left
    out."""
    resolved = run.spec.model_dump(mode="json")

    def field(dotted: str) -> Any:
        value: Any = resolved
        parts = dotted.split(".")
        for i, name in enumerate(parts):
            rest = ".".join(parts[i:])
            if isinstance(value, dict) and rest in value:  # a key may be a dotted name
                return value[rest]
            value = value.get(name, ...) if isinstance(value, dict) else ...
        return value

    def fits(name: str, value: Any) -> bool:
        if name == "algorithm" and value == run.spec.algorithm.name:
            return True
        values = (run.axes.get(name, ...), field(name), field(f"algorithm.{name}"))
        return canonical_json(value) in [canonical_json(each) for each in values if each is not ...]

    return all(fits(name, value) for name, value in values.items())
