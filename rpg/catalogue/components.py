"""The components of an algorithm: KL, clip, reference, advantage, overlong penalty."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rpg.catalogue.divergences import DIVERGENCES

if TYPE_CHECKING:
    DivergenceName = str
else:
    DivergenceName = Literal[tuple(DIVERGENCES)]
Estimator = Literal["k1", "k2", "k3"]
RatioLevel = Literal["token", "prefix", "sequence"]
_MEANS_OF_RESPONSES = Literal[
    "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
AggregationMode = Literal["token-mean", _MEANS_OF_RESPONSES, "prompt-mean"]
"""verl's names, and prompt-mean: the mean over the tokens of all responses to a prompt, then over
prompts (ScaleRL, arXiv 2510.13786)."""


_NUMBER = re.compile(r"(?!.*\bbool\b).*\b(int|float)\b")


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, data: Any) -> Any:
        """pydantic takes true, and so YAML's yes and on, for 1; as a text it is refused."""
        truths = (
            [k for k, v in data.items() if isinstance(v, bool)] if isinstance(data, dict) else []
        )
        numbers = [
            k
            for k in truths
            if k in (own := cls.model_fields) and _NUMBER.match(str(own[k].annotation))
        ]
        return {**data, **{name: str(data[name]) for name in numbers}} if numbers else data


def named(value: Any) -> Any:
    """`old` is short for `{type: old}` in every union."""
    return {"type": value} if isinstance(value, str) else value


# --- KL regularisation
# ---------------------------------------------------------------------------------
#
#   type         | where the KL is computed                        | what its gradient is
#   none         | nowhere                                         | -
#   objective    | losses/surrogates.py: _rpg, else _kl_beside,    | the slope in the same record,
#                |   by losses/kl_terms.py: MATHEMATICS            |   written down by hand
#   loss         | losses/surrogates.py: _kl_beside, by estimator  | the slope of estimator, by hand
#   reward       | losses/advantages.py: before the baseline       | none: part of the advantage
#   advantage    | losses/surrogates.py: _kl_of_advantage          | none: part of the advantage
#   distribution | local/next_tokens.py: whole distributions       | autograd's (extra_loss of the
#                |                                                 |   trainer)


class NoKL(Frozen):
    type: Literal["none"] = "none"


class ObjectiveKL(Frozen):
    """beta * D is part of the objective, and the surrogate differentiates it exactly (paper, Tables
    1, 2 and 4)."""

    type: Literal["objective"] = "objective"
    divergence: DivergenceName = "urkl"
    style: Literal["differentiable", "reinforce"] = "reinforce"
    Z: float = Field(default=1.0, gt=0)  # mass of an unnormalised `old`; 1 for a language model

    @model_validator(mode="after")
    def _mass_only_where_it_means_something(self) -> Self:
        if self.Z != 1.0 and not DIVERGENCES[self.divergence].unnormalised:
            accepted = ", ".join(d.name for d in DIVERGENCES.values() if d.unnormalised)
            raise ValueError(f"Z differs from 1 only for the unnormalised divergences ({accepted})")
        return self


class LossKL(Frozen):
    """beta * k(ref, pi) is added to the loss per token; `weighted` multiplies it by the importance
    ratio, with `score` by pi/sg(pi), which is 1 and has a gradient (NeMo-RL).
    """

    type: Literal["loss"] = "loss"
    estimator: Estimator = "k3"
    weighted: Literal[False, True, "score"] = False


class RewardKL(Frozen):
    """-beta * k(ref, old) is added to each token's reward before advantages are computed."""

    type: Literal["reward"] = "reward"
    estimator: Estimator = "k1"


class AdvantageKL(Frozen):
    """-beta * k(ref, policy) is added to the advantage of the same token, a constant for the
    gradient, at the policy of the samples (tinker-cookbook, slime's use_opd) or the trained one
    (prime-rl's and NeMo-RL's distillation).

    `to_go`: the sum of k from the token to the end of its response, after rewards were normalised
    (FRPO, arXiv 2601.10201). `centred`: k less what is expected of it at the token, the KL between
    the whole next-token distributions, a baseline that changes no expectation (vOPD, arXiv
    2605.07865, eq. 9 to 15).
    """

    type: Literal["advantage"] = "advantage"
    estimator: Estimator = "k1"
    at: Literal["old", "current"] = "old"
    to_go: bool = False
    centred: bool = False

    @model_validator(mode="after")
    def _centred_by_what_is_expected(self) -> Self:
        if self.centred and (self.estimator != "k1" or self.at != "current" or self.to_go):
            raise ValueError(
                "centred subtracts the KL of the trained policy, which k1 of a token estimates; "
                "accepted: estimator k1, at current, to_go false"
            )
        return self


class DistributionKL(Frozen):
    """beta * D is added to the loss at every response token, D between the whole next-token
    distributions of policy and reference, not estimated from the sampled token. The responses are
    taken as they are: no gradient flows through them.

    rkl: KL(π‖ref); fkl: KL(ref‖π); jsd: mix KL(ref‖m) + (1 - mix) KL(π‖m) with m = mix ref + (1 -
    mix) π, the generalised Jensen-Shannon divergence (Agarwal et al., GKD, arXiv 2306.13649, eq.
    1). With `top_k` only the reference's k most probable tokens are told apart, and all others
    count as one outcome: D is then a lower bound.
    """

    type: Literal["distribution"] = "distribution"
    divergence: Literal["rkl", "fkl", "jsd"] = "rkl"
    mix: float = Field(default=0.5, gt=0, lt=1)
    top_k: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _mix_only_where_it_means_something(self) -> Self:
        if self.mix != 0.5 and self.divergence != "jsd":
            raise ValueError("mix is the weight of divergence jsd; rkl and fkl do not use it")
        return self


_BY_TYPE = Field(discriminator="type")
_NAMED = BeforeValidator(named)
KL = Annotated[
    NoKL | ObjectiveKL | LossKL | RewardKL | AdvantageKL | DistributionKL, _BY_TYPE, _NAMED
]

# --- clipping
# ------------------------------------------------------------------------------------------


class Clip(Frozen):
    """Ratios inside (1 - low, 1 + high) are left alone; `c` bounds them where the advantage is
    negative (dual clip).

    `gradient` says what a *fully differentiable* RPG loss does with the regularised advantage A,
    which depends on the policy too (paper, Algorithm 1; the other losses hold A constant and do not
    read this field): `exact` - an unclipped sample keeps the exact loss of the table, a clipped one
    differentiates -bound * A; `through` - -w A itself is differentiated, to the letter of Algorithm
    1's line 14 (this cancels a forward KL); `detached` - A is a constant, as in the REINFORCE
    style.
    """

    low: float = Field(default=0.2, ge=0, le=1)
    high: float = Field(default=0.28, ge=0)
    c: float | None = Field(default=10.0, ge=1)
    gradient: Literal["exact", "through", "detached"] = "exact"


class SigmoidGate(Frozen):
    """4 / tau * sigmoid(tau (w - 1)) in place of a token's ratio w; tau is `positive` where the
    advantage is, else `negative` (Gao et al., SAPO, arXiv 2511.20347, eq. 5).
    """

    type: Literal["sigmoid"] = "sigmoid"
    positive: float = Field(default=1.0, gt=0)
    negative: float = Field(default=1.05, gt=0)


class GammaGate(Frozen):
    """W^k exp(l (1 - W)), a constant for the gradient, as the weight of log pi; W is the ratio of
    the whole response, and `positive` and `negative` are (k, l) where the advantage is not negative
    and where it is (VESPO, arXiv 2602.10693).
    """

    type: Literal["gamma"] = "gamma"
    positive: tuple[float, float] = (2.0, 3.0)
    negative: tuple[float, float] = (3.0, 2.0)


class QuadraticGate(Frozen):
    """A quadratic penalty |A| p (w - 1)^2 / (2 epsilon) beside w A, in place of a clip; p is the
    old probability of the token (DRPO, arXiv 2606.09821), or 1 without `by_probability` (SPO, arXiv
    2401.16025). Without `by_advantage` the factor |A| is 1: with neither, the penalty is the
    variance of the ratio, times a multiplier 1 / (2 epsilon) that stays as it is (R2VPO's primal
    step, arXiv 2605.26784).
    """

    type: Literal["quadratic"] = "quadratic"
    epsilon: float = Field(default=12.5, gt=0)
    by_probability: bool = True
    by_advantage: bool = True


Gate = Annotated[SigmoidGate | GammaGate | QuadraticGate, _BY_TYPE, _NAMED]


class Mask(Frozen):
    """Tokens lose their gradient where the policy has moved too far from `old`: up by more than
    `high` where the advantage is positive, down by more than `low` elsewhere, or with `always` in
    either direction whatever the advantage is.

    `by` measures the move: tv, the change of the sampled token's probability; kl, the KL between
    the two outcomes "this token" and "another one" (both: Qi et al., DPPO, arXiv 2602.04879);
    ratio, w - 1; response, the mean of log w over the response.
    """

    by: Literal["tv", "kl", "ratio", "response"] = "tv"
    low: float | None = Field(default=0.2, ge=0)
    high: float | None = Field(default=0.2, ge=0)
    always: bool = False


# --- reference policy, advantage, overlong penalty
# --------------------------------------------------


class OldReference(Frozen):
    """The old policy, whose log-probabilities are `old_log_prob` (the paper): the sampler, or the
    policy before this rollout's updates (RolloutCorrection)."""

    type: Literal["old"] = "old"


class EveryK(Frozen):
    """A copy of the policy, renewed every k optimizer steps."""

    type: Literal["every_k"] = "every_k"
    k: int = Field(default=16, gt=0)


class KLAbove(Frozen):
    """A copy of the policy, renewed when the moving average of the metric `kl_policy_to_ref`
    exceeds kappa (nats per token): k3 of the sampled tokens, or a sum over the vocabulary with a KL
    of whole distributions."""

    type: Literal["kl_above"] = "kl_above"
    kappa: float = Field(default=0.01, gt=0)
    decay: float = Field(default=0.9, ge=0, lt=1)


class EMAReference(Frozen):
    """A moving average of the policy: after every rollout step decay * reference + (1 - decay) *
    policy (the soft update of TR-DPO, Gorbatovski et al., arXiv 2404.09656, with alpha = 1 -
    decay).
    """

    type: Literal["ema"] = "ema"
    decay: float = Field(default=0.95, gt=0, lt=1)


class FixedReference(Frozen):
    """The initial model."""

    type: Literal["fixed"] = "fixed"


class ModelReference(Frozen):
    """Another model with the same vocabulary, a teacher: never renewed, and of any size or
    architecture.

    With `rewarded: false` the KL alone trains the policy on its own samples: on-policy distillation
    (Agarwal et al., GKD, arXiv 2306.13649; Gu et al., MiniLLM, arXiv 2306.08543).
    """

    type: Literal["model"] = "model"
    path: Path | None = None
    """As `model.path`: a folder, a hub id, or the name of a model that `rpg model` lists. A run
    needs one."""


_KeptReference = EveryK | KLAbove | EMAReference | FixedReference | ModelReference
Reference = Annotated[OldReference | _KeptReference, _BY_TYPE, _NAMED]


class GroupAdvantage(Frozen):
    """Reward minus the mean of its group, divided by the group's standard deviation if `std`.

    `rescale` multiplies by (responses / responses in groups whose rewards differ), GPG's alpha.
    `by_length`: the mean is weighted by the lengths of the responses, which is OPO's baseline.
    """

    type: Literal["group"] = "group"
    std: bool = True
    rescale: bool = False
    by_length: bool = False


class BestOfGroup(Frozen):
    """The group's best response has the distance to its second best, divided by the group's
    standard deviation if `std`; all others have 0. Without `std` it is exact for the expected best
    reward of a group (Tang et al., arXiv 2503.19595).
    """

    type: Literal["best_of_group"] = "best_of_group"
    std: bool = False


class OverMean(Frozen):
    """Reward minus the mean of its group, divided by the mean, with rewards counted from `floor`,
    what a wrong response earns; 0 where the mean is not above it. With two rewards it follows, on
    average, log of the chance p of being right, whose series -(1 - p)^k / k ends one term before
    the group's size (MaxRL, arXiv 2602.02710).
    """

    type: Literal["over_mean"] = "over_mean"
    floor: float = -1.0


class TowardsTarget(Frozen):
    """The group's size times q - p, where p are the probabilities of the group's responses under
    the trained policy, normalised over the group, and q, in proportion to p_old exp(u /
    temperature), is the target; u is the reward less its group's mean, over the group's standard
    deviation (n). The gradient of -log pi is then that of the cross-entropy between q and p (TPO,
    arXiv 2604.06159). It changes with every optimizer step, as p does.
    """

    type: Literal["target"] = "target"
    temperature: float = Field(default=1.0, gt=0)


class LeaveOneOut(Frozen):
    """Reward minus the mean of the *other* responses of its group (RLOO)."""

    type: Literal["leave_one_out"] = "leave_one_out"


class BatchAdvantage(Frozen):
    """Return to go, centred over all tokens of the batch and whitened if `std` (REINFORCE++)."""

    type: Literal["batch"] = "batch"
    std: bool = True


class GroupThenBatch(Frozen):
    """Reward minus its group's mean, then whitened over all tokens of the batch
    (REINFORCE++-baseline)."""

    type: Literal["group_then_batch"] = "group_then_batch"


class GAE(Frozen):
    """Generalised advantage estimation from a critic's values (Schulman et al. 2016, arXiv
    1506.02438, eq. 16).

    The critic learns values + advantages, estimated with `critic_lam` where that is given (VAPO's
    decoupled lambda, arXiv 2504.05118: 1 for the critic), by half the squared error, of which PPO's
    value clip takes the larger one with and without keeping the prediction within `value_clip` of
    that before the step.
    """

    type: Literal["gae"] = "gae"
    gamma: float = Field(default=1.0, ge=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    critic_lam: float | None = Field(default=None, ge=0, le=1)
    std: bool = False
    """Whether advantages are whitened over all tokens of the batch."""
    value_clip: float | None = Field(default=0.5, gt=0)
    critic_learning_rate: float | None = Field(default=None, gt=0)
    """Default: that of the policy."""
    critic_warmup: int = Field(default=0, ge=0)
    """Rollout steps at the beginning that train the critic only."""


class RawReward(Frozen):
    """The reward itself, no baseline."""

    type: Literal["none"] = "none"


_OfGroup = GroupAdvantage | BestOfGroup | OverMean | LeaveOneOut | GroupThenBatch
Advantage = Annotated[_OfGroup | TowardsTarget | BatchAdvantage | GAE | RawReward, _BY_TYPE, _NAMED]


class Overlong(Frozen):
    """Soft overlong penalty (DAPO): linear to -factor over the last buffer_fraction of the response
    budget."""

    buffer_fraction: float = Field(default=0.25, gt=0, le=1)
    factor: float = Field(default=1.0, ge=0)


# --- samples of another policy than the one that trains
# ------------------------------------------------
#
# Up to three policies meet in an update: the sampler drew the responses; `start` is the trained
# policy before this rollout's first update; the policy is what is being trained. The sampler is
# `start`, unless it is staler (rollout.staleness), rounded (rollout.sampler) or computed otherwise
# (bfloat16, vLLM). The correction decides which of them is the old policy, whose log-probabilities
# are `old_log_prob`:
#
#   correction    | old     | ratio of the loss | weight of the loss (`rollout_weights`)
#   none          | sampler | policy / sampler  | 1
#   ignore        | start   | policy / start    | 1
#   truncate      | start   | policy / start    | min(start / sampler, cap)
#   mask          | start   | policy / start    | start / sampler within [low, high], 0 outside
#   second_moment | start   | policy / start    | start / sampler, 0 for the largest log² of it
#   reject        | start   | policy / start    | 1 where the sampler is near to `start`, else 0
#
# The ratio of `none` has the sampler's log-probabilities as the trainer computes them; the weights
# have them as the engine did that drew (experience.Experience). With verl and no staleness, `none`
# has `start` as the old policy, too: verl's trainer computes it again, and its server is the
# sampler.


class NoCorrection(Frozen):
    """The old policy is the sampler: the ratio of the loss needs no correction, up to the rounding
    of what drew the responses."""

    type: Literal["none"] = "none"


class IgnoreSampler(Frozen):
    """The old policy is the one before the updates, as if it had drawn the responses."""

    type: Literal["ignore"] = "ignore"


class TruncatedWeights(Frozen):
    """As `ignore`, and the loss is weighted by min(old / sampler, cap) (truncated importance
    sampling, Ionides 2008; with the policy at the start of the step as `old`: Hilton et al., arXiv
    2110.00641).
    """

    type: Literal["truncate"] = "truncate"
    level: Literal["token", "sequence"] = "token"
    cap: float = Field(default=2.0, ge=1)


class MaskedWeights(Frozen):
    """As `ignore`, and the loss is weighted by old / sampler if that lies within [low, high], and
    otherwise by zero."""

    type: Literal["mask"] = "mask"
    level: Literal["token", "sequence"] = "token"
    low: float = Field(default=0.5, ge=0, le=1)
    high: float = Field(default=2.0, ge=1)


class RejectedSamples(Frozen):
    """As `ignore`, without the tokens or responses whose sampler was too far from `old`; all others
    have weight 1.

    `by`: k1 keeps what has old / sampler within [low, high]; k2 and k3 what has these estimates of
    a KL at most `high`. (verl's `token_k1` bounds sampler / old: its `0.5_1.5` is low 1/1.5 and
    high 1/0.5 here.) `level`: of a token, the sum or the mean over its response, or `all`,
    responses all of whose tokens are kept.
    """

    type: Literal["reject"] = "reject"
    level: Literal["token", "sum", "mean", "all"] = "token"
    by: Estimator = "k1"
    low: float = Field(default=0.5, ge=0, le=1)
    high: float = Field(default=2.0, gt=0)


class SecondMoment(Frozen):
    """As `ignore`, and the loss is weighted by old / sampler, without the tokens with the largest
    log² of it: as many as it takes to bring the mean of log² over the others below `high` (M2PO,
    arXiv 2510.01161). One token always stays. The tokens of a whole rollout are judged together.
    """

    type: Literal["second_moment"] = "second_moment"
    high: float = Field(default=0.04, gt=0)


_Weighted = TruncatedWeights | MaskedWeights | SecondMoment
RolloutCorrection = Annotated[
    NoCorrection | IgnoreSampler | _Weighted | RejectedSamples,
    _BY_TYPE,
    _NAMED,
]
