"""What else an accuracy depends on: sampling settings as others use them, and the words of the
prompt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import model_validator

import rpg.tasks
from rpg.config.errors import ConfigError
from rpg.config.load import checked, read_mapping
from rpg.config.section import Fraction, Positive, Section
from rpg.stats.variance_components import SAMPLING, TOGETHER, variance_components
from rpg.tasks.benchmarks import Benchmark, Prompt, shipped

_SETS = Path(rpg.tasks.__file__).parent / "sets"
OTHERS = "others"
ASKED = "-prompt-"


class Preset(Section):
    """Sampling settings with their source; shipped ones are rpg/tasks/sets/presets/*.yaml."""

    source: str
    samples_per_problem: dict[str, Positive]
    """Benchmark -> k; `others` for those that are not named."""
    temperature: float
    top_p: Fraction = 1.0
    top_k: Positive | None = None
    min_p: Fraction = 0.0
    max_response_tokens: Positive

    @model_validator(mode="after")
    def _covers_all(self) -> Self:
        if OTHERS not in self.samples_per_problem:
            raise ValueError(
                f"samples_per_problem: {OTHERS} is missing, for benchmarks that are not named"
            )
        return self

    def k(self, benchmark: str) -> int:
        """Samples per problem of a benchmark, also if it is asked in other words."""
        name = benchmark.partition(ASKED)[0]
        return self.samples_per_problem.get(name, self.samples_per_problem[OTHERS])


def load_preset(name: str) -> Preset:
    """A shipped preset, by name, or a user's, by the path of its YAML file. Raises ConfigError:
    unknown name, or a file that is not a preset; the message names file, field and value.
    """
    path = shipped(_SETS / "presets", name, "preset")
    return checked(Preset, read_mapping(path), path)


def with_prompts(benchmark: Benchmark, count: int) -> list[Benchmark]:
    """The benchmark, and the same problems asked in `count` - 1 other ways, as `<name>-prompt-<i>`.

    Raises ConfigError: there are fewer ways.
    """
    others = [read_mapping(path)["template"] for path in sorted((_SETS / "prompts").glob("*.yaml"))]
    most = 1 if benchmark.source.chain else len(others) + 1
    if not 1 <= count <= most:
        raise ConfigError(f"prompts: {count}; accepted: 1 to {most} for {benchmark.name}")
    asked = [
        benchmark.model_copy(
            update={"name": f"{benchmark.name}{ASKED}{i}", "prompt": Prompt(template=text)}
        )
        for i, text in enumerate(others[: count - 1], 2)
    ]
    return [benchmark, *asked]


def spread_over_prompts(asked: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """How far the accuracy of a benchmark moves, as standard deviations: `prompt` with other words,
    `problem` with as many other problems, `sampling` with other samples. `asked` are the graded
    samples by prompt, each in the order of problems.

    From the variance components of single answers (rpg.stats.variance_components); a negative
    estimate counts as 0.
    """
    cells = [_by_problem(rows) for rows in asked]
    problems, k = np.shape(cells)[1:]
    parts = variance_components(np.mean(cells, axis=-1), k, ("prompt", "problem"))
    mixed = next(value for name, value in parts.items() if name.startswith(TOGETHER)) / problems
    variances = {
        "prompt": parts["prompt"] + mixed,
        "problem": parts["problem"] / problems + mixed,
        "sampling": parts.get(SAMPLING, 0.0) / (problems * k),
    }
    return {name: float(max(variance, 0.0)) ** 0.5 for name, variance in variances.items()}


def _by_problem(rows: Sequence[Mapping[str, Any]]) -> list[list[bool]]:
    """Whether each sample of each problem is right, problems by name."""
    right: dict[str, list[bool]] = {}
    for row in rows:
        right.setdefault(row["problem"], []).append(row["correct"])
    return [right[problem] for problem in sorted(right)]
