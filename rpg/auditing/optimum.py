"""Where an objective goes: the end of a loss's exact gradient flow on a policy that can be
enumerated, beside the closed forms.

The flow is that of on-policy training in the limit of small steps: at every point of it the samples
come from the policy itself, and the reference stays. Shapes: N responses, T tokens, S prefixes, V
symbols, as in worlds.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import torch
from torch import Tensor

from rpg.auditing.audit_report import markdown_table
from rpg.auditing.moments import is_coupled
from rpg.auditing.subjects import Scene, Subject, catalogue, ratio_levels
from rpg.auditing.worlds import World, of_responses

BETA = 0.3
SLOW = 1e-12
SHORT = 1e-8
"""The speed of the flow, and the length of its last step in logits, at its end."""
FARTHEST = 0.5
"""How far a step may move a logit: a longer one can jump to where a symbol has no probability,
where every flow stands still."""
EDGE = 40.0
"""A logit beyond which there is no end: a probability of 1e-17."""
AGREES = 1e-8
"""Largest difference of a probability from a closed form that counts as none."""
STEPS = 60
FIRST_STEP = 0.5
GROWTH = 2.0
LONGEST_STEP = 1e6
SAMPLES = 8

TOKEN_RKL = "token RKL"
RESPONSE_RKL = "resp. RKL"
TOKEN_FKL = "token FKL"
RESPONSE_FKL = "resp. FKL"
FORMULAS = {
    RESPONSE_RKL: "π(y) ∝ ref(y) exp(R(y)/β)",
    RESPONSE_FKL: "π(y) = β ref(y) / (Λ − R(y))",
    TOKEN_RKL: "π(a|s) ∝ ref(a|s) exp(Q(s, a)/β)",
    TOKEN_FKL: "π(a|s) = β ref(a|s) / (Λ(s) − Q(s, a))",
}
"""The policies at which E[R] − β KL is largest, of whole responses, or of tokens with the prefixes
that the policy itself visits. Q(s, a): the reward that is expected after a; Λ: what makes the sum
one."""


@cache
def three_answers() -> World:
    """Two tokens of three symbols, a reward of 1 for three of the nine responses. The reference
    gives these .120, .030 and .005."""
    responses = list(product(range(3), repeat=2))
    blank = of_responses(responses, vocabulary=3, length=2, seed=0)
    first = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    second = torch.tensor(
        [[0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.05, 0.35, 0.6]], dtype=torch.float64
    )
    ref = torch.empty_like(blank.ref)
    for row, (token, _) in enumerate(responses):
        ref[blank.states[row, 0]] = first.log()
        ref[blank.states[row, 1]] = second[token].log()
    right = {(0, 2), (1, 1), (2, 0)}
    rewards = torch.tensor([float(response in right) for response in responses]).double()
    return replace(blank, ref=ref, old=ref, rewards=rewards)


def closed_forms(world: World, beta: float) -> dict[str, Tensor]:
    """Name -> the probability of each response, (N,), at the optimum.

    Response RKL: Peters et al. 2010 (relative entropy policy search), equation 4. FKL: where the
    derivative of sum(pi R) + beta sum(ref log pi) - Lambda sum(pi) is zero.
    """
    ref = world.probabilities(world.ref)
    return {
        TOKEN_RKL: _by_prefix(world, lambda row, q: _tilted(row, q, beta)),
        RESPONSE_RKL: _tilted(ref, world.rewards, beta),
        TOKEN_FKL: _by_prefix(world, lambda row, q: _forward(row, q, beta)),
        RESPONSE_FKL: _forward(ref, world.rewards, beta),
    }


def _tilted(ref: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return torch.softmax(ref.log() + rewards / beta, -1)


def _forward(ref: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """beta ref / (Lambda - R), Lambda by bisection: the sum falls with it."""
    best = rewards.max()
    low = best + beta * ref[rewards == best].max()
    high = best + beta
    for _ in range(200):
        middle = (low + high) / 2
        if (beta * ref / (middle - rewards)).sum() > 1:
            low = middle
        else:
            high = middle
    return beta * ref / (high - rewards)


def _by_prefix(world: World, best: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The policy that is `best(ref (V,), Q (V,))` at each prefix, from the last token backwards:
    how good a token is depends on what the policy does after it."""
    table = torch.log_softmax(world.ref, -1).exp()
    policy = torch.zeros_like(table)
    values = torch.zeros(len(table), dtype=table.dtype)
    lengths = world.mask.sum(-1)
    for t in reversed(range(world.tokens.shape[1])):
        q = torch.full_like(table, -torch.inf)
        for row in (lengths > t).nonzero().flatten():
            ends = lengths[row] == t + 1
            later = world.rewards[row] if ends else values[world.states[row, t + 1]]
            q[world.states[row, t], world.tokens[row, t]] = later
        for state in world.states[lengths > t, t].unique():
            policy[state] = best(table[state], q[state])
            values[state] = policy[state] @ q[state]
    return world.probabilities(policy.log())


def flow(subject: Subject, world: World, logits: Tensor) -> Tensor:
    """How a small step of on-policy training moves the logits, (S, V): the expected step of the
    loss as it is trained with, where `logits` both sample and learn."""
    here = replace(world, old=logits)
    here = replace(here, rewards=world.rewards - here.sampled() @ world.rewards)
    scene = Scene.of(subject, here, drift=0.0)
    return scene.moments(subject.losses[-1]).mean.reshape(logits.shape)


def end_of_flow(subject: Subject, world: World) -> Tensor | None:
    """The logits (S, V) at which the flow from `world.old` ends; None if it goes on and on.

    By implicit steps that grow as the flow slows down, so that the last ones are Newton's
    (pseudo-transient continuation: Kelley and Keyes 1998).
    """
    logits = world.old.clone()
    speed = flow(subject, world, logits)
    step = FIRST_STEP
    for _ in range(STEPS):
        slope = _jacobian(subject, world, logits, speed)
        move = _implicit(slope, speed, step)
        while move.abs().max() > FARTHEST and step > FIRST_STEP:
            step /= 4
            move = _implicit(slope, speed, step)
        logits = logits + move
        if logits.abs().max() > EDGE:
            return None
        before = speed.norm()
        speed = flow(subject, world, logits)
        if speed.norm() <= SLOW and move.norm() <= SHORT:
            return logits
        slowed = float(before / speed.norm().clamp_min(1e-300))
        step = min(LONGEST_STEP, step * max(GROWTH, slowed))
    return None


def _implicit(slope: Tensor, speed: Tensor, step: float) -> Tensor:
    """How an implicit Euler step moves the logits. A constant on all symbols of a prefix moves no
    probability, and is left out."""
    identity = torch.eye(len(slope), dtype=slope.dtype)
    move: Tensor = torch.linalg.solve(identity / step - slope, speed.flatten())
    move = move.reshape(speed.shape)
    centred: Tensor = move - move.mean(-1, keepdim=True)
    return centred


def _jacobian(
    subject: Subject, world: World, logits: Tensor, speed: Tensor, apart: float = 1e-6
) -> Tensor:
    """d flow / d logits, (S * V, S * V), by differences from the `speed` at `logits`: its errors
    make the way longer, and do not move the end."""
    columns = []
    for place in range(logits.numel()):
        nudge = torch.zeros(logits.numel(), dtype=logits.dtype)
        nudge[place] = apart
        ahead = flow(subject, world, logits + nudge.reshape(logits.shape))
        columns.append((ahead - speed).flatten() / apart)
    return torch.stack(columns, -1)


@dataclass(frozen=True)
class End:
    """Where one loss goes: `form` is the closed form that the end equals, a name of FORMULAS, or ""
    if it equals none; `note` says why there is no end."""

    loss: str
    beta: float
    form: str = ""
    apart: float | None = None
    """Largest difference of a response's probability from the nearest closed form."""
    nearest: str = ""
    probabilities: tuple[float, ...] = ()
    right: float | None = None
    """Probability of a right response, which is pass@1."""
    answers: tuple[float, ...] = ()
    """Probability of each right response."""
    found: float | None = None
    """How many of the right responses are expected among SAMPLES samples."""
    rkl: float | None = None
    """KL(pi || ref) of whole responses, nats."""
    fkl: float | None = None
    """KL(ref || pi) of whole responses, nats."""
    note: str = ""


def end(subject: Subject, world: World | None = None) -> End:
    """Follow one loss to its end in `world`, by default that of three right answers, whose
    reference is also the start."""
    world = three_answers() if world is None else world
    if not subject.rewarded:
        return End(subject.name, subject.beta, note="has no reward")
    if not subject.beta:
        return End(subject.name, subject.beta, note="no end: nothing holds it near the reference")
    if is_coupled(subject.losses[-1], Scene.of(subject, world, drift=0.0).inputs):
        return End(subject.name, subject.beta, note="responses of a batch affect each other")
    logits = end_of_flow(subject, world)
    if logits is None:
        return End(subject.name, subject.beta, note="no end: still on its way")

    pi = world.probabilities(logits)
    ref = world.probabilities(world.ref)
    distances = {
        name: float((pi - form).abs().max())
        for name, form in closed_forms(world, subject.beta).items()
    }
    nearest = min(distances, key=lambda name: distances[name])
    of_right = pi[world.rewards == world.rewards.max()]
    return End(
        loss=subject.name,
        beta=subject.beta,
        form=nearest if distances[nearest] <= AGREES else "",
        apart=distances[nearest],
        nearest=nearest,
        probabilities=tuple(pi.tolist()),
        right=float(of_right.sum()),
        answers=tuple(of_right.tolist()),
        found=float((1 - (1 - of_right) ** SAMPLES).sum()),
        rkl=float(pi @ (pi / ref).log()),
        fkl=float(ref @ (ref / pi).log()),
    )


def reference_answers() -> tuple[float, ...]:
    """The reference's probability of each right response, where all losses begin."""
    world = three_answers()
    right = world.rewards == world.rewards.max()
    return tuple(world.probabilities(world.ref)[right].tolist())


def ends(beta: float = BETA) -> list[End]:
    """Of the whole catalogue and of every divergence at every ratio level."""
    return [end(subject) for subject in (*catalogue(beta), *ratio_levels(beta))]


def as_markdown(rows: Sequence[End]) -> str:
    """A table of them, losses that end alike in one row."""
    alike: dict[tuple[object, ...], list[End]] = {}
    for row in rows:
        shown = tuple(round(probability, 6) for probability in row.probabilities)
        alike.setdefault((row.form, row.note, *shown), []).append(row)

    words = ("losses", "end at")
    figures = ("right", "each right answer", f"found of 3 in {SAMPLES}", "KL(π‖ref)", "KL(ref‖π)")
    lines = []
    for group in alike.values():
        first = group[0]
        names = ", ".join(row.loss for row in group)
        if first.note:
            lines.append([names, first.note, *[""] * len(figures)])
            continue
        where = first.form or f"none of the forms; {first.apart:.3f} from {first.nearest}"
        answers = " ".join(f"{probability:.3f}" for probability in first.answers)
        right, found, rkl, fkl = (
            f"{number:.3f}" for number in (first.right, first.found, first.rkl, first.fkl)
        )
        lines.append([names, where, right, answers, found, rkl, fkl])
    return markdown_table(words, figures, lines)
