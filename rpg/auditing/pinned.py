"""Losses of trainers that cannot be installed here, as algorithms of our own: the catalogue's GRPO
with some parts replaced.

pinned.toml has, for each loss, its parts and the file, line and commit of the original that they
were read from. Clamps of logarithms and divergences beyond 10 are left out: nothing in an audit's
world reaches them.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rpg.auditing.foreign_settings import ForeignSettings, leaves
from rpg.auditing.subjects import Subject, from_algorithm, less_kl
from rpg.catalogue import Algorithm, RewardKL, algorithm
from rpg.errors import UserError
from rpg.losses.kl_terms import estimator


@dataclass(frozen=True)
class Correction:
    """What a trainer does about samples of a policy μ that is not the one at the start of the step,
    π₀."""

    at: str  # path:line of the original
    default: str  # path:line of the default, and what stands there
    weight: str = ""
    """Whose π₀/μ the loss is multiplied by: of a token, a sequence, its geometric mean; "": by 1.
    """
    bound: Sequence[float] = (0.0, float("inf"))  # what the weight is clamped to
    by: str = ""  # whose π₀/μ decides what is left out; "": the weight's
    keep: Sequence[float] = (0.0, float("inf"))  # outside of this
    ratio: str = ""
    """Instead of a weight: the name of the trainer's loss whose ratio is π/μ."""


def subject(name: str, source: str, algo: Algorithm, beta: float) -> Subject:
    """What the audit measures: the loss as shipped, and without its clip, mask and drift term."""
    ours = replace(from_algorithm(algo, beta, name), source=source)
    kl = algo.kl
    if not isinstance(kl, RewardKL):
        return ours
    advantages = partial(less_kl, lambda old, ref: estimator(kl.estimator, old - ref)[0], beta)
    return replace(ours, advantages=partial(advantages, algo.advantage.type == "batch"))


def weights(
    correction: Correction, *, old_log_prob: Tensor, sampler_log_prob: Tensor, response_mask: Tensor
) -> Tensor:
    """What a correction multiplies the loss of each token by, (B, T)."""
    mask = response_mask.bool()
    away = torch.where(mask, old_log_prob - sampler_log_prob, 0)
    whole = away.sum(-1, keepdim=True)
    lengths = mask.sum(-1, keepdim=True)
    logs = {"": 0 * away, "token": away, "sequence": whole, "geometric": whole / lengths}
    bounded = logs[correction.by or correction.weight].exp()
    (low, high) = correction.keep
    weight = logs[correction.weight].exp().clamp(*correction.bound)
    return weight * ((bounded >= low) & (bounded <= high)) * mask


@dataclass(frozen=True)
class Trainer:
    """A trainer: where it was read; by name its losses and sampler corrections, if they are not
    called themselves; and for the linter, names and defaults of the keys that a loss depends on, of
    those that are not measured, what our study calls its advantages, and what older versions had.
    """

    name: str
    repository: str
    commit: str
    losses: dict[str, Algorithm]
    corrections: dict[str, Correction]
    defaults: dict[str, Any]
    loss_keys: re.Pattern[str]
    unmeasured: re.Pattern[str]
    advantages: dict[str, str]
    older: dict[str, str]
    """Key that only older versions had -> which version."""
    changed: list[str]
    """Keys of the loss whose defaults have changed since."""
    changed_kl: list[str]
    """Those among them that act only with a KL."""
    changed_unless: dict[str, str]
    """Key among them -> the key that was asked instead, where it is true."""


def trainers() -> dict[str, Trainer]:
    """Everything in pinned.toml, by the trainer's name."""
    pins = {}
    for name, table in tomllib.loads(
        (files("rpg.auditing") / "pinned.toml").read_text("utf-8")
    ).items():
        losses = {
            loss: _loss(**table["shared"] | parts)
            for loss, parts in table.get("losses", {}).items()
        }
        corrections = {
            key: Correction(**parts) for key, parts in table.get("corrections", {}).items()
        }
        measured, unmeasured = (
            re.compile("|".join(table.get(x, []))) for x in ("loss_keys", "unmeasured")
        )
        pins[name] = Trainer(
            name,
            table["repository"],
            table["commit"],
            losses,
            corrections,
            dict(leaves(table.get("defaults", {}))),
            measured,
            unmeasured,
            table.get("advantages", {}),
            table.get("older", {}),
            table.get("changed", []),
            table.get("changed_kl", []),
            table.get("changed_unless", {}),
        )
    return pins


def refuse_older(file: Path, given: ForeignSettings, trainer: Trainer) -> None:
    """An older version had other defaults: what the file does not say is not known. Raises
    UserError."""
    named = sorted((set(given.values) | set(given.unresolved)) & set(trainer.older))
    changed = set(trainer.changed)
    if not given.values.get("beta", True):
        changed -= set(trainer.changed_kl)
    changed -= {key for key, other in trainer.changed_unless.items() if given.values.get(other)}
    unsaid = sorted(changed - given.values.keys())
    if named and unsaid:
        raise UserError(
            f"{file} is not read: {', '.join(named)} are settings of {trainer.older[named[0]]}, "
            f"whose defaults were others. Say in the file what they were: {', '.join(unsaid)}"
        )


def _loss(at: str, **parts: Any) -> Algorithm:
    """Cites path:line of the original. TOML has no null: a clip that there is not is "off"."""
    changes: dict[str, Any] = {
        key: None if value == "off" else value for key, value in parts.items()
    }
    return algorithm("grpo", **changes).model_copy(update={"citation": at})
