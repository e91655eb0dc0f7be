"""A sweep is data: a base run, axes checked against the schema, and the list of runs they expand
to. :mod:`rpg.config.sweep_file` has the fields of the file."""

import copy
import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rpg.config.code import locate
from rpg.config.errors import ConfigError, explain, nearest, other_kind
from rpg.config.identity import canonical_json, identity
from rpg.config.load import (
    assign,
    checked,
    load_raw_run,
    merged_over_base,
    parse_yaml,
    read_mapping,
    resolve,
)
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_file import (
    MAX_RUNS,
    Draft,
    SeedsOf,
    SweepSpec,
    check_axes,
    check_field,
    check_seeds,
    seed_list,
)
from rpg.config.variant_names import part_of_name, run_folder, value_text, without_fields
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
            several[axis] = [without_fields(value, axis, set_elsewhere) for value in values]

    runs: list[PlannedRun] = []
    by_id: dict[str, str] = {}
    labels: dict[str, str] = {}
    replaced = set(overrides) | set(axes or ())
    for chosen in _points(draft, path, overrides, replaced):
        point = {axis: without_fields(value, axis, set_elsewhere) for axis, value in chosen.items()}
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
                labels[part_of_name(axis, value, several)] = text
    if not runs:
        raise ConfigError(f"{path}: exclude: leaves no run")
    _check_names(runs, path)

    baseline = _baseline(spec.baseline, runs, path, bool(overrides or axes))
    if spec.seeds and "seed" not in overrides:
        others = seed_list(spec.seeds.others or [])
        runs = [run for run in runs if run.variant == baseline or run.spec.seed in others]
    return Sweep(spec, tuple(runs), baseline, path.read_text(encoding="utf-8"), path, labels=labels)


def read_sweep(
    path: Path,
    overrides: dict[str, Any],
    *,
    axes: dict[str, Any] | None = None,
    name: str | None = None,
) -> Draft:
    """Read and check a sweep file without expanding it; arguments and errors as of `load_sweep`."""
    spec, value_labels = _read_spec(path, axes, name)
    base = merged_over_base(spec.run, spec.base, path)
    varied = {field: values for field, values in spec.axes.items() if field not in overrides}
    both = [field for field in overrides if field in (axes or ())]
    if both:
        raise ConfigError(
            f"--set {both[0]}: --axis {both[0]} has values for it, too; keep one of the two"
        )
    check_axes(varied, spec, path, overrides)
    _check_distinct(varied, path)
    return Draft(spec, base, varied, {**spec.set, **overrides}, value_labels)


def _check_distinct(axes: dict[str, list[Any]], path: Path) -> None:
    for field, values in axes.items():
        if len({canonical_json(value) for value in values}) != len(values):
            raise ConfigError(f"{path}: axes.{field}: a value is given twice: {values}")


def _read_spec(
    path: Path, axes: dict[str, Any] | None, name: str | None
) -> tuple[SweepSpec, dict[tuple[str, str], str]]:
    """The fields of a sweep file, with a name and axes from the command line; and {(axis, value as
    JSON): its label}."""
    raw = read_mapping(path)
    if "name" not in raw and not raw.keys().isdisjoint(RunSpec.model_fields):
        raise other_kind(path, "run", "sweep file (name, axes)")
    if "tune" in raw:
        raise other_kind(path, "study", "sweep file (name, axes)")
    misplaced = [
        key for key in raw if key in RunSpec.model_fields and key not in SweepSpec.model_fields
    ]
    if misplaced:
        shown = ", ".join(misplaced)
        raise ConfigError(f"{path}: {shown}: in a sweep file, sections of a run go below `run:`")
    if name is not None:
        raw["name"] = name
    if axes:
        _replace_axes(raw, axes)
    if isinstance(raw.get("seeds"), list):
        raise ConfigError(
            f"{path}: seeds: a list is an axis: `axes: {{seed: {raw['seeds']}}}`; "
            "accepted here: {baseline: 9, others: 3}"
        )
    spec = checked(SweepSpec, raw, path)
    if spec.seeds:
        check_seeds(spec, spec.seeds, path)
        spec = _with_seed_axis(spec, spec.seeds)
    return spec, _labels(spec, path)


def _labels(spec: SweepSpec, path: Path) -> dict[tuple[str, str], str]:
    """{(axis, value as JSON): its label}; the labels are taken out of the values."""
    labels = {}
    for axis, values in spec.axes.items():
        for value in values:
            if isinstance(value, dict) and "label" in value:
                text = value.pop("label")
                if not isinstance(text, str) or not text.strip() or len(text) > 80:
                    wrong = f"{text!r} is not a text of 1 to 80 characters"
                    raise ConfigError(f"{path}: axes.{axis}: label: {wrong}")
                labels[axis, canonical_json(value)] = text.strip()
    return labels


def _replace_axes(raw: dict[str, Any], axes: dict[str, Any]) -> None:
    """Put the axes of the command line into a file's fields."""
    replaced = dict(axes)
    if isinstance(axes.get("seed"), dict):
        _replace_seeds(raw, replaced.pop("seed"))
    elif "seed" in axes:
        raw.pop("seeds", None)
    raw["set"] = {k: v for k, v in (raw.get("set") or {}).items() if k not in axes}
    raw["axes"] = {**(raw.get("axes") or {}), **replaced}


def _replace_seeds(raw: dict[str, Any], seeds: dict[str, Any]) -> None:
    """Put `{baseline: ..., others: ...}` of the command line into a file's fields."""
    replacing = {name: value for name, value in seeds.items() if value is not None}
    in_file = raw.get("seeds")
    if isinstance(in_file, dict):
        raw["seeds"] = in_file | replacing
    else:
        raw["seeds"] = replacing
    if "others" in replacing:
        raw["axes"] = {k: v for k, v in (raw.get("axes") or {}).items() if k != "seed"}


def _with_seed_axis(spec: SweepSpec, seeds: SeedsOf) -> SweepSpec:
    """The axis `seed` with all seeds; `seeds.others` says which of them the others have."""
    others = spec.axes["seed"] if seeds.others is None else seeds.others
    complete = {
        "axes": {**spec.axes, "seed": seed_list(seeds.baseline)},
        "seeds": seeds.model_copy(update={"others": others}),
    }
    return spec.model_copy(update=complete)


def with_values(base: dict[str, Any], values: dict[str, Any], path: Path, at: str) -> RunSpec:
    """`base` with {dotted field: value}, whole sections before their fields; `at` says which, for
    messages."""
    data = copy.deepcopy(base)
    where = f"{path} [{at}]" if at else str(path)
    for dotted, value in sorted(values.items(), key=lambda item: item[0].count(".")):
        assign(data, dotted, value, where)
    return resolve(locate(data, path), where, path)


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


def plan_run(
    run: RunSpec, point: dict[str, Any], varied: dict[str, list[Any]], digest: str
) -> PlannedRun:
    """Name a run: variant = algorithm and the varied axes but the seed; folder = variant, seed,
    identity."""
    parts = [part_of_name("algorithm", point.get("algorithm", run.algorithm.name), varied)]
    for axis in varied:
        if axis not in ("algorithm", "seed"):
            parts.append(part_of_name(axis, point[axis], varied))
    variant = " ".join(parts)
    run_id = identity(run, digest)
    return PlannedRun(run_folder(variant, run.seed, run_id), run_id, variant, point, run, digest)


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
