"""What an algorithm *is*, as data: no torch, no prose that decides anything.

An :class:`Algorithm` names the surrogate that multiplies the advantage, where the KL goes (one union, no
pair of flags), the clipping, the ratio level, the aggregation, the reference policy and the advantage
estimator. :func:`algorithm` looks one up, applies overrides and answers mistakes with the accepted values.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from rpg.catalogue_parts import (  # the whole vocabulary is importable from here
    GAE,
    KL,
    MODELS,
    Advantage,
    AggregationMode,
    BatchAdvantage,
    Clip,
    EveryK,
    FixedReference,
    Frozen,
    GroupAdvantage,
    GroupThenBatch,
    KLAbove,
    LeaveOneOut,
    LossKL,
    NoKL,
    ObjectiveKL,
    OldReference,
    Overlong,
    RatioLevel,
    RawReward,
    Reference,
    RewardKL,
    Schedule,
    named,
)
from rpg.errors import UserError

__all__ = [
    "GAE",
    "KL",
    "Advantage",
    "AggregationMode",
    "Algorithm",
    "AlgorithmError",
    "BatchAdvantage",
    "Clip",
    "EveryK",
    "FixedReference",
    "GroupAdvantage",
    "GroupThenBatch",
    "KLAbove",
    "LeaveOneOut",
    "LossKL",
    "NoKL",
    "ObjectiveKL",
    "OldReference",
    "Overlong",
    "RatioLevel",
    "RawReward",
    "Reference",
    "RewardKL",
    "Schedule",
    "algorithm",
    "algorithms",
    "override",
]


class AlgorithmError(UserError, ValueError):
    """A catalogue name or an override that does not exist; `field`, `value` and `accepted` say what would."""

    def __init__(self, field: str, value: Any, accepted: tuple[str, ...] | str = (), message: str = ""):
        self.field, self.value, self.accepted = field, value, accepted
        text = message or f"{field}: {value!r} is not known"
        if isinstance(accepted, tuple):
            asked = field.rpartition(".")[2] if message else str(value)
            near = difflib.get_close_matches(asked, accepted, n=1, cutoff=0.5)
            text += f"; did you mean {near[0]!r}?" if near else ""
            accepted = ", ".join(accepted)
        text += "" if text.endswith("?") else "."
        super().__init__(f"{text} Accepted: {accepted}." if accepted else text)


# --- the algorithm -------------------------------------------------------------------------------------

_PROSE = ("name", "display_name", "description", "citation", "formula", "objective", "paper_rows", "preset")


class Algorithm(Frozen):
    """One entry of the catalogue; every field below `preset` changes the mathematics."""

    name: str
    display_name: str
    description: str
    citation: str
    formula: str
    objective: str
    paper_rows: tuple[str, ...] = ()
    preset: Literal["paper", "released"] | None = None

    surrogate: Literal["rpg", "ppo_clip", "gspo", "cispo", "policy_gradient"]
    kl: KL = NoKL()
    beta: float = Field(0.0, ge=0)
    clip: Clip | None = None
    ratio: RatioLevel = "token"
    loss_agg_mode: AggregationMode = "token-mean"
    reference: Reference = OldReference()
    advantage: Advantage = GroupAdvantage()
    dynamic_sampling: bool = False
    overlong: Overlong | None = None

    @model_validator(mode="after")
    def _belongs_together(self):
        rpg, kl = self.surrogate == "rpg", self.kl
        differentiable = rpg and isinstance(kl, ObjectiveKL) and kl.style == "differentiable"
        level = {"gspo": "sequence"}.get(self.surrogate, "token")
        rules = {
            "surrogate rpg takes kl of type objective or none": not rpg or kl.type in ("none", "objective"),
            "beta has no effect with kl of type none: set it to 0": kl.type != "none" or self.beta == 0,
            f"surrogate {self.surrogate} has ratio {level}; it is a choice for surrogate rpg": rpg
            or self.ratio == level,
            "kl.Z scales the whole loss of surrogate rpg; others have no use for it": rpg
            or not isinstance(kl, ObjectiveKL)
            or kl.Z == 1.0,
            "policy_gradient has no ratio to clip": self.surrogate != "policy_gradient" or self.clip is None,
            "clip.gradient is a choice of the differentiable RPG losses": differentiable
            or self.clip is None
            or self.clip.gradient == "exact",
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)
        return self

    @property
    def needs_reference(self) -> bool:
        """True when the loss or the reward reads a `ref_log_prob` that is not `old_log_prob`."""
        return self.kl.type != "none" and self.beta > 0 and self.reference.type != "old"

    def settings(self) -> dict[str, Any]:
        """Only what changes the mathematics, as plain data: what belongs in a run's identity."""
        return self.model_dump(mode="json", exclude=set(_PROSE))


# --- lookups -------------------------------------------------------------------------------------------


@cache
def _entries() -> dict[tuple[str, str | None], Algorithm]:
    from rpg.catalogue_entries import entries

    return {(entry.name, entry.preset): entry for entry in entries()}


def algorithms(preset: str = "paper") -> dict[str, Algorithm]:
    """The catalogue: {name: Algorithm}, in the order of the documentation."""
    names = dict.fromkeys(name for name, _ in _entries())
    return {name: algorithm(name, preset) for name in names}


def algorithm(name: str, preset: str = "paper", **overrides: Any) -> Algorithm:
    """The catalogue entry `name`, with keyword overrides; nested dicts are merged into nested settings.

    Where the paper and its released code differ, `preset` chooses; where they agree it has no effect.
    Raises AlgorithmError for an unknown name, preset, field or value.
    """
    if preset not in ("paper", "released"):
        raise AlgorithmError("preset", preset, ("paper", "released"))
    known = _entries()
    base = known.get((name, preset)) or known.get((name, None)) or known.get((name, "paper"))
    if base is None:
        raise AlgorithmError("algorithm", name, tuple(dict.fromkeys(n for n, _ in known)))
    return override(base, **overrides) if overrides else base


def override(base: Algorithm, **overrides: Any) -> Algorithm:
    """`base` with some of its mathematics changed; raises AlgorithmError like :func:`algorithm`."""
    fields = tuple(f for f in Algorithm.model_fields if f not in _PROSE)
    for field in overrides:
        if field not in fields:
            raise AlgorithmError(field, overrides[field], fields, f"{field} is not a field of an algorithm")
    data = base.model_dump()
    for field, value in overrides.items():
        data[field] = _merge(data[field], _plain(value), field)
    if "beta" not in overrides and "kl" in overrides:
        if data["kl"] == {"type": "none"}:
            data["beta"] = 0.0
        elif base.kl.type == "none":
            raise AlgorithmError(
                "beta", 0.0, "a number above 0", f"beta: the KL given to {base.name} needs one"
            )
    try:
        return Algorithm.model_validate(data)
    except ValidationError as error:
        raise _explain(error) from None


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


_UNIONS = ("kl", "reference", "advantage")


def _merge(default: Any, value: Any, field: str) -> Any:
    if field in _UNIONS:
        value = named(value)
        same = isinstance(value, Mapping) and value.get("type", default["type"]) == default["type"]
        return {**default, **value} if same else value  # another type shares no fields with the default one
    if isinstance(default, Mapping) and isinstance(value, Mapping):
        return {**default, **value}
    return value


def _explain(error: ValidationError) -> AlgorithmError:
    """The first mistake pydantic found, in our words: the field as it is written in a config, and what it
    takes.
    """
    first = error.errors()[-1]  # of a union's several complaints the last is about its richest member
    context, value = first.get("ctx", {}), first["input"]
    location = [str(part) for part in first["loc"]]
    owner = ".".join(location[:-1])
    if location and location[0] in _UNIONS and len(location) > 1:
        location.pop(1)  # the union's tag, which is not part of the path a person writes
    path = ".".join(part for part in location if part not in ("float", "Schedule") and "[" not in part)
    if first["type"] in ("literal_error", "union_tag_invalid"):
        expected = context.get("expected") or context["expected_tags"]
        accepted = tuple(part.strip(" '") for part in expected.replace(" or ", ", ").split(","))
        if first["type"] == "union_tag_invalid":
            path, value = f"{path}.type", context["tag"]
        return AlgorithmError(path, value, accepted)
    if first["type"] == "extra_forbidden":
        model = MODELS.get(owner)
        if model is None and owner.startswith("clip."):
            model = Schedule
        fields = tuple(model.model_fields) if model else ()
        return AlgorithmError(path, value, fields, f"{path} is not a field")
    reason = first["msg"].removeprefix("Value error, ")
    if not path:
        return AlgorithmError("algorithm", value, "", reason)
    return AlgorithmError(path, value, "", f"{path}: {value!r} is refused: {reason}")
