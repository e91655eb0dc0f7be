"""A sweep file: its fields, and what is checked of them. :mod:`rpg.config.sweep_spec` reads it and
expands it into runs."""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rpg.catalogue.schema import models_in
from rpg.config.errors import ConfigError, nearest
from rpg.config.run_spec import RunSpec
from rpg.config.section import Positive, Section

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
    of every other variant; or lists of seeds. `rpg show` says how much smaller a difference they
    find."""
    budget: Budget | None = None
    """`{tokens: 300000}`: reports also compare at these tokens per run, interpolated between
    checkpoints. Changes no run."""
    drill: Drill | None = None
    """What a [night](operations.md#nightly-runs) does to the runs on purpose: `kill_after: 3`,
    `edited_from: {field: value}`, `imports: [{kind, file, variant}]`. Changes no run."""


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
        return math.prod(len(self.axes[names[0]]) for names in self.moving_together())

    def moving_together(self) -> list[list[str]]:
        """The axes in file order, those of a zipped group together."""
        groups = []
        for name in self.axes:
            group = next((group for group in self.spec.zip if name in group), [name])
            members = [member for member in group if member in self.axes]
            if name == members[0]:
                groups.append(members)
        return groups

    def values(self) -> Iterator[tuple[str, Any]]:
        """(dotted field, value) of everything that its runs may get; "" is the whole run."""
        yield "", self.base
        yield from self.fixed.items()
        for field, values in self.axes.items():
            yield from ((field, value) for value in values)
        if self.spec.drill:
            yield from self.spec.drill.edited_from.items()


def check_seeds(spec: SweepSpec, seeds: SeedsOf, path: Path) -> None:
    """`seeds` needs a baseline, which has all seeds of the others; they are given once."""
    if spec.baseline is None:
        raise ConfigError(f"{path}: seeds: there is no baseline; name one with `baseline:`")
    if seeds.others is not None and "seed" in spec.axes:
        raise ConfigError(f"{path}: seeds.others: the axis seed has them, too; keep one of the two")
    if seeds.others is None and "seed" not in spec.axes:
        raise ConfigError(f"{path}: seeds.others: missing, and there is no axis seed")
    baseline = seed_list(seeds.baseline)
    others = seed_list(spec.axes["seed"] if seeds.others is None else seeds.others)
    known = set(baseline)
    missing = [seed for seed in others if not isinstance(seed, Hashable) or seed not in known]
    if missing:
        raise ConfigError(
            f"{path}: seeds.baseline: {seeds.baseline} lacks seed {missing[0]} of the others; "
            "the baseline needs all of theirs, as variants are compared seed by seed"
        )


def seed_list(seeds: int | list[Any]) -> list[Any]:
    """The seeds that a list or a number stands for."""
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def check_axes(
    axes: dict[str, list[Any]], spec: SweepSpec, path: Path, overrides: dict[str, Any]
) -> None:
    """Axes and assignments name fields, each once; `exclude` and `zip` name axes."""
    for field in (*axes, *spec.set, *overrides):
        where = "set"
        if field in axes:
            where = "axes"
        elif field in overrides:
            where = "--set"
        check_field(field, path, where)
        section, _, last = field.rpartition(".")
        if section in axes and (last == "type" or field == "algorithm.name"):
            why = f"is that of a value of the axis {section}; give {section} instead"
            raise ConfigError(f"{path}: {where}.{field}: {why}")
    for field, values in axes.items():
        if not values:
            raise ConfigError(f"{path}: axes.{field}: the list is empty; give at least one value")
        if field in spec.set:
            raise ConfigError(f"{path}: set.{field}: is also an axis; keep one of the two")
    _check_groups(axes, spec, path, overrides)


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
