"""What an algorithm *is*, as data: no torch, no prose that decides anything.

An :class:`Algorithm` names the surrogate that multiplies the advantage, where the KL goes (one union, no
pair of flags), the clipping, the ratio level, the aggregation, the reference policy and the advantage
estimator. :func:`algorithm` looks one up, applies overrides and answers mistakes with the accepted values.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

Divergence = Literal["fkl", "rkl", "ufkl", "urkl"]
Estimator = Literal["k1", "k2", "k3"]
RatioLevel = Literal["token", "prefix", "sequence"]
AggregationMode = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]


class AlgorithmError(ValueError):
    """A catalogue name or an override that does not exist; `field`, `value` and `accepted` say what would."""

    def __init__(self, field: str, value: Any, accepted: tuple[str, ...] | str = (), message: str = ""):
        self.field, self.value, self.accepted = field, value, accepted
        text = message or f"{field}: {value!r} is not known"
        if isinstance(accepted, tuple):
            asked = field.rpartition(".")[2] if message else str(value)
            near = difflib.get_close_matches(asked, accepted, n=1, cutoff=0.5)
            text += f"; did you mean {near[0]!r}?" if near else ""
            accepted = ", ".join(accepted)
        super().__init__(
            f"{text.rstrip('?.')}{'?' if text.endswith('?') else '.'}"
            + (f" Accepted: {accepted}." if accepted else "")
        )


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _named(value: Any) -> Any:
    """`old` is short for `{type: old}` in every union."""
    return {"type": value} if isinstance(value, str) else value


# --- KL regularisation ---------------------------------------------------------------------------------


class NoKL(_Frozen):
    type: Literal["none"] = "none"


class ObjectiveKL(_Frozen):
    """beta * D is part of the objective, and the surrogate differentiates it exactly (paper, Tables 1, 2
    and 4)."""

    type: Literal["objective"] = "objective"
    divergence: Divergence = "urkl"
    style: Literal["differentiable", "reinforce"] = "reinforce"
    Z: float = Field(1.0, gt=0)  # mass of an unnormalised `old`; 1 for a language model

    @model_validator(mode="after")
    def _mass_only_where_it_means_something(self):
        if self.Z != 1.0 and self.divergence not in ("ufkl", "urkl"):
            raise ValueError("Z differs from 1 only for the unnormalised divergences ufkl and urkl")
        return self


class LossKL(_Frozen):
    """beta * k(ref, pi) is added to the loss per token; `weighted` multiplies it by the importance ratio."""

    type: Literal["loss"] = "loss"
    estimator: Estimator = "k3"
    weighted: bool = False


class RewardKL(_Frozen):
    """-beta * k(ref, old) is added to each token's reward before advantages are computed."""

    type: Literal["reward"] = "reward"
    estimator: Estimator = "k1"


KL = Annotated[NoKL | ObjectiveKL | LossKL | RewardKL, Field(discriminator="type"), BeforeValidator(_named)]

# --- clipping ------------------------------------------------------------------------------------------


class Schedule(_Frozen):
    """Linear from `start` to `end` over `steps` optimizer steps, constant afterwards."""

    start: float
    end: float
    steps: int = Field(gt=0)

    def at(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(max(step, 0) / self.steps, 1.0)


def _within(low: float, high: float, what: str):
    def check(value: float | Schedule | None) -> float | Schedule | None:
        ends = (value.start, value.end) if isinstance(value, Schedule) else (value,)
        if any(end is not None and not low <= end <= high for end in ends):
            raise ValueError(what)
        return value

    return check


class Clip(_Frozen):
    """Ratios inside (1 - low, 1 + high) are left alone; `c` bounds them where the advantage is negative
    (dual clip).

    `gradient` says what a *fully differentiable* RPG loss does with the regularised advantage A, which
    depends on the policy too (paper, Algorithm 1; the other losses hold A constant and do not read this
    field): `exact` - an unclipped sample keeps the exact loss of the table, a clipped one differentiates
    -bound * A; `through` - -w A itself is differentiated, to the letter of Algorithm 1's line 14 (this
    cancels a forward KL); `detached` - A is a constant, as in the REINFORCE style."""

    low: Annotated[float | Schedule, AfterValidator(_within(0.0, 1.0, "low lies between 0 and 1"))] = 0.2
    high: Annotated[float | Schedule, AfterValidator(_within(0.0, float("inf"), "high is not negative"))] = (
        0.28
    )
    c: Annotated[
        float | Schedule | None, AfterValidator(_within(1.0, float("inf"), "c is at least 1, or null"))
    ] = 10.0
    gradient: Literal["exact", "through", "detached"] = "exact"

    def at(self, step: int) -> tuple[float, float, float | None]:
        """The three bounds (low, high, c) at an optimizer step."""
        return tuple(b.at(step) if isinstance(b, Schedule) else b for b in (self.low, self.high, self.c))


# --- reference policy, advantage, overlong punishment --------------------------------------------------


class OldReference(_Frozen):
    """The policy that sampled the rollout (the paper)."""

    type: Literal["old"] = "old"


class EveryK(_Frozen):
    """A copy of the policy, renewed every k optimizer steps."""

    type: Literal["every_k"] = "every_k"
    k: int = Field(16, gt=0)


class KLAbove(_Frozen):
    """A copy of the policy, renewed when the moving average of the token KL exceeds kappa (nats per
    token)."""

    type: Literal["kl_above"] = "kl_above"
    kappa: float = Field(0.01, gt=0)
    decay: float = Field(0.9, ge=0, lt=1)


class FixedReference(_Frozen):
    """The initial model."""

    type: Literal["fixed"] = "fixed"


Reference = Annotated[
    OldReference | EveryK | KLAbove | FixedReference, Field(discriminator="type"), BeforeValidator(_named)
]


class GroupAdvantage(_Frozen):
    """Reward minus the mean of its group, divided by the group's standard deviation if `std`.

    `rescale` multiplies by (responses / responses in groups whose rewards differ), GPG's alpha.
    """

    type: Literal["group"] = "group"
    std: bool = True
    rescale: bool = False


class LeaveOneOut(_Frozen):
    """Reward minus the mean of the *other* responses of its group (RLOO)."""

    type: Literal["leave_one_out"] = "leave_one_out"


class BatchAdvantage(_Frozen):
    """Return to go, centred over all tokens of the batch and whitened if `std` (REINFORCE++)."""

    type: Literal["batch"] = "batch"
    std: bool = True


class GroupThenBatch(_Frozen):
    """Reward minus its group's mean, then whitened over all tokens of the batch (REINFORCE++-baseline)."""

    type: Literal["group_then_batch"] = "group_then_batch"


class GAE(_Frozen):
    """Generalised advantage estimation from a critic's values."""

    type: Literal["gae"] = "gae"
    gamma: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1.0, ge=0, le=1)


class RawReward(_Frozen):
    """The reward itself, no baseline."""

    type: Literal["none"] = "none"


Advantage = Annotated[
    GroupAdvantage | LeaveOneOut | BatchAdvantage | GroupThenBatch | GAE | RawReward,
    Field(discriminator="type"),
    BeforeValidator(_named),
]


class Overlong(_Frozen):
    """Soft overlong punishment (DAPO): linear to -factor over the last buffer_fraction of the response
    budget."""

    buffer_fraction: float = Field(0.25, gt=0, le=1)
    factor: float = Field(1.0, ge=0)


# --- the algorithm -------------------------------------------------------------------------------------

_PROSE = ("name", "display_name", "description", "citation", "formula", "objective", "paper_rows", "preset")


class Algorithm(_Frozen):
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
        def needs(condition: bool, text: str):
            if not condition:
                raise ValueError(text)

        rpg = self.surrogate == "rpg"
        style = self.kl.style if isinstance(self.kl, ObjectiveKL) else None
        needs(
            not rpg or self.kl.type in ("none", "objective"),
            "surrogate rpg takes kl of type objective or none",
        )
        needs(
            self.kl.type != "none" or self.beta == 0, "beta has no effect with kl of type none: set it to 0"
        )
        needs(
            rpg or self.ratio == ("sequence" if self.surrogate == "gspo" else "token"),
            "ratio can be chosen for surrogate rpg only (gspo is sequence, the others are token)",
        )
        needs(
            self.surrogate != "policy_gradient" or self.clip is None, "policy_gradient has no ratio to clip"
        )
        needs(
            self.clip is None or self.clip.gradient == "exact" or (rpg and style == "differentiable"),
            "clip.gradient is a choice of the differentiable RPG losses only",
        )
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
    if data["kl"] == {"type": "none"} and "beta" not in overrides:
        data["beta"] = 0.0
    try:
        return Algorithm.model_validate(data)
    except ValidationError as error:
        raise _explain(error) from None


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


_UNIONS = ("kl", "reference", "advantage")


def _merge(default: Any, value: Any, field: str) -> Any:
    if field in _UNIONS:
        value = _named(value)
        same = isinstance(value, Mapping) and value.get("type", default["type"]) == default["type"]
        return {**default, **value} if same else value  # another type shares no fields with the default one
    if isinstance(default, Mapping) and isinstance(value, Mapping):
        return {**default, **value}
    return value


_MODELS: dict[str, type[BaseModel]] = {
    **{f"kl.{m.model_fields['type'].default}": m for m in (NoKL, ObjectiveKL, LossKL, RewardKL)},
    **{
        f"reference.{m.model_fields['type'].default}": m
        for m in (OldReference, EveryK, KLAbove, FixedReference)
    },
    **{
        f"advantage.{m.model_fields['type'].default}": m
        for m in (GroupAdvantage, LeaveOneOut, BatchAdvantage, GroupThenBatch, GAE, RawReward)
    },
    "clip": Clip,
    "overlong": Overlong,
}


def _explain(error: ValidationError) -> AlgorithmError:
    """The first mistake pydantic found, in our words: the field as it is written in a config, and what it
    takes."""
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
        model = _MODELS.get(owner)
        if model is None and owner.startswith("clip."):
            model = Schedule
        fields = tuple(model.model_fields) if model else ()
        return AlgorithmError(path, value, fields, f"{path} is not a field")
    reason = first["msg"].removeprefix("Value error, ")
    if not path:
        return AlgorithmError("algorithm", value, "", reason)
    return AlgorithmError(path, value, "", f"{path}: {value!r} is refused: {reason}")
