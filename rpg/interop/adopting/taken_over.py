"""What there is to adopt, and which settings of other trainers have a counterpart here.

A setting of another trainer is one of these: it is taken over; it decides the loss or the data and
has no counterpart, and then nothing is proposed; it decides the training otherwise, and is named
first; its name is unknown and looks like a loss's, and is named first, too; or it decides how fast
a step is, and is listed. settings.toml says which.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.auditing.foreign_settings import ForeignSettings
from rpg.auditing.pinned import refuse_older, trainers
from rpg.errors import UserError

TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("settings.toml").read_text("utf-8")
)
"""What is taken over, by trainer, its defaults, and the advantages and losses that have a
counterpart."""
_LIKE_A_LOSS = re.compile(
    r"loss|clip|\bkl|_kl|adv_|beta\b|ratio|entropy|epsilon|delta\b|\bis_|\brs_|_rs\b|_is\b|reward"
)
_SAME = {
    "lr_scheduler_type=constant_with_warmup": "constant",
    "top_k=0": None,
    "actor_rollout_ref.rollout.top_k=-1": None,
    "max_steps=-1": None,
}
"""Settings of other trainers that have another value here."""


@dataclass
class Source:
    """What there is to adopt. `train` and `held_out` are files or hub ids; settings: dotted field
    of a run -> value; prompt, template and system: the column asked for and the messages around it,
    where a script states them; rewards: functions in `code`, with their weights; reward_models: hub
    ids or folders, with theirs; remarks: what was not taken over, and why; untranslated: what
    decides the loss or the data, and has no counterpart."""

    name: str
    train: list[str]
    held_out: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    template: str | None = None
    system: str | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    reward_models: dict[str, float] = field(default_factory=dict)
    code: str = ""
    remarks: list[str] = field(default_factory=list)
    untranslated: list[str] = field(default_factory=list)
    foreign: ForeignSettings | None = None
    """The settings of another trainer, where it names one."""

    def counterpart(
        self, values: Mapping[str, Any], key: str, table: str, default: str
    ) -> str | None:
        """What a table of settings.toml has for the value of `key`; what is not there is noted as
        untranslated."""
        name = str(values.get(key, default))
        if name not in TABLES[table]:
            unsaid = "" if key in values else " (its default)"
            self.untranslated.append(f"{key}={name}{unsaid}")
            return None
        return str(TABLES[table][name])

    def refuse_untranslated(self, path: Path) -> None:
        """Raises UserError: something that decides the loss or the data has no counterpart."""
        if self.untranslated:
            raise UserError(
                f"{path}: decides the loss or the data, and has no counterpart here: "
                f"{', '.join(self.untranslated)}. Nothing was proposed; rpg audit --config says "
                "what this loss does"
            )


def taken_over(foreign: ForeignSettings, file: Path, decided: Iterable[str]) -> Source:
    """The trainer's settings that have a counterpart, and its defaults where nothing is said, with
    a remark about every other one. `decided`: settings that are judged elsewhere. Raises UserError:
    the file is for a version with other defaults."""
    refuse_older(file, foreign, trainers()[foreign.trainer])
    table = TABLES[foreign.trainer]
    defaults = TABLES[f"{foreign.trainer}-defaults"]
    settings = dict(defaults)
    for key, value in foreign.values.items():
        ours = _SAME.get(f"{key}={value}", value)
        # None: nothing is said.
        if key in table and ours is not None:
            settings[table[key]] = ours
    source = Source(file.stem, [], settings=settings, foreign=foreign)
    source.remarks.append(f"read as {foreign.trainer}: {foreign.evidence}")
    proposed = sorted({"training.steps", "rollout.group_size"} - source.settings.keys())
    if proposed:
        source.remarks.append(f"proposed, not read from {foreign.trainer}: {', '.join(proposed)}")
    read = {*table, *TABLES["read"][foreign.trainer], *decided}
    source.remarks += _not_taken(foreign, read)
    return source


def _not_taken(foreign: ForeignSettings, read: set[str]) -> list[str]:
    """Sentences about settings that are not taken over: first what decides the training, then what
    looks like a loss's."""
    training = TABLES["training"][foreign.trainer]
    others = sorted(foreign.values.keys() - read)
    fast = set(TABLES["fast"].get(foreign.trainer, ()))
    unknown = [
        key
        for key in others
        if _LIKE_A_LOSS.search(key) and key not in training and key not in fast
    ]
    listed = [key for key in others if key not in training and key not in unknown]
    remarks = []
    for key in others:
        if key in training:
            remarks.append(
                f"decides the training, and is not taken over: {key}={foreign.values[key]}"
            )
    if unknown:
        remarks.append(f"not known, and named like settings of a loss: {', '.join(unknown)}")
    remarks += [f"{key} is not taken over: {why}" for key, why in foreign.unresolved.items()]
    remarks += [*foreign.warnings, *foreign.remarks]
    if listed:
        remarks.append(f"settings that are not taken over: {', '.join(listed)}")
    return remarks
