"""What a benchmark is, as data: where its problems come from, how they are asked and graded.

Shipped benchmarks are rpg/tasks/sets/benchmarks/*.yaml; a user's is a YAML file of the same form (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError, model_validator

from rpg.config.data_source import Column
from rpg.config.errors import ConfigError, explain, nearest
from rpg.config.load import read_mapping
from rpg.config.section import Positive, Section
from rpg.config.task import RECIPE_TEMPLATE, ChainTask, MathVerifier, Verifier
from rpg.config.yaml_lines import place

_SETS = Path(__file__).parent / "sets" / "benchmarks"


class Source(Section):
    """Where the problems are: files of these names in a local folder, a file of the user's, or the Hugging Face hub.

    Those of the chain task are made by code.
    """

    hub: str | None = None
    """Hub id of the data set, e.g. math-ai/aime25."""
    subset: str | tuple[str, ...] | None = None
    """Configuration of the data set on the hub, or several that are read one after another."""
    split: str = "test"
    revision: str | None = None
    """Commit of the data set; null is the newest, whatever that is on the day."""
    files: tuple[str, ...] = ()
    """Names under which a local copy is looked for in the folder of local data, first match first."""
    path: Path | None = None
    """A JSON-lines or Parquet file; relative to the benchmark's YAML file."""
    chain: ChainTask | None = None
    """Settings of the chain task; a benchmark named chain-<tier> holds the problems that it keeps for that tier."""

    @model_validator(mode="after")
    def _somewhere(self) -> Source:
        if not (self.hub or self.path or self.files or self.chain):
            raise ValueError("name a hub id (hub), a file (path) or file names (files)")
        return self


class Columns(Section):
    """Which columns hold what. The first of each list that a row has is read; `a.b` is field b of column a."""

    problem: tuple[Column, ...] = ("problem", "question", "prompt")
    answer: tuple[Column, ...] = ("answer", "final_answer")
    r"""`boxed(column)` is the last `\\boxed{...}` of a column; `asked(column)` is the user's message of a conversation,
    without the words the paper's recipe puts around a problem; `after("####", column)` what follows the last `####`;
    `regex("pattern", column)` the first group of the first place where the pattern is found."""


class Prompt(Section):
    """How a problem becomes the user's message. Raise `version` with every change of the text."""

    version: Positive = 1
    template: str = RECIPE_TEMPLATE

    @model_validator(mode="after")
    def _has_place(self) -> Prompt:
        if "{prompt}" not in self.template:
            raise ValueError("template must contain {prompt}, the place where the problem goes")
        return self


class ProblemSet(Section):
    """Problems with their answers: where they are, and what they are checked against."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    """The name of the YAML file without its ending."""
    title: str = ""
    source: Source
    columns: Columns = Columns()
    problems: Positive | tuple[Positive, ...] | None = None
    """How many distinct problems there must be (several numbers where copies differ); any other number is an error."""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """Digest of the problems and answers that were checked; a different one is reported, not refused."""
    corrections: dict[str, str] = Field(default_factory=dict)
    """Answers as they stand in the source -> as they were meant, where the source has a slip."""
    prompt: Prompt = Prompt()

    def digest_notes(self, source: str, digest: str) -> list[str]:
        """A note where the problems read from `source` are not those that were checked."""
        if self.digest in (None, digest):
            return []
        return [
            f"{self.name}: the problems in {source} have digest {digest}, not {self.digest} as the copy that was checked: "
            "wording or answers differ somewhere"
        ]


class Benchmark(ProblemSet):
    """Held-out problems with their answers, and how to ask and grade them."""

    verifier: Verifier = MathVerifier()
    samples_per_problem: Positive = 32
    """k of mean@k."""


Set = TypeVar("Set", bound=ProblemSet)


@cache  # estimating a sweep asks for them once per run
def benchmarks() -> Mapping[str, Benchmark]:
    """All benchmarks that ship, by name."""
    return {path.stem: read_set(Benchmark, path) for path in sorted(_SETS.glob("*.yaml"))}


def benchmark(name: str | Path) -> Benchmark:
    """A shipped benchmark, by name, or a user's, by the path of its YAML file.

    Raises:
        ConfigError: unknown name, or a file that is not a benchmark; the message names file, field and value.
    """
    if str(name).endswith((".yaml", ".yml")):
        return read_set(Benchmark, Path(name))
    return read_set(Benchmark, shipped(_SETS, str(name), "benchmark"))


def shipped(folder: Path, name: str, kind: str) -> Path:
    """The YAML file of that name in a folder of those that ship; a ConfigError names the nearest one."""
    names = [p.stem for p in sorted(folder.glob("*.yaml"))]
    if name not in names:
        raise ConfigError(
            f"{kind} {name!r} is not known{nearest(name, names)} Known: {', '.join(names)}, "
            "or the path of a YAML file"
        )
    return folder / f"{name}.yaml"


def read_set(kind: type[Set], path: Path) -> Set:
    """A set of problems from its YAML file; a relative `source.path` is beside the file.

    Raises:
        ConfigError: the message names file, field and value.
    """
    data = read_mapping(path)
    try:
        problem_set = kind.model_validate({"name": path.stem, **data})
    except ValidationError as error:
        raise explain(error, kind, str(path), partial(place, path)) from None
    source = problem_set.source
    if source.path is not None and not source.path.is_absolute():
        source = source.model_copy(update={"path": path.parent / source.path})
    return problem_set.model_copy(update={"source": source})
