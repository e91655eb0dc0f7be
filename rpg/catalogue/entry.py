"""What an algorithm *is*, as data: no torch, no prose that decides anything.

An :class:`Algorithm` names the surrogate that multiplies the advantage, where the KL goes (one
union, no pair of flags), the clipping, the ratio level, the aggregation, the reference policy and
the advantage estimator.
"""

import difflib
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rpg.catalogue import components
from rpg.catalogue.components import Frozen, ObjectiveKL
from rpg.catalogue.divergences import DIVERGENCES
from rpg.errors import UserError


class AlgorithmError(UserError, ValueError):
    """A catalogue name or an override that does not exist; `field`, `value` and `accepted` say what
    would."""

    def __init__(
        self, field: str, value: Any, accepted: tuple[str, ...] | str = (), message: str = ""
    ):
        self.field, self.value, self.accepted = field, value, accepted
        text = message or f"{field}: {value!r} is not known"
        if isinstance(accepted, tuple):
            asked = field.rpartition(".")[2] if message else str(value)
            near = difflib.get_close_matches(asked, accepted, n=1, cutoff=0.5)
            text += f"; did you mean {near[0]!r}?" if near else ""
            accepted = ", ".join(accepted)
        text += "" if text.endswith("?") else "."
        super().__init__(f"{text} Accepted: {accepted}." if accepted else text)


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
    rollout_correction: components.RolloutCorrection = components.ExactRatio()
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
        rpg, kl, clip = self.surrogate == "rpg", self.kl, self.clip
        differentiable = rpg and isinstance(kl, ObjectiveKL) and kl.style == "differentiable"
        whole = (
            self.surrogate in ("gspo", "gspo_joint", "gmpo")
            or getattr(self.gate, "type", "") == "gamma"
        )
        level = "sequence" if whole else "token"
        rules = {
            "surrogate rpg accepts kl of type objective, distribution or none": not rpg
            or kl.type in ("none", "objective", "distribution"),
            "kl of type distribution is zero with reference old; accepted: "
            "every_k, kl_above, fixed, model": kl.type != "distribution"
            or self.reference.type != "old",
            "without rewards and without a KL there is nothing to learn: "
            "rewarded: false needs a KL and a beta above 0": self.rewarded
            or (kl.type != "none" and self.beta > 0),
            "without rewards dynamic_sampling, overlong and positive_lm_loss, "
            "which go by them, have to be off": self.rewarded
            or not (self.dynamic_sampling or self.overlong or self.positive_lm_loss),
            "demonstrations have no sampling policy: "
            "they need rewarded: false and kl of type distribution": not self.demonstrations
            or (kl.type == "distribution" and not self.rewarded),
            "beta has no effect with kl of type none: set it to 0": kl.type != "none"
            or self.beta == 0,
            f"surrogate {self.surrogate} has ratio {level}; only surrogate rpg accepts others": rpg
            or self.ratio == level,
            "kl.Z scales the whole loss of surrogate rpg; other surrogates do not use it": rpg
            or not isinstance(kl, ObjectiveKL)
            or kl.Z == 1.0,
            f"{self.surrogate} has no ratio to clip": clip is None
            or self.surrogate not in ("policy_gradient", "gated"),
            "surrogate gated needs a gate, and no other has one": (self.surrogate == "gated")
            == (self.gate is not None),
            "mask and drift_penalty are for other surrogates than rpg, whose KL is inside the advantage": not rpg
            or not (self.mask or self.drift_penalty),
            "clip.gradient only applies to the differentiable RPG losses": differentiable
            or clip is None
            or clip.gradient == "exact",
        }
        if rpg and isinstance(kl, ObjectiveKL):
            declared = DIVERGENCES[kl.divergence]
            free = clip is None or clip.gradient == "detached" or self.ratio == "prefix"
            rules |= {
                f"ratio prefix needs a slope for every prefix of a response, which divergence {declared.name} does not "
                "declare; accepted: token, sequence": self.ratio != "prefix" or declared.prefix,
                "clip.gradient exact and through need the slope of the regularised advantage, which divergence "
                f"{declared.name} does not declare; accepted: detached": not differentiable
                or free
                or declared.advantage_slope,
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
        return self.model_dump(mode="json", exclude=set(PROSE))
