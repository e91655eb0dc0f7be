"""What a measured gradient is made of, and which tokens the rest of it comes from: the audit in
words.

The average step of a loss is projected on gradients that are known exactly (reward, divergences,
entropy, length). Where something is left over, the slopes of single tokens are compared with those
of a loss that is exact for the same objective.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import isnan, nan

import torch
from torch import Tensor

from rpg.auditing.measure import NEGLIGIBLE, Settings
from rpg.auditing.moments import (
    Averaged,
    LossFunction,
    batch_slopes,
    is_coupled,
    rounded_to,
    spread_of_draws,
)
from rpg.auditing.objectives import LEVELS, gradients
from rpg.auditing.ragged import faults
from rpg.auditing.subjects import Scene, Subject
from rpg.auditing.worlds import world
from rpg.catalogue.divergences import DIVERGENCES
from rpg.losses.kl_terms import mathematics

KLS = tuple(dict.fromkeys(record.normalised for record in DIVERGENCES.values()))
"""Divergences from the reference that differ where policies sum to one."""
TERMS = {
    "reward": "the reward's gradient",
    **{name: f"{name.upper()}'s" for name in KLS},
    "entropy": "the entropy's",
    "reward_per_token": "the gradient of the reward divided by the response's length",
    "length": "the length's",
    "fkl_old": "KL(old‖π)'s",
    "rkl_old": "KL(π‖old)'s",
}
"""Gradients that a step is projected on. The last two are of second order: they vanish on-policy.
"""
MOST_TERMS = 3
SMALL = 5e-3
"""A projection with fewer terms is preferred while it leaves over hardly more than the best one."""


@dataclass(frozen=True)
class Projection:
    """`coefficients` (term -> number) of the dictionary at one level, and the share of the step
    that they leave over."""

    coefficients: dict[str, float]
    rest: float
    level: str = "token"

    def __str__(self) -> str:
        parts: list[str] = []
        for term, number in self.coefficients.items():
            sign = "+" if parts else ""
            if number < 0:
                sign = "−"
            parts.append(f"{sign} {abs(number):.4g} of {TERMS[term]}".strip())
        where = " (over whole responses)" if self.level == "sequence" else ""
        if isnan(self.rest):
            return "no finite gradient (are all rewards of some batch equal?)"
        rest = "nothing left over" if self.is_exact else f"{_percent(self.rest)} left over"
        return f"{' '.join(parts) or 'a gradient of zero'}{where}; {rest}"

    @property
    def is_exact(self) -> bool:
        """Whether nothing but rounding is left over."""
        return self.rest < NEGLIGIBLE

    @property
    def kls(self) -> dict[str, float]:
        """The weights of the divergences from the reference, positive where they are penalised."""
        return {name: -number for name, number in self.coefficients.items() if name in KLS}


def diagnose(subject: Subject, settings: Settings) -> tuple[str, bool]:
    """(what a loss follows, in sentences; whether it can be measured: it has a gradient, and one
    that is finite)."""
    above = sorted(drift for drift in settings.drifts if drift > 0)
    nearest = sorted(above, key=lambda drift: abs(drift - 0.4))[:2]
    drifts = (0.0, *nearest)
    scenes = replace(settings, drifts=drifts).scenes(subject)
    why = unmeasurable(subject.loss, scenes)
    if why:
        return why, False
    sentences = list(faults(subject))
    sentences += _noise(subject, scenes)
    if any(is_coupled(subject.loss, scene.inputs) for scene in scenes):
        sentences.append(_coupled(subject, settings))
        return " ".join(sentences), True
    on_policy = projected(subject.loss, [scene for scene in scenes if scene.drift == 0])
    off_policy = projected(subject.loss, scenes, before=on_policy)
    if f"{on_policy}" == f"{off_policy}":
        sentences.append(f"On- and off-policy: {off_policy}.")
    else:
        sentences.append(f"On-policy: {on_policy}. Off-policy: {off_policy}.")
    sentences += _against_request(on_policy, off_policy, subject)
    if subject.rewarded and aggregation(subject, scenes[-1].drift) == "seq-mean-token-mean":
        sentences.append(PER_RESPONSE)
    # A KL of whole distributions has no slopes of tokens, and those of noise say nothing.
    if not off_policy.is_exact and subject.whole is None and not _is_noisy(subject, scenes):
        sentences += _in_tokens(subject, scenes, on_policy)
    return " ".join(sentences), True


PER_RESPONSE = (
    "Each response's gradient is divided by its length (a mean over its tokens): short answers "
    "count more. It is measured against E[R] where all responses are equally long; where they are "
    "not, its objective is the expectation of R divided by the length (reward_per_token)."
)


def _is_noisy(subject: Subject, scenes: Sequence[Scene]) -> bool:
    """Whether the gradient has random numbers, or the rounding of a half precision."""
    rounded = rounded_to(subject.loss, scenes[-1].inputs)
    return isinstance(subject.loss, Averaged) or rounded is not None


def _noise(subject: Subject, scenes: Sequence[Scene]) -> Iterator[str]:
    """How well the gradient is known, if not to the digits of its floating-point numbers."""
    loss = subject.loss
    inputs = scenes[-1].inputs
    if isinstance(loss, Averaged):
        error = _percent(spread_of_draws(loss, inputs))
        yield (
            f"The loss draws random numbers: averaged over {loss.draws} calls, its gradient is "
            f"known to {error}, and what is left over below that is noise."
        )
    elif dtype := rounded_to(loss, inputs):
        name = str(dtype).removeprefix("torch.")
        size = _percent(torch.finfo(dtype).eps)
        yield (
            f"The loss computes in {name}: every number is rounded by up to {size}, and what is "
            "left over of that size is rounding."
        )


def unmeasurable(loss: LossFunction, scenes: Sequence[Scene]) -> str | None:
    """Why a function is not a loss that can be measured (its shape, NaN somewhere, a constant
    everywhere), or None."""
    is_constant = True
    for scene in scenes:
        log_prob = scene.inputs["log_prob"].detach().requires_grad_()
        result = loss(**{**scene.inputs, "log_prob": log_prob})
        value = getattr(result, "loss", result)
        if not isinstance(value, Tensor):
            return (
                f"The loss returned {type(value).__name__}; a tensor with one number is expected."
            )
        if value.numel() != 1:
            return (
                f"The loss returned a tensor of shape {tuple(value.shape)}; one number is "
                "expected: sum or average it."
            )
        grad = torch.autograd.grad
        gradient = (
            grad(value.sum(), log_prob, allow_unused=True)[0] if value.requires_grad else None
        )
        for name, numbers in (("loss", value), ("gradient of the loss", gradient)):
            if numbers is not None and not torch.isfinite(numbers).all():
                kind = "NaN" if torch.isnan(numbers).any() else "infinite"
                return (
                    f"The {name} is {kind} on finite inputs (drift {scene.drift:g}), so nothing "
                    "can be measured."
                )
        has_gradient = gradient is not None and bool(gradient.any())
        if has_gradient or isinstance(scene.beside, Tensor):
            is_constant = False
    why = "it does not depend on log_prob (is everything detached?), so its gradient is zero"
    return f"The loss is a constant: {why}." if is_constant else None


def projected(
    loss: LossFunction, scenes: Sequence[Scene], size: int = 1, before: Projection | None = None
) -> Projection:
    """Average steps of batches of `size` in several scenes, explained by the same coefficients of
    as few terms as possible.

    At the token level, unless only that of whole responses is exact. Off-policy, the terms of
    `before`, which were exact on-policy, say how much they leave over.
    """
    step = torch.cat([scene.moments(loss, size).mean for scene in scenes])
    fits = []
    for level in LEVELS:
        parts = [gradients(scene.world, scene.logits, scene.world.ref, level) for scene in scenes]
        columns = {name: torch.cat([part[name] for part in parts]) for name in TERMS}
        fits.append(_fewest(step, columns, level))
        if before and before.is_exact and before.coefficients and not fits[-1].is_exact:
            fits[-1] = _fit(step, {name: columns[name] for name in before.coefficients}, level)
    return next((fit for fit in fits if fit.is_exact), fits[0])


def _fewest(step: Tensor, columns: dict[str, Tensor], level: str) -> Projection:
    """The fit of as few terms as explain about as much as the most that are tried."""
    if not step.norm() > 1e-14:  # NaN, or rounding alone, as in moments.relative
        return Projection({}, 0.0 if step.isfinite().all() else nan, level)

    # Without what is zero, or parallel to an earlier term (where all responses are as long).
    kept: dict[str, Tensor] = {}
    for name, column in columns.items():
        is_zero = not column.norm() > 1e-9 * step.norm()
        if not is_zero and not any(_are_parallel(column, other) for other in kept.values()):
            kept[name] = column

    best_by_count = []
    for count in range(1, min(MOST_TERMS, len(kept)) + 1):
        fits = []
        for names in combinations(kept, count):
            fits.append(_fit(step, {name: kept[name] for name in names}, level))
        best_by_count.append(min(fits, key=lambda fit: fit.rest))

    enough = best_by_count[-1].rest * 1.1
    if not best_by_count[-1].is_exact:
        enough += SMALL
    return next(fit for fit in best_by_count if fit.is_exact or fit.rest <= enough)


def _are_parallel(a: Tensor, b: Tensor) -> bool:
    return bool(abs(a @ b) > (1 - 1e-9) * a.norm() * b.norm())


def _fit(step: Tensor, columns: dict[str, Tensor], level: str) -> Projection:
    matrix = torch.stack(list(columns.values()), 1)
    numbers = torch.linalg.lstsq(matrix, step[:, None], driver="gelsd").solution[:, 0]
    rest = ((step - matrix @ numbers).norm() / step.norm()).item()
    return Projection(dict(zip(columns, numbers.tolist(), strict=True)), rest, level)


def _coupled(subject: Subject, settings: Settings) -> str:
    """A loss whose responses affect each other, over every batch of two and of three that a small
    world has."""
    scenes = settings.coupled().scenes(subject)
    fits = [projected(subject.loss, scenes, size) for size in (2, 3)]
    shares = [fit.coefficients.get("reward", 0.0) for fit in fits]
    words = (
        "The responses of a batch affect each other: permuting, mixing or enlarging it changes "
        "a response's gradient."
    )
    words += f" In batches of 2: {fits[0]}. In batches of 3: {fits[1]}."
    if abs(shares[0] - 1 / 2) < 1e-6 and abs(shares[1] - 2 / 3) < 1e-6:
        mean = "the batch's mean is subtracted from the advantages"
        words += f" In batches of B the reward counts 1 − 1/B: {mean}."
    return words


def _against_request(on: Projection, off: Projection, subject: Subject) -> Iterator[str]:
    """How an exact projection differs from the E[R] − beta D that was asked for."""
    if not on.is_exact:
        return
    reward = on.coefficients.get("reward", 0.0 if subject.rewarded else 1.0)
    beta = subject.beta
    if not reward:
        yield "It does not contain the reward."
        return
    wanted = {subject.divergence} if beta and subject.divergence != "none" else set()
    as_asked = set(on.kls) == wanted and all(
        abs(kl / reward - beta) < 1e-6 for kl in on.kls.values()
    )
    if abs(reward - 1) > 1e-6 and off.is_exact and as_asked:
        yield (
            f"The direction is exact: everything is rescaled by {reward:.4g}, as if by a "
            "learning rate."
        )
    if not beta or subject.divergence == "none":
        return
    asked = subject.divergence
    others = [name.upper() for name in on.kls]
    if not others:
        yield (
            f"It contains no KL: the {asked.upper()} that was asked for has no gradient (is it "
            "detached?)."
        )
    elif asked not in on.kls:
        yield f"{asked.upper()} was asked for; on-policy it follows {' and '.join(others)}."
    elif abs(excess := on.kls[asked] / reward - beta) > 1e-6 * beta:
        more = "more" if excess > 0 else "less"
        yield (
            f"The weight of {asked.upper()} is {_percent(abs(excess) / beta)} {more} than the "
            f"beta of {beta:g}."
        )


def aggregation(subject: Subject, drift: float = 0.0) -> str | None:
    """How a loss averages over the tokens of responses of different lengths, token-mean or
    seq-mean-token-mean; measured, because some losses do not read what is set. "": in another way;
    None: they have no gradient from the advantages.
    """
    scene = Scene.of(subject, world(2, 3, eos=True), drift, third=drift > 0)
    mask = scene.world.mask.double()
    inputs = ({**scene.inputs, "advantages": advantage * mask} for advantage in (1, 0))
    ones, silent = (batch_slopes(subject.loss, each) for each in inputs)
    slope = (ones - silent).flatten()
    ratio = scene.ratio()
    weights = {
        "token-mean": ratio * mask,
        "seq-mean-token-mean": ratio * mask / mask.sum(-1, keepdim=True),
    }
    fits = {
        mode: _fit(slope, {mode: weight.flatten()}, "token") for mode, weight in weights.items()
    }
    return next((mode for mode, fit in fits.items() if fit.is_exact), "") if slope.any() else None


def _exact_slopes(form: str, scene: Scene) -> Tensor:
    """d loss / d log_prob of losses that follow E[R] and a KL exactly at token level, (N, T, 2): −w
    A, and the KL's."""
    w = torch.where(scene.world.mask, scene.ratio(), 0)
    log_ref = scene.world.log_probs(scene.world.ref)
    v = torch.where(scene.world.mask, (log_ref - scene.world.log_probs(scene.world.old)).exp(), 0)
    d = scene.world.log_probs(scene.logits) - log_ref
    _, kl = mathematics(form).term(scene.world.log_probs(scene.logits), w, v, d)
    return torch.stack([-w * scene.inputs["advantages"], kl], -1)


def _in_tokens(subject: Subject, scenes: list[Scene], on: Projection) -> Iterator[str]:
    """Which tokens make the difference, and how their slopes differ from an exact loss's.

    Losses of one KL differ by a baseline, which changes no expectation: all forms are tried, with
    the coefficients found on-policy and with those that were asked for, and also apart from a
    factor (of a mean over fewer tokens).
    """

    def tokens(values: Callable[[Scene], Tensor]) -> Tensor:
        return torch.cat([values(scene)[scene.world.mask] for scene in scenes])

    slope = tokens(lambda scene: scene.slopes(subject.loss))
    ratio = tokens(Scene.ratio)
    advantage = tokens(lambda scene: scene.inputs["advantages"])
    last = tokens(lambda scene: _is_last(scene.world.mask))

    asked_kls = {} if subject.divergence == "none" else {subject.divergence: subject.beta}
    candidates = [
        (on.coefficients.get("reward", 1.0), on.kls),  # as found on-policy
        (1.0, asked_kls),
    ]
    remarks = []
    for reward_weight, kls in candidates:
        name, kl_weight = next(iter(kls.items()), ("rkl", 0.0))
        forms = [form for form, record in DIVERGENCES.items() if record.normalised == name]
        for form in forms:
            exact_reward, exact_kl = tokens(partial(_exact_slopes, form)).unbind(-1)
            difference = partial(
                _difference,
                reward=reward_weight * exact_reward,
                kl=kl_weight * exact_kl,
                w=ratio,
                advantage=advantage,
                last=last,
            )
            remarks.append(difference(slope))

            exact = reward_weight * exact_reward + kl_weight * exact_kl
            scale = float((slope / exact).nanmedian())
            if scale:
                remark = difference(slope / scale)
                if remark:
                    remarks.append(f"{remark} All others are rescaled by {scale:.4g}.")
    yield min(filter(None, remarks), key=lambda remark: "spread" in remark, default="")


def _is_last(mask: Tensor) -> Tensor:
    """(N, T) bool: the last unmasked token of each response."""
    unmasked_from_here = mask.flip(-1).cumsum(-1).flip(-1)
    return unmasked_from_here == 1


def _difference(
    slope: Tensor, reward: Tensor, kl: Tensor, w: Tensor, advantage: Tensor, last: Tensor
) -> str:
    """How the slopes of tokens (M,) differ from those of an exact loss, `reward` + `kl`; empty
    where they do not."""
    ways = {
        "The importance weight w = π/old is missing from every token's slope.": (reward + kl) / w,
        "The importance weight w = π/old is applied twice.": (reward + kl) * w,
        "The KL lacks its importance weight w = π/old; the reward has it.": reward + kl / w,
        "The reward lacks its importance weight w = π/old; the KL has it.": reward / w + kl,
    }
    exact = reward + kl
    differs = (slope - exact).abs() > NEGLIGIBLE * slope.abs().max()
    way = _equal_to(slope, ways, slope.norm())
    if way or not differs.any():
        return way
    up = advantage > 0
    down = advantage < 0
    classes = {"the last token of each response": last}
    groups = {
        "": up | down | last,
        "a positive advantage and ": up,
        "a negative advantage and ": down,
    }
    for words, among in groups.items():
        if (differs & among).any():
            low, high = w[differs & among].min(), w[differs & among].max()
            least = _threshold(w, low, below=True)
            most = _threshold(w, high, below=False)
            classes[f"tokens with {words}w > {least}"] = among & (w >= low)
            classes[f"tokens with {words}w < {most}"] = among & (w <= high)
    names = list(classes)[3:]
    if len(names) == 4:
        # As a clip cuts: at the top for positive advantages, at the bottom for negative ones.
        either = f"{names[0]}, or {names[3].removeprefix('tokens with ')}"
        classes[either] = classes[names[0]] | classes[names[3]]
    size = {
        words: int(members.sum())
        for words, members in classes.items()
        if not (differs & ~members).any()
    }
    words = min(size, key=size.__getitem__, default="")
    if not words or size[words] > 0.9 * len(differs) or int(differs.sum()) < 0.5 * size[words]:
        return "What is left over is spread over tokens of all kinds."
    ways = {
        " Their sign is wrong.": -exact,
        " They have no gradient: they are left out.": 0 * exact,
        " The sign of their reward is wrong.": kl - reward,
        " The sign of their KL is wrong.": reward - kl,
        " They lack the reward.": kl,
        " They lack the KL.": reward,
    }
    here = {how: other[differs] for how, other in ways.items()}
    how = _equal_to(slope[differs], here, exact[differs].norm())
    return f"What is left over comes from {words}.{how}"


def _equal_to(slope: Tensor, ways: dict[str, Tensor], size: Tensor) -> str:
    """The words of the first slopes that these are equal to, up to rounding; empty if none are."""
    for words, other in ways.items():
        if (slope - other).norm() <= NEGLIGIBLE * size:
            return words
    return ""


def _threshold(ratios: Tensor, edge: Tensor, below: bool) -> str:
    """The roundest number between a ratio and its neighbour, so that a threshold reads as somebody
    wrote it."""
    if below:
        others = ratios[ratios < edge - 1e-12]
        neighbour = others.max() if len(others) else edge * 0.99
    else:
        others = ratios[ratios > edge + 1e-12]
        neighbour = others.min() if len(others) else edge * 1.01
    low, high = sorted((float(edge), float(neighbour)))

    middle = (low + high) / 2
    for digits in range(6):
        for step in (0.1**digits, 0.5 * 0.1**digits):
            number = round(middle / step) * step
            if low <= number <= high:
                return f"{number:g}"
    return f"{low:g}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
