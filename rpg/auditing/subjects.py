"""What is audited: a loss function with the few facts needed to read its gradient."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Self

import torch
from torch import Tensor

from rpg.auditing.moments import (
    Averaged,
    LossFunction,
    Moments,
    batch_slopes,
    coupled_moments,
    inputs_of,
    moments,
)
from rpg.auditing.worlds import World
from rpg.catalogue import (
    DIVERGENCES,
    AdvantageKL,
    Algorithm,
    DistributionKL,
    RewardKL,
    algorithm,
    algorithms,
    override,
)
from rpg.catalogue.lookup import divergence_of
from rpg.losses.advantages import advantages as estimate_advantages
from rpg.losses.distribution_kl import distribution_kl
from rpg.losses.policy_loss import LossOutput, policy_loss


def spread(world: World, _ref: Tensor) -> Tensor:
    """The centred reward of each response on each of its tokens, (N, T)."""
    return world.rewards[:, None] * world.mask


def less_kl(
    estimate: Callable[[Tensor, Tensor], Tensor],
    beta: float,
    to_go: bool,
    world: World,
    ref: Tensor,
) -> Tensor:
    """Advantages (N, T) of the reward less beta times the KL that `estimate` makes of (log old, log
    ref): its sum over a response, or with `to_go` from a token on. Without batch statistics; what
    is expected of the KL is the baseline.
    """
    penalty = beta * estimate(world.log_probs(world.old), world.log_probs(ref)) * world.mask
    kl = penalty.flip(-1).cumsum(-1).flip(-1) if to_go else penalty.sum(-1, keepdim=True)
    baseline = world.sampled() @ penalty.sum(-1)
    return (world.rewards[:, None] - (kl - baseline)) * world.mask


@dataclass(frozen=True)
class Subject:
    """`loss` without clipping and `clipped` with it take log_prob, old_log_prob, advantages,
    response_mask, ref_log_prob (N, T) and return a scalar; `divergence` is the KL it is meant to
    have, a name of objectives.DIVERGENCE_NAMES.
    """

    name: str
    source: str
    loss: LossFunction
    clipped: LossFunction | None = None
    beta: float = 0.0
    divergence: str = "none"
    per_token: bool = True  # the mean is over tokens; times T it is a mean over responses
    advantages: Callable[[World, Tensor], Tensor] = field(default=spread)
    rewarded: bool = True  # False: distillation, whose advantages have no reward
    whole: DistributionKL | None = None
    """A KL between whole distributions, beta times which is part of the loss."""
    centred: bool = False
    """Whether the loss reads KL(policy || reference) between whole distributions, a constant."""

    @property
    def losses(self) -> list[LossFunction]:
        """Without clipping, and with it where there is any; the last one is the loss as it is
        trained with."""
        return [self.loss] if self.clipped is None else [self.loss, self.clipped]


@dataclass(frozen=True)
class Scene:
    """All responses of a world, with a policy at some drift from `old`."""

    world: World
    drift: float
    logits: Tensor
    inputs: dict[str, Any]
    scale: int  # what makes a mean over tokens one over responses
    beside: Tensor | float = 0.0
    """(N, S * V): the step of each response that does not come from its tokens' own
    log-probabilities."""

    @classmethod
    def of(cls, subject: Subject, world: World, drift: float, third: bool = True) -> Self:
        """`third`: the reference is a policy of its own, not `old`."""
        logits = world.policy(drift)
        ref = world.ref if third else world.old
        scale = world.tokens.shape[1] if subject.per_token else 1
        beside = (
            0.0
            if subject.whole is None
            else -subject.beta * _whole(subject.whole, world, logits, ref)
        )
        inputs = inputs_of(world, logits, ref, subject.advantages(world, ref))
        if subject.centred:
            of_state = distribution_kl(
                DistributionKL(), logits.log_softmax(-1), ref.log_softmax(-1)
            )
            inputs["token_kl"] = of_state[world.states]
        return cls(world, drift, logits, inputs, scale, beside)

    def ratio(self) -> Tensor:
        """π/old of every token, (N, T)."""
        return (self.world.log_probs(self.logits) - self.world.log_probs(self.world.old)).exp()

    def slopes(self, loss: LossFunction) -> Tensor:
        """d loss / d log_prob of every token, (N, T), of a sum over responses."""
        return self.scale * batch_slopes(loss, self.inputs)

    def moments(self, loss: LossFunction, size: int = 1) -> Moments:
        """Of the steps of single responses, or of batches of `size` whose responses affect each
        other."""
        if size > 1:
            return coupled_moments(loss, self.world, self.logits, self.inputs, size, self.scale)
        return moments(self.world, self.logits, self.slopes(loss), self.beside)


def error_of_step(loss: Averaged, scene: Scene) -> float:
    """The standard error of a scene's average step that comes from a loss's random numbers,
    relative to the step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        steps = torch.stack([scene.moments(loss.loss).mean for _ in range(loss.draws)])
    error = (steps.var(0).sum() / loss.draws).sqrt()
    return float(error / steps.mean(0).norm())


def from_algorithm(algo: Algorithm, beta: float | None = None, name: str | None = None) -> Subject:
    """The subject of a catalogue entry; `beta` replaces its own where it has a KL, to make the KL
    visible."""
    algo = algo.model_copy(
        update={"positive_lm_loss": 0.0}
    )  # beside the loss, and no policy gradient
    if algo.loss_agg_mode == "prompt-mean":  # all responses of the audit have the same length
        algo = algo.model_copy(update={"loss_agg_mode": "token-mean"})
    if beta is not None and algo.kl.type != "none":
        algo = algo.model_copy(update={"beta": beta})
    bare = algo.model_copy(update={"clip": None, "mask": None, "drift_penalty": 0.0})
    kl = algo.kl
    divergence = divergence_of(algo)
    divergence = divergence if divergence in DIVERGENCES else "none"
    clipped = partial(_loss, algo) if algo != bare else None
    return Subject(
        name or algo.name,
        "rpg",
        partial(_loss, bare),
        clipped,
        algo.beta,
        divergence,
        per_token=algo.loss_agg_mode != "seq-mean-token-sum",
        advantages=partial(_advantages, algo),
        rewarded=algo.rewarded,
        whole=kl if isinstance(kl, DistributionKL) and algo.beta else None,
        centred=isinstance(kl, AdvantageKL) and algo.reads_distributions,
    )


def _whole(kl: DistributionKL, world: World, logits: Tensor, ref: Tensor) -> Tensor:
    """d (sum over a response's tokens of D) / d logits, (N, S * V)."""
    leaf = logits.detach().requires_grad_()
    value = distribution_kl(kl, leaf.log_softmax(-1), ref.log_softmax(-1))
    slope = torch.autograd.grad(value.sum(), leaf)[0]
    visits = torch.zeros(len(world.tokens), len(logits), dtype=logits.dtype)
    visits.scatter_add_(1, world.states, world.mask.to(logits.dtype))
    return (visits[..., None] * slope).flatten(1)


def _loss(
    algo: Algorithm, *, old_log_prob: Tensor, ref_log_prob: Tensor | None, **inputs: Any
) -> LossOutput:
    """`policy_loss` with the audit's reference in place of the algorithm's; without one it is the
    sampling policy."""
    reference = old_log_prob if ref_log_prob is None else ref_log_prob
    if isinstance(algo.kl, DistributionKL) and algo.beta:  # its gradient is added in Scene
        inputs["token_kl"] = torch.zeros_like(old_log_prob)
    return policy_loss(algo, old_log_prob=old_log_prob, ref_log_prob=reference, **inputs)


def _advantages(algo: Algorithm, world: World, ref: Tensor) -> Tensor:
    """The algorithm's advantages from reward and KL, less what is expected of them under the
    sampling policy: of a whole response, or of a token where each token has its own. Without its
    group and batch statistics, which are not part of the loss and are audited separately.
    """
    if not isinstance(algo.kl, RewardKL):
        return spread(world, ref) * algo.rewarded
    per_token = algo.advantage.type in ("batch", "gae")
    plain = override(algo, advantage={"type": "batch", "std": False} if per_token else "none")
    values = estimate_advantages(
        plain,
        rewards=world.rewards,
        group=torch.zeros(len(world.rewards), dtype=torch.long),
        response_mask=world.mask,
        old_log_prob=world.log_probs(world.old),
        ref_log_prob=world.log_probs(ref),
    )
    counted = world.mask if per_token else world.mask.cumsum(-1) == 1  # one value per response
    weights = world.sampled()[:, None] * counted
    expected = (weights * values).sum() / weights.sum()
    return (values - expected) * world.mask


def catalogue(beta: float) -> list[Subject]:
    """Every entry, followed by its released preset if that is another loss."""
    subjects = []
    for name, algo in algorithms("paper").items():
        subjects.append(from_algorithm(algo, beta))
        released = algorithms("released")[name]
        if released.settings() != algo.settings():
            subjects.append(from_algorithm(released, beta, f"{name} (released)"))
    return subjects


def ratio_levels(beta: float) -> list[Subject]:
    """Every divergence at the ratio levels it declares; unclipped, both styles have the same
    gradients."""
    records = [r for name in DIVERGENCES for r in DIVERGENCES.values() if r.normalised == name]
    subjects = []
    for record, level in product(records, ("token", "prefix", "sequence")):
        if level != "prefix" or record.prefix:
            name = f"rpg-reinforce-{record.name}"
            mode = "seq-mean-token-sum"
            algo = algorithm(name, ratio=level, loss_agg_mode=mode)
            subjects.append(from_algorithm(algo, beta, f"{record.name} {level}"))
    return subjects
