"""The section `reward`: what a response earns. One part, or a list of parts whose weighted values are added."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from rpg.config.section import OPERATES, Positive, Section, default_type, kinds_of

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


def _module_function(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text):
        raise ValueError("expected module:function, e.g. my_rewards:score for `score` of my_rewards.py")
    return text


class RewardSection(Section):
    """Base of every part of a reward. What it gives for a response is multiplied by its weight and added to the others."""

    type: str
    weight: float = 1.0
    """What its values are multiplied by; they are reported without it."""
    name: Name | None = None
    """Its metric is `reward_<name>`. Default: its type, of a function the function's name."""

    def called(self) -> str:
        """The name of its metric, without `reward_`."""
        return self.name or self.type


class CorrectnessReward(RewardSection):
    """What the task's verifier says. The recipe gives +1 and -1 (paper, App. H)."""

    type: Literal["correctness"] = "correctness"
    weight: float = 1.0
    name: Name | None = None
    right: float = 1.0
    """For a right response."""
    wrong: float = -1.0
    """For any other."""


class FormatReward(RewardSection):
    """1 for a response in which a regular expression is found, else 0."""

    type: Literal["format"]
    pattern: Annotated[str, Field(min_length=1), AfterValidator(_regex)]
    """Python's syntax; `.` matches line ends too. With `^` and `$`, the whole response."""


class LengthReward(RewardSection):
    """1 for a response of at most `full` tokens, falling linearly to 0 at `zero` tokens."""

    type: Literal["length"]
    full: Annotated[int, Field(ge=0)] = 0
    zero: Positive | None = None
    """Default: rollout.max_response_tokens."""


class PythonReward(RewardSection):
    """A function of your own, in a file beside the YAML file that names it, or in an installed package.

    It runs in a process of its own. It is given lists, one value per response: `prompts`, `responses` and each other
    column of the data by its name; see docs/rewards.md for all it may take and return.
    """

    type: Literal["python"]
    function: Annotated[str, AfterValidator(_module_function)]
    """`module:function`, e.g. `my_rewards:score` for the function `score` of `my_rewards.py`."""
    weights: dict[str, float] = {}  # noqa: RUF012 (pydantic copies it)
    """For a function that returns named values: their weights. Those that are not named have weight 1."""
    seconds: Annotated[float, Field(gt=0), OPERATES] = 60.0
    """A batch of responses that takes longer ends the run with an error."""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """Digest of the source, filled in when the file is read: a changed function is another run."""
    beside: Annotated[Path | None, Field(exclude=True, repr=False)] = None
    """Folder in which the module is looked for first. Default: that of the file that names the function."""

    def called(self) -> str:
        return self.name or self.function.rpartition(":")[2].lower().strip("_") or "python"


class ModelReward(RewardSection):
    """A reward model: a Hugging Face sequence classifier with one output, which reads prompt and response as a chat."""

    type: Literal["model"]
    path: Annotated[str, Field(min_length=1)]
    """A folder, or a hub id."""
    revision: str | None = None
    rows: Annotated[Positive, OPERATES] = 16
    """Responses that it reads at a time."""


Reward = Annotated[
    CorrectnessReward | FormatReward | LengthReward | PythonReward | ModelReward,
    Field(discriminator="type"),
    default_type("correctness"),
]
REWARDS: dict[str, type[RewardSection]] = kinds_of(Reward)


def _listed(value: Any) -> Any:
    """A single part is a list of one."""
    return (value,) if isinstance(value, dict | RewardSection) else value


def _distinct(parts: tuple[RewardSection, ...]) -> tuple[RewardSection, ...]:
    if not parts:
        raise ValueError("reward must have at least one part, e.g. {type: correctness}")
    names = [part.called() for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two parts of the reward are called {name!r}; give one of them another `name`")
    return parts


Rewards = Annotated[tuple[Reward, ...], BeforeValidator(_listed), AfterValidator(_distinct)]
