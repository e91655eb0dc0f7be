"""A study is a file: variants, how each is tuned, and what is compared afterwards on seeds that
were never tuned on."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from rpg.config.errors import ConfigError, other_kind
from rpg.config.identity import canonical_json
from rpg.config.load import checked, merged_over_base, read_mapping
from rpg.config.run_spec import RunSpec
from rpg.config.section import Positive, Section
from rpg.config.sweep_file import Budget, check_field
from rpg.config.sweep_spec import Sweep, with_values

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1)]
FEWEST_SEEDS = 3
"""Seeds that a verdict needs (rpg.stats.MINIMUM_SEEDS)."""


class Range(Section):
    """What is searched for one field: an interval, on a scale of logarithms or a linear one, or a
    list of choices.

    Between whole numbers only whole numbers are proposed.
    """

    log: tuple[int | float, int | float] | None = None
    linear: tuple[int | float, int | float] | None = None
    choices: tuple[Any, ...] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(value is not None for value in (self.log, self.linear, self.choices)) != 1:
            raise ValueError("give one of log: [low, high], linear: [low, high], choices: [...]")
        if self.choices is not None:
            different = {canonical_json(choice) for choice in self.choices}
            if len(different) < max(2, len(self.choices)):
                raise ValueError("choices: at least two are needed, each given once")
            return self
        low, high = self.ends
        if not low < high or (self.log and low <= 0):
            above = " and above 0" if self.log else ""
            raise ValueError(f"{[low, high]}: the first number must be smaller{above}")
        return self

    @property
    def ends(self) -> tuple[Any, ...]:
        """Both ends of the interval, or all choices: if the schema accepts these, it accepts all
        others."""
        return self.log or self.linear or self.choices or ()

    def number(self, value: Any) -> Any:
        """The number of a choice; any other value as it is."""
        if self.choices is None:
            return value
        return [canonical_json(choice) for choice in self.choices].index(canonical_json(value))

    def of(self, number: Any) -> Any:
        """The choice with this number; any other value as it is."""
        return number if self.choices is None else self.choices[number]

    def place(self, value: Any) -> float:
        """Where in the interval a value is, from 0 to 1; the number of a choice."""
        if self.choices is not None:
            return float(self.number(value))
        low, high = self.ends
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return float((value - low) / (high - low))

    def edge(self, value: Any) -> str | None:
        """`largest` or `smallest` if the value is within a twentieth of the interval from its end;
        None inside, and for choices."""
        at = 0.5 if self.choices is not None else self.place(value)
        if at < EDGE:
            return "smallest"
        return "largest" if at > 1 - EDGE else None


EDGE = 0.05
"""Part of an interval at each end in which a best value asks for a larger interval."""
Space = dict[str, Range]
"""Dotted field -> what is searched."""


class Objective(Section):
    """What tuning maximises: the mean accuracy over benchmarks at the last checkpoint, mean over
    the tuning seeds."""

    benchmarks: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Benchmarks that are not reported; null: those of the task's `tuning_problems`."""


class Tune(Section):
    """How the settings of every variant are searched: as many searches, trials and seeds for
    each."""

    space: Space = {}  # noqa: RUF012 - pydantic copies it
    """Dotted field -> `{log: [low, high]}`, `{linear: [low, high]}` or `{choices: [...]}`."""
    spaces: dict[str, dict[str, Range | None]] = {}  # noqa: RUF012 - pydantic copies it
    """Variant -> its own ranges; null: the variant does not have the field."""
    trials: Positive
    """Settings that are tried in each search."""
    searches: Positive | None = None
    """Independent searches per variant; null: one for each reported seed, so that the spread over
    reported seeds includes the luck of a search. With one search, verdicts are about the settings
    that it found."""
    batch: Positive = 8
    """Trials of a search that are proposed together."""
    seeds: Seeds
    prune: Literal["none", "successive-halving"] = "none"
    """`successive-halving`: after each seed, only the better half of a batch is trained with the
    next one."""
    objective: Objective = Objective()

    @model_validator(mode="after")
    def _halves(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: one is given twice: {list(self.seeds)}")
        if self.prune != "none" and len(self.seeds) < 2:
            raise ValueError(
                f"prune: {self.prune} stops trials between seeds, so it needs two seeds at least"
            )
        return self


class Report(Section):
    """What is compared after tuning."""

    seeds: Seeds
    matters: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """The smallest difference in accuracy that matters."""
    budget: Budget | None = None
    """Also compare at these tokens, interpolated between checkpoints."""
    looks: Positive = 1
    """How often differences are tested while seeds come in; a study that is decided stops."""
    baseline: str | None = None
    """The variant that the others are compared with; null: the first."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: one is given twice: {list(self.seeds)}")
        most = max(1, len(self.seeds) - FEWEST_SEEDS + 1)
        if self.looks > most:
            raise ValueError(
                f"looks: {self.looks} with {len(self.seeds)} seeds; accepted: up to {most}, "
                "because a test needs "
                f"{FEWEST_SEEDS} seeds and every look one more"
            )
        return self


class StudySpec(Section):
    """The fields of a study file."""

    name: Name
    """Folder name of the study: lower-case letters, digits, dashes."""
    question: str = ""
    base: str | None = None
    """A run file, relative to this file, or the name of a shipped one (`chain`)."""
    run: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Run sections that are merged over `base`."""
    set: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Dotted field -> value, for every run."""
    variants: tuple[str, ...] | dict[Name, dict[str, Any]]
    """Algorithms; or name -> dotted field -> value."""
    tune: Tune
    report: Report
    factors: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = {}  # noqa: RUF012 - pydantic copies it
    """Dotted field -> values, crossed with the reported seeds."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = list(self.variants)
        if len(set(names)) < len(names) or len(names) < 2:
            raise ValueError(f"variants: at least two, each named once (got {names})")
        named = [("tune.spaces", name) for name in self.tune.spaces]
        named += (
            [("report.baseline", self.report.baseline)] if self.report.baseline is not None else []
        )
        for field, name in named:
            if name not in names:
                raise ValueError(
                    f"{field}: {name!r} is not a variant; accepted: {', '.join(names)}"
                )
        searches = self.tune.searches
        if searches and searches > len(self.report.seeds):
            raise ValueError(
                f"tune.searches: {searches}, and report.seeds has {len(self.report.seeds)}; "
                "accepted: at most as many"
            )
        searched = set(self.tune.space).union(*self.tune.spaces.values())
        for field, levels in self.factors.items():
            if field in searched or field == "seed":
                raise ValueError(
                    f"factors.{field}: accepted: fields that are neither seed nor searched in tune"
                )
            if len({canonical_json(level) for level in levels}) < len(levels):
                raise ValueError(f"factors.{field}: {list(levels)}; accepted: each level once")
        shared = sorted(set(self.tune.seeds) & set(self.report.seeds))
        if shared:
            raise ValueError(
                f"report.seeds: {shared} are seeds of tune.seeds, too; a seed that is tuned on "
                "cannot be reported"
            )
        return self


@dataclass(frozen=True)
class Study:
    """A study file with the run that it is based on, as a raw mapping whose paths are absolute."""

    spec: StudySpec
    base: dict[str, Any]
    path: Path
    night: str = ""
    """Part of the identities of runs, where they are to be trained from scratch."""

    @property
    def searches(self) -> int:
        return self.spec.tune.searches or len(self.spec.report.seeds)

    @property
    def batches(self) -> int:
        """Batches of a search."""
        return math.ceil(self.spec.tune.trials / self.spec.tune.batch)

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Variant -> the settings that make it, by dotted field."""
        variants = self.spec.variants
        named = (
            variants
            if isinstance(variants, dict)
            else {name: {"algorithm": name} for name in variants}
        )
        return {name: {**self.spec.set, **settings} for name, settings in named.items()}

    def space(self, variant: str) -> Space:
        """What is searched for a variant."""
        space = {**self.spec.tune.space, **self.spec.tune.spaces.get(variant, {})}
        return {field: values for field, values in space.items() if values is not None}

    def run(self, values: dict[str, Any]) -> RunSpec:
        """The run with these settings, by dotted field. Raises ConfigError: the schema does not
        accept them."""
        return resolved(self.base, values, self.path)

    def first_corner(self, variant: str) -> dict[str, Any]:
        """A variant's settings at the first end of everything that is searched."""
        return self.variants[variant] | {
            field: values.ends[0] for field, values in self.space(variant).items()
        }

    def corners(self) -> Iterator[RunSpec]:
        """Every variant at the ends of what is searched, and every level of the factors: all first
        extremes, and every other one beside the first ones of the others. Raises ConfigError, as
        `run`."""
        for variant in self.variants:
            space = self.space(variant).items()
            first = self.first_corner(variant)
            yield self.run(first)
            for field, values in space:
                yield from (self.run(first | {field: value}) for value in values.ends[1:])
            for dotted, levels in self.spec.factors.items():
                yield from (self.run(first | {dotted: level}) for level in levels)

    @property
    def most_runs(self) -> int:
        """Trainings, if no trial is pruned and no look ends the study."""
        tune = self.spec.tune
        report = self.spec.report
        levels = math.prod(map(len, self.spec.factors.values()))
        each = self.searches * tune.trials * len(tune.seeds) + levels * len(report.seeds)
        return len(self.variants) * each

    def tuning_benchmarks(self) -> tuple[str, ...]:
        named = self.spec.tune.objective.benchmarks
        return named if named is not None else self.run(self.spec.set).task.tuning_names()

    def reported_benchmarks(self) -> tuple[str, ...]:
        tuned = self.tuning_benchmarks()
        return tuple(name for name in self.run(self.spec.set).benchmarks() if name not in tuned)


def specs_of(planned: Sweep | Study) -> list[RunSpec]:
    """The runs of a sweep; of a study, those at the ends of what is searched."""
    if isinstance(planned, Study):
        return list(planned.corners())
    return [run.spec for run in planned.runs]


def resolved(base: dict[str, Any], values: dict[str, Any], path: Path) -> RunSpec:
    """`base` with {dotted field: value}. Raises ConfigError: the schema does not accept it."""
    at = ", ".join(f"{field}={value}" for field, value in values.items())
    return with_values(base, values, path, at)


def load_study(path: Path) -> Study:
    """Read and check a study file. Raises ConfigError: naming file, field, value and what would be
    accepted."""
    raw = read_mapping(path)
    if "axes" in raw:
        raise other_kind(path, "sweep", "study")
    spec = checked(StudySpec, raw, path)
    study = Study(spec, merged_over_base(spec.run, spec.base, path), path)
    named: dict[str, Iterable[str]] = {
        "set": spec.set,
        "factors": spec.factors,
        "tune.space": spec.tune.space,
    }
    for variant, space in spec.tune.spaces.items():
        named[f"tune.spaces.{variant}"] = space
    for variant, settings in study.variants.items():
        named[f"variants.{variant}"] = settings
    for where, fields in named.items():
        for dotted in fields:
            check_field(dotted, path, where)
    for _ in study.corners():
        pass
    _check_benchmarks(study)
    return study


def _check_benchmarks(study: Study) -> None:
    """Tuning problems are named, exist, and leave something to report."""
    benchmarks = study.run(study.spec.set).task_benchmarks()
    tuned = study.tuning_benchmarks()
    where = f"{study.path}: tune.objective.benchmarks"
    if not tuned:
        raise ConfigError(
            f"{where}: the task has no tuning problems: set task.tuning_problems, or name "
            "benchmarks that are not reported; "
            f"there are: {', '.join(benchmarks)}"
        )
    for name in tuned:
        if name not in benchmarks:
            raise ConfigError(
                f"{where}: {name!r} is not a benchmark of the task; accepted: "
                f"{', '.join(benchmarks)}"
            )
    if not study.reported_benchmarks():
        raise ConfigError(f"{where}: all benchmarks are used for tuning, so none is left to report")
