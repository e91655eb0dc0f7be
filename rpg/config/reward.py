"""The section `reward`: one part, or a list of parts whose weighted values are added."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rpg.config.section import (
    CODE,
    GIGABYTES,
    NAME,
    OPERATES,
    PATH,
    ROWS_AT_ONCE,
    SECONDS,
    TOKENS,
    Fraction,
    Positive,
    Section,
    default_type,
    listed,
    module_function,
    regular_expression,
)

Name = Annotated[str, NAME, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class RewardSection(Section):
    """Base of every part of a reward. Its value for a response is multiplied by its weight and
    added to the others."""

    type: str
    weight: float = 1.0
    """What its values are multiplied by; metrics report them without it."""
    name: Name | None = None
    """Its metric is `reward_<name>`. Default: its type, or for a function the name of the function.
    """

    def called(self) -> str:
        """The name of its metric, without `reward_`."""
        return self.name or self.type


class Corruption(Section):
    """Errors that are added to the verdict on purpose, to study how wrong a grader may be."""

    false_positive: Fraction = 0.0
    """Share of the wrong responses that are rewarded as right."""
    false_negative: Fraction = 0.0
    """Share of the right responses that are rewarded as wrong."""
    by: Literal["sample", "response"] = "sample"
    """`sample`: every response of a rollout has its own chance. `response`: the same response to
    the same problem is always judged alike, so that errors can be exploited. Both follow from the
    run's seed."""


class CorrectnessReward(RewardSection):
    """The verdict of the task's verifier. The paper's recipe gives +1 and -1 (App. H)."""

    type: Literal["correctness"] = "correctness"
    right: float = 1.0
    """Value of a correct response."""
    wrong: float = -1.0
    """Value of any other response."""
    corrupt: Corruption = Corruption()
    """In training only: accuracies and evaluations keep the verifier's verdict."""


class FormatReward(RewardSection):
    """1 for a response that matches a regular expression, else 0."""

    type: Literal["format"]
    pattern: Annotated[str, NAME, Field(min_length=1), AfterValidator(regular_expression)]
    """Python syntax, searched anywhere in the response; `.` also matches line breaks. `^` and `$`
    match its ends."""


class LengthReward(RewardSection):
    """1 for a response of at most `full` tokens, falling linearly to 0 at `zero` tokens."""

    type: Literal["length"]
    full: Annotated[int, Field(ge=0), TOKENS] = 0
    zero: Annotated[Positive, TOKENS] | None = None
    """Default: rollout.max_response_tokens."""


class PythonReward(RewardSection):
    """Your own function, in a file beside the YAML file that names it, or in an installed package.

    It runs in a separate process. Its arguments are lists with one value per response: `prompts`,
    `responses`, and every other column of the data by its name; docs/rewards.md lists everything it
    may take and return.
    """

    type: Literal["python"]
    function: Annotated[str, CODE, AfterValidator(module_function)]
    """`module:function`, e.g. `my_rewards:score` for the function `score` of `my_rewards.py`."""
    weights: dict[str, float] = {}  # noqa: RUF012 (pydantic copies it)
    """Weights of the values, for a function that returns named values. A value without a weight has
    weight 1."""
    seconds: Annotated[float, Field(gt=0), OPERATES, SECONDS] = 60.0
    """The run fails if a batch of responses takes longer."""
    memory_gib: Annotated[float, Field(gt=0), OPERATES, GIGABYTES] = 16.0
    """The run fails if the function's process and those it starts need more."""
    digest: Annotated[str, CODE, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """Digest of the source, filled in when the file is read: a changed function makes another run.
    """
    beside: Annotated[Path | None, CODE, Field(exclude=True, repr=False)] = None
    """Folder that is searched for the module first. Default: the folder of the file that names the
    function."""

    def called(self) -> str:
        return self.name or self.function.rpartition(":")[2].lower().strip("_") or "python"


class EnvironmentReward(RewardSection):
    """What the environment's `get_reward` returns; for tasks of type environment."""

    type: Literal["environment"]


class ModelReward(RewardSection):
    """A reward model: a Hugging Face sequence classifier with one output, applied to prompt and
    response as a chat."""

    type: Literal["model"]
    path: Annotated[str, PATH, Field(min_length=1)]
    """A folder, or a hub id."""
    revision: Annotated[str | None, NAME] = None
    rows: Annotated[Positive, OPERATES, ROWS_AT_ONCE] = 16
    """Responses per forward pass."""


_AnyReward = (
    CorrectnessReward | FormatReward | LengthReward | PythonReward | EnvironmentReward | ModelReward
)
Reward = Annotated[_AnyReward, Field(discriminator="type"), default_type("correctness")]


def _distinct(parts: tuple[RewardSection, ...]) -> tuple[RewardSection, ...]:
    if not parts:
        raise ValueError("reward must have at least one part, e.g. {type: correctness}")
    names = [part.called() for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"two parts of the reward are called {name!r}; give one of them another `name`"
            )
    return parts


Rewards = Annotated[tuple[Reward, ...], listed(dict, RewardSection), AfterValidator(_distinct)]
