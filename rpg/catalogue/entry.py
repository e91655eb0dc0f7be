"""What an algorithm *is*, as data: no torch, no prose that decides anything.

An :class:`Algorithm` names the surrogate that multiplies the advantage, where the KL goes (one
union, no pair of flags), the clipping, the ratio level, the aggregation, the reference policy and
the advantage estimator. Settings are merged here: an algorithm's (`override`), and those of any
section of a run (`merge`).
"""

import copy
import difflib
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from rpg.catalogue import components
from rpg.catalogue.components import Frozen, ObjectiveKL, named
from rpg.catalogue.divergences import DIVERGENCES
from rpg.catalogue.schema import complaint, models_in, section_types, tags_of, written
from rpg.errors import UserError


class AlgorithmError(UserError, ValueError):
    """A catalogue name or an override that does not exist.

    `field` is where it stands, `value` what was written, `accepted` what could stand there.
    """

    def __init__(
        self, field: str, value: Any, accepted: tuple[str, ...] | str = (), message: str = ""
    ):
        self.field = field
        self.value = value
        self.accepted = accepted
        text = message or f"{field}: {value!r} is not known"
        if isinstance(accepted, tuple):
            # A message is about the field itself, so the nearest field helps, not the nearest
            # value.
            misspelt = field.rpartition(".")[2] if message else str(value)
            near = difflib.get_close_matches(misspelt, accepted, n=1, cutoff=0.5)
            if near:
                text += f"; did you mean {near[0]!r}?"
            accepted = ", ".join(accepted)
        if not text.endswith("?"):
            text += "."
        if accepted:
            text += f" Accepted: {accepted}."
        super().__init__(text)


PROSE = (
    "name",
    "display_name",
    "description",
    "citation",
    "formula",
    "objective",
    "paper_rows",
    "preset",
)


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

    surrogate: Literal[
        "rpg", "ppo_clip", "gspo", "gspo_joint", "gmpo", "cispo", "gated", "policy_gradient"
    ]
    kl: components.KL = components.NoKL()
    beta: float = Field(default=0.0, ge=0)
    clip: components.Clip | None = None
    gate: components.Gate | None = None
    mask: components.Mask | None = None
    drift_penalty: float = Field(default=0.0, ge=0)
    """Weight of log² w, which is added to the loss of each token."""
    ratio: components.RatioLevel = "token"
    loss_agg_mode: components.AggregationMode = "token-mean"
    reference: components.Reference = components.OldReference()
    advantage: components.Advantage = components.GroupAdvantage()
    dynamic_sampling: bool = False
    overlong: components.Overlong | None = None
    rollout_correction: components.RolloutCorrection = components.NoCorrection()
    rewarded: bool = True
    """False: rewards are measured and not trained on, which leaves the KL (distillation)."""
    demonstrations: float = Field(default=0.0, ge=0, le=1)
    """Share of the prompts whose responses are replaced by demonstrations of the task (GKD's 1 -
    lambda)."""
    positive_lm_loss: float = Field(default=0.0, ge=0)
    """Weight of the right responses' negative log-likelihood per token, beside the loss (VAPO's
    mu)."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        self._check_place_of_kl()
        self._check_unrewarded()
        self._check_beta()
        self._check_ratio()
        self._check_normaliser()
        self._check_bounds()
        self._check_gradient_of_clip()
        self._check_divergence()
        self._check_target()
        return self

    def _check_place_of_kl(self) -> None:
        if self.surrogate == "rpg" and self.kl.type not in ("none", "objective", "distribution"):
            raise ValueError("surrogate rpg accepts kl of type objective, distribution or none")
        if self.kl.type == "distribution" and self.reference.type == "old":
            raise ValueError(
                "kl of type distribution is zero with reference old; accepted: "
                "every_k, kl_above, ema, fixed, model"
            )

        if getattr(self.kl, "centred", False) and self.reference.type == "old":
            raise ValueError(
                "a centred kl is zero on average with reference old; accepted: "
                "every_k, kl_above, ema, fixed, model"
            )

    def _check_unrewarded(self) -> None:
        """Without rewards, the KL is all there is to learn."""
        if not self.rewarded and (self.kl.type == "none" or self.beta == 0):
            raise ValueError(
                "without rewards and without a KL there is nothing to learn: "
                "rewarded: false needs a KL and a beta above 0"
            )
        reads_rewards = self.dynamic_sampling or self.overlong or self.positive_lm_loss
        if not self.rewarded and reads_rewards:
            raise ValueError(
                "without rewards dynamic_sampling, overlong and positive_lm_loss, "
                "which go by them, have to be off"
            )
        if self.demonstrations and (self.rewarded or self.kl.type != "distribution"):
            raise ValueError(
                "demonstrations have no sampling policy: "
                "they need rewarded: false and kl of type distribution"
            )

    def _check_beta(self) -> None:
        if self.kl.type == "none" and self.beta != 0:
            raise ValueError("beta has no effect with kl of type none: set it to 0")

    def _check_ratio(self) -> None:
        """Surrogate rpg accepts every level; each of the others has one of its own."""
        if self.surrogate != "rpg" and self.ratio != self._own_ratio():
            raise ValueError(
                f"surrogate {self.surrogate} has ratio {self._own_ratio()}; "
                "only surrogate rpg accepts others"
            )

    def _own_ratio(self) -> components.RatioLevel:
        """The level at which a surrogate other than rpg takes its ratio."""
        if self.surrogate in ("gspo", "gspo_joint", "gmpo"):
            return "sequence"
        if self.gate is not None and self.gate.type == "gamma":
            return "sequence"
        return "token"

    def _check_normaliser(self) -> None:
        if self.surrogate != "rpg" and isinstance(self.kl, ObjectiveKL) and self.kl.Z != 1.0:
            raise ValueError(
                "kl.Z scales the whole loss of surrogate rpg; other surrogates do not use it"
            )

    def _check_bounds(self) -> None:
        """Clip, gate and mask stand where the surrogate reads them."""
        if self.clip is not None and self.surrogate in ("policy_gradient", "gated"):
            raise ValueError(f"{self.surrogate} has no ratio to clip")
        if (self.surrogate == "gated") != (self.gate is not None):
            raise ValueError("surrogate gated needs a gate, and no other has one")
        if self.surrogate == "rpg" and (self.mask or self.drift_penalty):
            raise ValueError(
                "mask and drift_penalty are for other surrogates than rpg, "
                "whose KL is inside the advantage"
            )

    def _check_target(self) -> None:
        """Advantages towards a target are those of the policy as it is, without a ratio."""
        if self.advantage.type == "target" and self.surrogate != "policy_gradient":
            raise ValueError(
                "advantage target is the gradient of a cross-entropy for surrogate policy_gradient "
                f"only; {self.surrogate} multiplies it by a ratio or clips it"
            )

    def _check_gradient_of_clip(self) -> None:
        if self.clip is None or self.clip.gradient == "exact":
            return
        if not self._is_differentiable():
            raise ValueError("clip.gradient only applies to the differentiable RPG losses")

    def _check_divergence(self) -> None:
        """A divergence declares slopes; a loss that needs one that is not declared is refused."""
        if self.surrogate != "rpg" or not isinstance(self.kl, ObjectiveKL):
            return
        divergence = DIVERGENCES[self.kl.divergence]
        if self.ratio == "prefix" and not divergence.prefix:
            raise ValueError(
                "ratio prefix needs a slope for every prefix of a response, which divergence "
                f"{divergence.name} does not declare; accepted: token, sequence"
            )
        if self._clip_needs_advantage_slope() and not divergence.advantage_slope:
            raise ValueError(
                "clip.gradient exact and through need the slope of the regularised advantage, "
                f"which divergence {divergence.name} does not declare; accepted: detached"
            )

    def _clip_needs_advantage_slope(self) -> bool:
        """Whether the clip differentiates through the advantage, which holds the KL."""
        if not self._is_differentiable() or self.clip is None:
            return False
        return self.clip.gradient != "detached" and self.ratio != "prefix"

    def _is_differentiable(self) -> bool:
        """Whether this is one of the differentiable RPG losses."""
        if self.surrogate != "rpg" or not isinstance(self.kl, ObjectiveKL):
            return False
        return self.kl.style == "differentiable"

    @property
    def needs_reference(self) -> bool:
        """True when the loss or the reward reads a `ref_log_prob` that is not `old_log_prob`."""
        return self.kl.type != "none" and self.beta > 0 and self.reference.type != "old"

    @property
    def reads_distributions(self) -> bool:
        """Whether the loss reads whole next-token distributions of policy and reference."""
        whole = self.kl.type == "distribution" or getattr(self.kl, "centred", False)
        return whole and self.beta > 0

    @property
    def teacher_path(self) -> str | None:
        """The model that is the reference, as the run names it; None if the loss reads no
        teacher."""
        if not isinstance(self.reference, components.ModelReference) or not self.needs_reference:
            return None
        return str(self.reference.path)

    def settings(self) -> dict[str, Any]:
        """Only what changes the mathematics, as plain data: what belongs in a run's identity."""
        return self.model_dump(mode="json", exclude=set(PROSE))


_FIELDS = Algorithm.model_fields.items()
UNIONS = {name for name, field in _FIELDS if any(map(tags_of, models_in(field.annotation)))}


def override(base: Algorithm, /, **overrides: Any) -> Algorithm:
    """`base` with some of its mathematics changed; raises AlgorithmError like
    :func:`rpg.algorithm`."""
    fields = tuple(f for f in Algorithm.model_fields if f not in PROSE)
    for field in overrides:
        if field not in fields:
            raise AlgorithmError(
                field, overrides[field], fields, f"{field} is not a field of an algorithm"
            )
    data = merge(_as_base(base, overrides), _as_mappings(overrides), Algorithm)

    # Without a KL there is nothing to weigh; a new one needs its weight.
    if "beta" not in overrides and "kl" in overrides:
        if data["kl"] == {"type": "none"}:
            data["beta"] = 0.0
        elif base.kl.type == "none":
            why = f"beta: the KL given to {base.name} needs one"
            raise AlgorithmError("beta", 0.0, "a number above 0", why)
    try:
        return Algorithm.model_validate(data)
    except ValidationError as error:
        raise _explain(error) from None


def merge(
    base: Mapping[str, Any], over: Mapping[str, Any], model: type[BaseModel] | None
) -> dict[str, Any]:
    """`over` on top of `base`, both with fields of `model`: mappings merge, anything else replaces.
    A mapping with another `type` (where none is written, the field's default is meant) or another
    `name` replaces the whole mapping.
    """
    merged = copy.deepcopy(dict(base))
    for field, value in over.items():
        below = merged.get(field)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            types = section_types(model, field)
            type_below = types.of(below)
            has_type = value.get("type", type_below) == type_below
            has_name = value.get("name", below.get("name")) == below.get("name")
            if has_type and has_name:
                merged[field] = merge(below, value, types.model(type_below))
                continue
        merged[field] = copy.deepcopy(value)
    return merged


def _as_base(base: Algorithm, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an algorithm, as mappings that `overrides` are merged into."""
    data = base.model_dump()
    if "rollout_correction" not in {*overrides, *base.model_fields_set}:
        del data["rollout_correction"]  # remains a default, which a run replaces where it must
    for field in UNIONS.intersection(overrides):
        data[field] = data[field] or {"type": None}
    return data


def _as_mappings(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides as plain data; `old` is short for `{type: old}` in a union."""
    plain = {}
    for field, value in overrides.items():
        data = value.model_dump() if isinstance(value, BaseModel) else value
        plain[field] = named(data) if field in UNIONS else data
    return plain


def _explain(error: ValidationError) -> AlgorithmError:
    """The first error of pydantic in our words: the field as it is written in a config, and what it
    accepts."""
    first = error.errors()[
        -1
    ]  # of a union's several complaints the last is about its richest member
    context = first.get("ctx", {})
    value = first["input"]
    parts, siblings = written(Algorithm, first["loc"])
    path = ".".join(parts)
    if first["type"] in ("literal_error", "union_tag_invalid"):
        expected = context.get("expected") or context["expected_tags"]
        accepted = tuple(part.strip(" '") for part in expected.replace(" or ", ", ").split(","))
        if first["type"] == "union_tag_invalid":
            path = f"{path}.type"
            value = context["tag"]
        return AlgorithmError(path, value, accepted)
    if first["type"] == "extra_forbidden":
        return AlgorithmError(path, value, tuple(siblings), f"{path} is not a field")
    reason = complaint(first)
    if not path:
        return AlgorithmError("algorithm", value, "", reason)
    return AlgorithmError(path, value, "", f"{path}: {value!r} is refused: {reason}")
