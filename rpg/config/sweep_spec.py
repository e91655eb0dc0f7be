"""A sweep is data: a base run, axes checked against the schema, and the list of runs they expand
to."""

import copy
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rpg.catalogue.schema import models_in
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
from rpg.config.section import Positive, Section
from rpg.errors import see

MAX_RUNS = 10_000


class Budget(Section):
    """What each run may have spent where variants are compared at equal spending."""

    tokens: Positive


Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[int, Field(ge=1, le=MAX_RUNS)] | Annotated[list[Seed], Field(min_length=1)]
"""A list of seeds, or their number: seeds 0, 1, ... below it."""


class SeedsOf(Section):
    """More seeds for the baseline than for the others: every comparison uses the baseline."""

    baseline: Seeds
    others: Seeds | None = None
    """None: those of the axis `seed`."""


class ImportedLog(Section):
    """A log of another trainer that a night imports beside a sweep's own runs."""

    kind: Literal["trl", "verl", "wandb", "csv"]
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
    """A file in the folder of the sweep file."""
    variant: Annotated[str, Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)] = 0
    updates: Positive = 1
    """Logged steps per rollout."""
    scores: dict[str, str] = Field(default_factory=dict)
    """Benchmark -> the log's column with its accuracy."""


class Drill(Section):
    """What a night does to a sweep on purpose."""

    kill_after: Positive | None = None
    """Each training is killed once it has done this step, and started again."""
    edited_from: dict[str, Any] = Field(default_factory=dict)
    """Dotted field -> the value that an earlier version of the file had. That version is run first;
    its runs are superseded."""
    imports: list[ImportedLog] = Field(default_factory=list)


class SweepSpec(BaseModel):
    """The fields of a sweep file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    """Folder name of the sweep: lower-case letters, digits, dots, dashes."""
    description: str = ""
    base: str | None = None
    """A run file, relative to this file, or the name of a shipped one (`chain`)."""
    run: dict[str, Any] = {}
    """Run sections that are merged over `base`."""
    axes: dict[str, list[Any]] = {}
    """Dotted field -> values. Every combination of the axes is a run. A mapping may also have a
    `label`, its name in reports: `{name: grpo, clip: null, label: "GRPO, unclipped"}`. A label
    changes no run."""
    zip: list[list[str]] = []
    """Groups of axes that advance together instead of being combined. Their lists must have the
    same length."""
    exclude: list[dict[str, Any]] = []
    """Combinations to leave out: a run is dropped if it has all values of one entry."""
    set: dict[str, Any] = {}
    """Dotted field -> value, for every run."""
    baseline: str | dict[str, Any] | None = None
    """What the other variants are compared with: a variant, an algorithm, or an algorithm with
    values (`grpo beta=1e-4`)."""
    matters: float = Field(default=0.02, gt=0, lt=1)
    """The smallest difference in accuracy that you care about: reports say what it takes to find
    it. Changes no run."""
    seeds: SeedsOf | None = None
    """`{baseline: 9, others: 3}` in place of an axis `seed`: seeds 0 to 8 of the baseline, 0 to 2
    of every other variant; or lists of seeds. `rpg show` says what that buys."""
    budget: Budget | None = None
    """`{tokens: 300000}`: reports also compare at these tokens per run, interpolated between
    checkpoints. Changes no run."""
    drill: Drill | None = None
    """What a [night](operations.md#nightly-runs) does to the runs on purpose: `kill_after: 3`,
    `edited_from: {field: value}`, `imports: [{kind, file, variant}]`. Changes no run."""


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


@dataclass(frozen=True)
class Draft:
    """A sweep file that is read and checked, and not yet expanded."""

    spec: SweepSpec
    base: dict[str, Any]
    """The run that all others are variations of, as a raw mapping."""
    axes: dict[str, list[Any]]
    fixed: dict[str, Any]
    """Dotted field -> value, for every run."""
    value_labels: dict[tuple[str, str], str]
    """(axis, value as JSON) -> its label."""

    @property
    def combinations(self) -> int:
        """Of the axes, those that `exclude` leaves out included."""
        return math.prod(len(self.axes[names[0]]) for names in _moving_together(self))

    def values(self) -> Iterator[tuple[str, Any]]:
        """(dotted field, value) of everything that its runs may get; "" is the whole run."""
        yield "", self.base
        yield from self.fixed.items()
        for field, values in self.axes.items():
            yield from ((field, value) for value in values)
        if self.spec.drill:
            yield from self.spec.drill.edited_from.items()


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
    _check_axes(varied, spec, path, overrides)
    return Draft(spec, base, varied, {**spec.set, **overrides}, value_labels)


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
    varied = draft.axes
    fixed = draft.fixed

    runs: list[PlannedRun] = []
    by_id: dict[str, str] = {}
    labels: dict[str, str] = {}
    below = {*varied, *fixed}
    several = {
        k: [_without(v, k, below) for v in values]
        for k, values in varied.items()
        if len(values) > 1
    }
    for chosen in _points(draft, path, overrides, {*overrides, *(axes or ())}):
        point = {k: _without(v, k, below) for k, v in chosen.items()}
        at = ", ".join([*(f"{k}={value_text(v)}" for k, v in point.items()), *_sets(overrides)])
        run = with_values(draft.base, {**fixed, **chosen}, path, at)
        planned = plan_run(run, point, several, data_digest(run))
        if planned.run_id in by_id:
            raise ConfigError(
                f"{path}: axes: {at} resolves to the same run as {by_id[planned.run_id]}: "
                "an axis must be a field that "
                f"affects training{see('configuration')}"
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
        others = _seed_list(spec.seeds.others or [])
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
        _check_seeds(spec, spec.seeds, path)
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
    given = {name: value for name, value in seeds.items() if value is not None}
    of_file = raw.get("seeds")
    raw["seeds"] = {**(of_file if isinstance(of_file, dict) else {}), **given}
    if "others" in given:
        raw["axes"] = {k: v for k, v in (raw.get("axes") or {}).items() if k != "seed"}


def _check_seeds(spec: SweepSpec, seeds: SeedsOf, path: Path) -> None:
    """`seeds` needs a baseline, which has all seeds of the others; they are given once."""
    if spec.baseline is None:
        raise ConfigError(f"{path}: seeds: there is no baseline; name one with `baseline:`")
    if seeds.others is not None and "seed" in spec.axes:
        raise ConfigError(f"{path}: seeds.others: the axis seed has them, too; keep one of the two")
    if seeds.others is None and "seed" not in spec.axes:
        raise ConfigError(f"{path}: seeds.others: missing, and there is no axis seed")
    baseline = _seed_list(seeds.baseline)
    others = _seed_list(spec.axes["seed"] if seeds.others is None else seeds.others)
    known = set(baseline)
    missing = [seed for seed in others if not isinstance(seed, Hashable) or seed not in known]
    if missing:
        raise ConfigError(
            f"{path}: seeds.baseline: {seeds.baseline} lacks seed {missing[0]} of the others; "
            "the baseline needs all of theirs, as variants are compared seed by seed"
        )


def _with_seed_axis(spec: SweepSpec, seeds: SeedsOf) -> SweepSpec:
    """The axis `seed` with all seeds; `seeds.others` says which of them the others have."""
    others = spec.axes["seed"] if seeds.others is None else seeds.others
    complete = {
        "axes": {**spec.axes, "seed": _seed_list(seeds.baseline)},
        "seeds": seeds.model_copy(update={"others": others}),
    }
    return spec.model_copy(update=complete)


def _seed_list(seeds: int | list[Any]) -> list[Any]:
    """The seeds that a list or a number stands for."""
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def with_values(base: dict[str, Any], values: dict[str, Any], path: Path, at: str) -> RunSpec:
    """`base` with {dotted field: value}, whole sections before their fields; `at` says which, for
    messages."""
    data = copy.deepcopy(base)
    where = f"{path} [{at}]" if at else str(path)
    for dotted, value in sorted(values.items(), key=lambda item: item[0].count(".")):
        assign(data, dotted, value, where)
    return resolve(locate(data, path), where, path)


def _check_axes(
    axes: dict[str, list[Any]], spec: SweepSpec, path: Path, overrides: dict[str, Any]
) -> None:
    """Axes and assignments name fields, each once; `exclude` and `zip` name axes."""
    for field in (*axes, *spec.set, *overrides):
        where = "axes" if field in axes else "--set" if field in overrides else "set"
        check_field(field, path, where)
        section, _, last = field.rpartition(".")
        if section in axes and (last == "type" or field == "algorithm.name"):
            why = f"is that of a value of the axis {section}; give {section} instead"
            raise ConfigError(f"{path}: {where}.{field}: {why}")
    for field, values in axes.items():
        if not values:
            raise ConfigError(f"{path}: axes.{field}: the list is empty; give at least one value")
        if len({canonical_json(value) for value in values}) != len(values):
            raise ConfigError(f"{path}: axes.{field}: a value is given twice: {values}")
        if field in spec.set:
            raise ConfigError(f"{path}: set.{field}: is also an axis; keep one of the two")
    _check_groups(axes, spec, path, overrides)


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


def _moving_together(draft: Draft) -> list[list[str]]:
    """The axes in file order, those of a zipped group together."""
    groups = []
    for name in draft.axes:
        group = next((group for group in draft.spec.zip if name in group), [name])
        members = [member for member in group if member in draft.axes]
        if name == members[0]:
            groups.append(members)
    return groups


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
    columns: list[list[dict[str, Any]]] = []
    for members in _moving_together(draft):
        rows = zip(*(axes[member] for member in members), strict=True)
        columns.append([dict(zip(members, values, strict=True)) for values in rows])
    points = [
        {k: v for part in combo for k, v in part.items()} for combo in itertools.product(*columns)
    ]
    for entry in spec.exclude:
        if replaced.isdisjoint(entry) and not any(_has(point, entry) for point in points):
            values = ", ".join(f"{name}: {axes[name]}" for name in entry)
            raise ConfigError(
                f"{path}: exclude: {entry} leaves out no run; accepted: values of {values}"
            )
    return [p for p in points if not any(_has({**overrides, **p}, entry) for entry in spec.exclude)]


def _check_groups(
    axes: dict[str, list[Any]], spec: SweepSpec, path: Path, overrides: dict[str, Any]
) -> None:
    """`exclude` and `zip` name axes, and no axis is in two groups of `zip`."""
    excluded = [name for entry in spec.exclude for name in entry]
    zipped = [name for group in spec.zip for name in group]
    for field, names in (("exclude", excluded), ("zip", zipped)):
        for name in names:
            if name not in axes and name not in overrides:
                raise ConfigError(f"{path}: {field}: {name!r} is not an axis{nearest(name, axes)}")
    for name in zipped:
        if zipped.count(name) > 1:
            raise ConfigError(f"{path}: zip: {name!r} is in two groups")
    for group in spec.zip:
        lengths = {name: len(axes[name]) for name in group if name in axes}
        if len(set(lengths.values())) > 1:
            raise ConfigError(f"{path}: zip: the lists must be equally long, got {lengths}")


def check_field(dotted: str, path: Path, where: str) -> None:
    """An axis or assignment must name a field that some member of the schema has."""
    field = f"--set {dotted}" if where == "--set" else f"{path}: {where}.{dotted}"
    models: list[type[BaseModel]] = [RunSpec]
    parts = dotted.split(".")
    for depth, part in enumerate(parts):
        siblings = sorted({name for m in models for name in m.model_fields})
        if part not in siblings:
            raise ConfigError(
                f"{field}: unknown field{nearest(part, siblings)} Accepted: {', '.join(siblings)}"
            )
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        models = [inner for f in fields for inner in models_in(f.annotation)]
        if not models:
            # Below a dict of free keys (task.tiers, task.benchmarks) anything is accepted.
            if depth + 1 < len(parts) and not any("dict" in str(f.annotation) for f in fields):
                raise ConfigError(f"{field}: {'.'.join(parts[: depth + 1])} has no fields")
            return


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
    named = [axis for axis in varied if axis not in ("algorithm", "seed")]
    head = _part("algorithm", point.get("algorithm", run.algorithm.name), varied)
    variant = " ".join([head, *(_part(axis, point[axis], varied) for axis in named)])
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
    if (
        overridden
    ):  # `--set algorithm=...` may well have removed the baseline; that is not a mistake
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
        values[name if equals else "algorithm"] = parse_yaml(value, "baseline") if equals else word
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
