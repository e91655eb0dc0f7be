"""The section `task`: where problems come from and how responses to them are checked."""

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from rpg.config.data_source import Chat, DataSource, FileColumns
from rpg.config.section import (
    BY_CONTENT,
    CODE,
    GIGABYTES,
    NAME,
    OPERATES,
    PATH,
    PROBLEMS,
    ROUNDS,
    SECONDS,
    SEED,
    TOKENS,
    Positive,
    Section,
    default_type,
    kinds_of,
    listed,
    module_function,
)

RECIPE_TEMPLATE = (
    "Solve the following math problem step by step. The last line of your response should "
    "be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{prompt}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
"""The paper's prompt for a mathematical problem (App. H)."""


TUNING = "-tuning"
"""How the name of a benchmark ends that holds the problems set apart for tuning."""


class TaskSection(Section):
    """Base of every task type: what the rest of the configuration needs to know about it.

    The module that rpg.tasks names for it generates or reads its problems; docs/extending.md shows
    how to add one.
    """

    type: str
    tuning_problems: Annotated[int, Field(ge=0), PROBLEMS] = 0
    """Problems of each benchmark that are set apart for tuning (docs/studies.md): they become the
    benchmark <name>-tuning, and <name> keeps the others."""

    @abstractmethod
    def benchmark_names(self) -> tuple[str, ...]:
        """Names of all its benchmarks but those for tuning, in order."""

    def tuning_names(self) -> tuple[str, ...]:
        """Names of its benchmarks for tuning, in order."""
        return tuple(f"{name}{TUNING}" for name in self.benchmark_names() if self.tuning_problems)

    def files(self) -> list[str]:
        """The files its problems are read from, if any."""
        return []

    def by_content(self) -> dict[str, Any]:
        """What replaces its paths in a run's identity, which depends on the content of files and
        not on their names."""
        return {}

    @model_validator(mode="after")
    def _named_apart(self) -> Self:
        names = self.benchmark_names()
        taken = {"mean": "the average over benchmarks", "train": "the training data"}
        taken |= dict.fromkeys(self.tuning_names(), "that of tuning_problems")
        taken |= {name: "another" for name in names if names.count(name) > 1}
        for name in filter(taken.get, names):
            why = f"{taken[name]} has this name; accepted: any other name"
            raise ValueError(f"benchmarks: {name!r}: {why}")
        if not names:
            raise ValueError("benchmarks: none is named; accepted: one or more")
        return self

    @classmethod
    def own_paths(cls, raw: dict[str, Any], at: Callable[[Any], Any]) -> dict[str, Any]:  # noqa: ARG003 - for subclasses
        """The section `raw` as written in a file, with `at(path)` for each path relative to that
        file."""
        return raw


def chat_of(task: TaskSection) -> Chat:
    """The chat around the problems of a task; an empty one if the task has no such field."""
    chat = getattr(task, "chat", None)
    return chat if isinstance(chat, Chat) else Chat()


def _with_prompt(template: str) -> str:
    if "{prompt}" not in template:
        raise ValueError("must contain {prompt}, which stands for the problem")
    return template


Template = Annotated[str, NAME, AfterValidator(_with_prompt)]
BenchmarkName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class GeneratedTask(TaskSection):
    """Base of the tasks whose problems are made by code."""

    train_problems: Annotated[Positive, PROBLEMS] = 2_000
    benchmark_problems: Annotated[Positive, PROBLEMS] = 64
    """Held-out problems per benchmark; none of them is in the training set."""
    data_seed: Annotated[int, SEED] = 0
    """Seed of the problems. The run's `seed` never changes the data."""


class ChainTask(GeneratedTask):
    """Left-to-right arithmetic modulo 10 with labelled operands. Problems are generated; nothing is
    downloaded.

    Prompt ``a3b+7c-5=``, response ``b+70c-55#5``; the reward checks the digit after the last ``#``.
    """

    type: Literal["chain"] = "chain"
    tiers: dict[BenchmarkName, Annotated[int, Field(ge=1, le=12)]] = {  # noqa: RUF012
        "easy": 2,
        "medium": 4,
        "hard": 7,
    }
    """Benchmark name -> number of operations. Each tier is used for training and, held out, as
    benchmark chain-<tier>."""
    train_problems: Annotated[Positive, PROBLEMS] = 12_000
    """Distinct training problems, spread evenly over the tiers (fewer if a tier has fewer distinct
    problems)."""

    def benchmark_names(self) -> tuple[str, ...]:
        return tuple(f"chain-{tier}" for tier in self.tiers)


Marker = Annotated[str, NAME, Field(min_length=1)]


class VerifierSection(Section):
    """Base of every verifier; its grader is in rpg.tasks.rewards."""

    type: str

    @abstractmethod
    def written(self, answer: str) -> str:
        """The shortest response in which the verifier finds `answer`."""


class MarkerVerifier(VerifierSection):
    """The answer is the rest of the line after the last `marker` in the response."""

    type: Literal["marker"] = "marker"
    marker: Marker = "Answer:"
    """The text before the answer."""
    match: Literal["exact", "number", "any"] = "exact"
    """`exact` compares text, ignoring surrounding blanks; `number` compares values (1/2 = 0.5 =
    0.50); `any`: the problem's answer lists several correct answers separated by blanks, and each
    of them counts."""

    def written(self, answer: str) -> str:
        return f"{self.marker}{answer.split()[0] if self.match == 'any' else answer}"


class MathVerifier(VerifierSection):
    """The answer is the last `Answer:` line; it is correct if it is equivalent to the reference
    answer (docs/grading.md)."""

    type: Literal["math"] = "math"
    rules: Literal["default", "recipe"] = "default"
    """`recipe`: `math_dapo` of verl 0.9.1, which compares text, for results comparable with
    published ones. The settings below are then not used."""
    fallback: Literal["none", "boxed"] = "none"
    r"""`boxed`: without an `Answer:` line, the last `\boxed{...}` is the answer. The paper's recipe
    does not do this."""
    relative_tolerance: Annotated[float, Field(ge=0.0, lt=0.1)] = 0.0
    """Numbers within this fraction of the reference number count as correct (for answers in
    physics)."""

    def written(self, answer: str) -> str:
        return f"Answer: {answer}"


class RewardVerifier(VerifierSection):
    """For data without reference answers: a response counts as correct if its reward is at least
    `at_least`."""

    type: Literal["reward"]
    at_least: float
    """Threshold for the total reward, all parts with their weights."""

    def written(self, answer: str) -> str:
        return answer


class GymVerifier(VerifierSection):
    """The answer follows the last `marker`; a Reasoning Gym data set's own `score_answer` gives it
    a score from 0 to 1.

    It ends with its line; where the data set's answer has several lines, with the response. The
    reward of a response lies between `wrong` and `right` of the part `correctness` by its score.
    """

    type: Literal["reasoning_gym"] = "reasoning_gym"
    marker: Marker = "Answer:"
    """The text before the answer."""
    at_least: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Score from which a response counts as correct in the accuracy."""

    def written(self, answer: str) -> str:
        return f"{self.marker} {answer}"


AnyVerifier = MarkerVerifier | MathVerifier | RewardVerifier | GymVerifier
Verifier = Annotated[AnyVerifier, Field(discriminator="type"), default_type("marker")]
VERIFIERS: dict[str, type[VerifierSection]] = kinds_of(Verifier)


def _source(value: Any) -> Any:
    """A path is short for `{path: ...}`."""
    return {"path": value} if isinstance(value, str | Path) else value


def _shown(source: DataSource) -> Any:
    """A source that is only a path is written as the path."""
    fields = source.model_dump(mode="json", exclude_defaults=True)
    return fields["path"] if set(fields) == {"path"} else fields


OneSource = Annotated[DataSource, BeforeValidator(_source), PlainSerializer(_shown)]
_Some = Annotated[tuple[OneSource, ...], Field(min_length=1)]


def _shown_all(sources: Sequence[DataSource]) -> Any:
    """A list of one source is written as the source."""
    shown = [_shown(source) for source in sources]
    return shown[0] if len(shown) == 1 else shown


Sources = Annotated[_Some, listed(str, Path, dict, DataSource), PlainSerializer(_shown_all)]


class FileTask(TaskSection):
    """Your own problems: JSON-lines, Parquet or CSV files, or data sets on the Hugging Face hub.

    Each row has a prompt (text, or a list of messages) and an answer. A column `demonstration` (a
    full response) is needed only to warm-start a tiny model from scratch.
    """

    type: Literal["file"]
    train: Annotated[Sources, BY_CONTENT]
    """A file, a mapping (a source, see below), or a list of these."""
    benchmarks: Annotated[dict[BenchmarkName, OneSource], BY_CONTENT]
    """Benchmark name -> file (or mapping) of held-out problems. Those that also occur in `train`
    are not trained on."""
    strict: bool = False
    """Repeated problems, problems with two answers and training problems that are in a benchmark
    are errors, instead of being left out and listed."""
    columns: FileColumns = FileColumns()
    template: Template = "{prompt}"
    """The user's message; `{prompt}` stands for the problem."""
    chat: Chat = Chat()
    verifier: Verifier = MarkerVerifier()

    def benchmark_names(self) -> tuple[str, ...]:
        return tuple(self.benchmarks)

    def files(self) -> list[str]:
        return [source.called() for source in (*self.train, *self.benchmarks.values())]

    def by_content(self) -> dict[str, Any]:
        return {"train": None, "benchmarks": sorted(self.benchmarks)}

    @classmethod
    def own_paths(cls, raw: dict[str, Any], at: Callable[[Any], Any]) -> dict[str, Any]:
        def here(value: Any) -> Any:
            if isinstance(value, list):
                return [here(entry) for entry in value]
            if not isinstance(value, dict):
                return at(value)
            if "path" not in value:
                return value
            return value | {"path": at(value["path"])}

        located = dict(raw)
        if "train" in raw:
            located["train"] = here(raw["train"])
        if isinstance(raw.get("benchmarks"), dict):
            located["benchmarks"] = {name: here(path) for name, path in raw["benchmarks"].items()}
        return located | _chat_paths(raw, at)


class EnvironmentTask(FileTask):
    """Your own problems, as of type file, on which the model works in turns with an environment
    (docs/turns.md).

    What the environment says is part of the response that the model sees, and no part of any loss.
    """

    type: Literal["environment"]  # type: ignore[assignment]
    factory: Annotated[str, CODE, AfterValidator(module_function)]
    """`module:Class`, as TRL's GRPOTrainer takes it, in a file beside the YAML file or in an
    installed package; or a function that returns an instance. Its `reset` gets all columns of a
    problem's row."""
    calls: Annotated[Positive, ROUNDS] = 4
    """Most calls in a response that are answered."""
    call: Literal["json", "text"] = "json"
    """What stands between the markers: {"name": ..., "arguments": {...}}, or the argument of the
    only tool as text."""
    markers: tuple[Marker, Marker] = ("<tool_call>", "</tool_call>")
    """The texts before and after a call."""
    reply: Annotated[str | None, NAME] = None
    """What follows a call, with `{reply}` for what the tool returns; the call's end marker then
    ends the turn. null: as the model's chat template writes a tool's message, and the turn ends
    with an end token."""
    reply_characters: Annotated[Positive, TOKENS] = 2_000
    """Most characters that a tool may return or print for one call; with more the call fails."""
    network: bool = False
    """Whether tools may use the network."""
    seconds: Annotated[float, Field(gt=0), OPERATES, SECONDS] = 10.0
    """A call without an answer after this time has failed."""
    memory_gib: Annotated[float, Field(gt=0), OPERATES, GIGABYTES] = 2.0
    digest: Annotated[str, CODE, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """Digest of the source, filled in when the file is read: a changed class makes another run."""
    beside: Annotated[Path | None, CODE, Field(exclude=True, repr=False)] = None
    """Folder that is searched for the module first. Default: the folder of the file that names the
    class."""

    @property
    def function(self) -> str:
        """What is executed."""
        return self.factory

    @model_validator(mode="after")
    def _has_place(self) -> Self:
        if self.reply is not None and "{reply}" not in self.reply:
            raise ValueError("reply must contain {reply}, the place of what the tool returns")
        return self


def _chat_paths(raw: dict[str, Any], at: Callable[[Any], Any]) -> dict[str, Any]:
    return {"chat": Chat.own_paths(raw["chat"], at)} if "chat" in raw else {}


Tier = Literal["similar", "contained", "renamed"]
TIERS: tuple[Tier, ...] = get_args(Tier)


class MathTask(TaskSection):
    """Mathematics by the paper's recipe: a training set, and shipped benchmarks (AIME, AMC, ...) or
    your own.

    Training problems that also occur in a benchmark are left out, or only listed (`leaks`).
    """

    type: Literal["math"]
    train: Annotated[str, BY_CONTENT, PATH]
    """A shipped training set (`dapo-math-17k-en`, `math-train`), a JSON-lines or Parquet file, or a
    YAML file that describes a data set (docs/data.md)."""
    benchmarks: Annotated[tuple[str, ...], BY_CONTENT, PATH] = ("aime24", "aime25", "amc23")
    """Names of shipped benchmarks, or paths to your own YAML files."""
    data: Annotated[Path | None, BY_CONTENT] = None
    """Folder with local copies of benchmarks. Default: $RPG_DATA, then the Hugging Face hub."""
    template: Template = RECIPE_TEMPLATE
    """The user's message; `{prompt}` stands for the problem."""
    leaks: tuple[Tier, ...] = ("similar",)
    """Which leaks are left out of training: problems nearly the same as a benchmark's (`similar`),
    texts that contain one (`contained`), and either with other letters and numbers (`renamed`). The
    others are only listed."""
    clusters: bool = False
    """Compare variants by means over the clusters that benchmarks name (AIME I and II of a year)
    instead of over problems. It takes several benchmarks: each of these has only two clusters."""
    chat: Chat = Chat()
    verifier: MathVerifier = MathVerifier()

    def benchmark_names(self) -> tuple[str, ...]:
        """A benchmark given by a YAML file has the file's name without the extension."""
        return tuple(Path(b).stem if b.endswith(_YAML) else b for b in self.benchmarks)

    def files(self) -> list[str]:
        return [self.train, *self.benchmarks]

    def by_content(self) -> dict[str, Any]:
        return {"train": None, "data": None, "benchmarks": list(self.benchmark_names())}

    @classmethod
    def own_paths(cls, raw: dict[str, Any], at: Callable[[Any], Any]) -> dict[str, Any]:
        files = {"data"}
        if not is_name(raw.get("train")):
            files.add("train")
        raw = {name: at(value) if name in files else value for name, value in raw.items()}
        if isinstance(raw.get("benchmarks"), list):
            named = raw["benchmarks"]
            raw["benchmarks"] = [at(name) if str(name).endswith(_YAML) else name for name in named]
        return raw | _chat_paths(raw, at)


class WordsTask(GeneratedTask):
    """Two-step arithmetic word problems in English, generated from templates, some of which are
    held out.

    A response ends with the result, after `Answer:`. Benchmarks: `words-known` has new problems
    from the templates used in training, `words-new` has problems from the held-out templates.
    """

    type: Literal["words"]
    largest: Annotated[int, Field(ge=5, le=500)] = 10
    """Largest number that is added or subtracted; minuends are at most twice as large, factors at
    most 9."""

    def benchmark_names(self) -> tuple[str, ...]:
        return "words-known", "words-new"


class OperatorsTask(GeneratedTask):
    """Chains with missing operators: a problem has several correct answers, so diversity can be
    lost.

    Prompt ``a3b7c5=5`` (start at 3, then 7 and 5, and end at 5, modulo 10), response
    ``b+70c-55#+-``; the reward checks that the operators after the last ``#`` give the result.
    """

    type: Literal["operators"]
    operations: Annotated[int, Field(ge=2, le=6)] = 4
    """Operators to fill in. About a tenth of the 3^n combinations are correct, and every problem
    has at least two such."""
    train_problems: Annotated[Positive, PROBLEMS] = 4_000

    def benchmark_names(self) -> tuple[str, ...]:
        return (f"operators-{self.operations}",)


class GymDataset(Section):
    """One data set of Reasoning Gym; `rpg list --tasks` lists them."""

    name: Annotated[str, NAME, Field(pattern=r"^[a-z0-9_]+$")]
    """Its name in the package, e.g. `gsm_symbolic`."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Its share of the training problems is its weight divided by the sum of all weights."""
    config: Annotated[dict[str, Any], PATH] = {}  # noqa: RUF012 (pydantic copies it)
    """Its settings as the package names them, e.g. `{min_terms: 2}`. `seed` and `size` are ours."""
    levels: tuple[Annotated[int, Field(ge=0), ROUNDS], ...] = ()
    """Difficulty levels of its curriculum, from 0: the training problems are spread evenly over
    them, and each is a benchmark, `<name>-level-<n>`. A setting in `config` goes over the
    curriculum's."""

    def benchmark_names(self) -> list[str]:
        return [f"{self.name}-level-{level}" for level in self.levels] or [self.name]


class GymTask(GeneratedTask):
    """Data sets of Reasoning Gym: problems made by code, graded by the data set's own scorer.

    Needs the package (the extra `tasks`), whose version is part of a run's identity.
    """

    type: Literal["reasoning_gym"]
    datasets: Annotated[tuple[GymDataset, ...], Field(min_length=1)]
    """Each data set is a benchmark of its name, or one for each of its levels."""
    train_problems: Annotated[Positive, PROBLEMS] = 2_000
    """All data sets together; none of them is in a benchmark."""
    template: Template = (
        '{prompt}\nThe last line of your response should be "Answer:" and the answer.'
    )
    """The user's message; `{prompt}` stands for the problem."""
    verifier: GymVerifier = GymVerifier()

    def benchmark_names(self) -> tuple[str, ...]:
        return tuple(name for part in self.datasets for name in part.benchmark_names())


_YAML = (".yaml", ".yml")


def is_name(train: object) -> bool:
    """Whether `train` of a math task names a shipped training set and not a file, which has an
    extension."""
    return isinstance(train, str) and re.fullmatch(r"[a-z0-9][a-z0-9_-]*", train) is not None


AnyTask = ChainTask | EnvironmentTask | FileTask | GymTask | MathTask | OperatorsTask | WordsTask
Task = Annotated[AnyTask, Field(discriminator="type"), default_type("chain")]
TASKS: dict[str, type[TaskSection]] = kinds_of(Task)
