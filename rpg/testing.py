"""Assertions about losses, for the tests of any project: `rpg.testing.assert_gradient(my_loss,
of="reward - 0.3 rkl")`.

Everything is enumerated in float64, so what holds here holds exactly, not on average over a few
batches.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from rpg.auditing.diagnosis import TERMS, diagnose, unmeasurable
from rpg.auditing.measure import RANDOM_CALLS, Settings
from rpg.auditing.moments import Averaged, LossFunction, draws_random_numbers, is_coupled
from rpg.auditing.objectives import LEVELS, gradients
from rpg.auditing.ragged import faults, padded_error
from rpg.auditing.subjects import Scene, Subject, error_of_step, from_algorithm
from rpg.catalogue import Algorithm

TOO_NOISY = 0.15
"""Relative; a loss with random numbers must be known better than this to be judged."""
_TERM = re.compile(r"\s*([+-])?\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)?\s*\*?\s*([a-z_]+)\s*")


def assert_gradient(
    loss: Algorithm | LossFunction,
    of: str,
    *,
    within: float = 1e-6,
    level: str = "token",
    per_token: bool = True,
    drifts: Iterable[float] = (0.0, 0.2, 0.4),
    seeds: Iterable[int] = (0, 1),
) -> None:
    """Assert that a loss's average step is the gradient of an objective, whatever the drift of the
    policy from `old`.

    loss: an Algorithm, with its clip, or a callable as `rpg.audit` takes it. of: a sum of `reward`,
    `fkl`, `rkl` (KL from and to the reference), `entropy`, `length`, `reward_per_token`, `fkl_old`,
    `rkl_old`, each with or without a number. level: `token` (prefixes as sampled) or `sequence`
    (whole responses). per_token: the loss is a mean over tokens. within: the error allowed,
    relative to the gradient. drifts: (0.0,) asks on-policy only. Where the responses of a batch
    affect each other, the expectation is over all batches of two.

    It must also hold for responses of different lengths, with garbage in the padding, an end token
    and, at token level, advantages that differ within a response. So a mean over each response's
    tokens is no mean over tokens: its objective is `reward_per_token`. A loss that draws random
    numbers is averaged over many calls, and three standard errors are added to `within`.

    Raises:
        AssertionError: it is not; the message says what the gradient is made of instead.
        ValueError: `of` or `level` cannot be read.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level!r}; accepted: {', '.join(LEVELS)}")
    terms = _parse(of)
    subject = _subject(loss, terms, per_token)
    settings = Settings(seeds=tuple(seeds), drifts=tuple(drifts))
    scenes = settings.scenes(subject)
    why = unmeasurable(subject.loss, scenes)
    if why:
        raise AssertionError(why)
    if draws_random_numbers(subject.loss, scenes[0].inputs):
        subject = replace(subject, loss=Averaged(subject.loss, RANDOM_CALLS))
    for fault in faults(subject):
        raise AssertionError(f"{subject.name} is no loss of {of!r}. {fault}")
    coupled = any(is_coupled(subject.loss, scene.inputs) for scene in scenes)
    if coupled:
        settings = settings.coupled()
    for scene in settings.scenes(subject):
        columns = gradients(scene.world, scene.logits, scene.world.ref, level)
        wanted = torch.stack([weight * columns[name] for name, weight in terms.items()]).sum(0)
        step = scene.moments(subject.loss, settings.batch).mean
        where = f"at drift {scene.drift:g}"
        check = _Check(subject, settings, of, level, within + _noise(subject, scene))
        check.close(float((step - wanted).norm()), float(wanted.norm()), where)
        if not coupled:
            where += ", with padding, an end token and advantages of each token"
            for seed in settings.seeds:
                sizes = padded_error(subject.loss, subject, terms, level, scene.drift, seed)
                check.close(*sizes, where)


@dataclass(frozen=True)
class _Check:
    """What is asserted of a loss, and how its failure is explained."""

    subject: Subject
    settings: Settings
    of: str
    level: str
    within: float

    def close(self, error: float, size: float, where: str) -> None:
        """Raises AssertionError where the error, relative to the gradient's size, is too large."""
        off = error / max(size, 1e-14)
        if off <= self.within:
            return
        sentence, _ = diagnose(self.subject, Settings(seeds=self.settings.seeds))
        raise AssertionError(
            f"{self.subject.name} is {off:.2g} off the {self.level}-level gradient of {self.of!r} "
            f"{where} ({self.within:.2g} is allowed). {sentence}"
        )


def _noise(subject: Subject, scene: Scene) -> float:
    """What random numbers leave unknown of the average step, relative to it: three standard errors.
    Raises AssertionError where that is most of what one would want to see."""
    if not isinstance(subject.loss, Averaged):
        return 0.0
    noise = 3 * error_of_step(subject.loss, scene)
    if noise > TOO_NOISY:
        raise AssertionError(
            f"{subject.name} draws random numbers and is too noisy to be judged: after "
            f"{subject.loss.draws} calls its step is known to {noise / 3:.1%} only"
        )
    return noise


def _parse(of: str) -> dict[str, float]:
    terms: dict[str, float] = {}
    position = 0
    while match := _TERM.match(of, position):
        sign, number, name = match.groups()
        if name not in TERMS or (position and not sign):
            break
        terms[name] = terms.get(name, 0.0) + float(number or 1) * (-1 if sign == "-" else 1)
        position = match.end()
    if not terms or position != len(of):
        raise ValueError(
            f"of={of!r}: cannot read {of[position:]!r}; accepted: numbers times "
            f"{', '.join(TERMS)}, added with + and -, "
            "e.g. 'reward - 0.3 rkl'"
        )
    return terms


def _subject(loss: Algorithm | LossFunction, terms: dict[str, float], per_token: bool) -> Subject:
    if isinstance(loss, Algorithm):
        subject = from_algorithm(loss)
        return replace(subject, loss=subject.losses[-1])  # with its clip or mask, if it has one
    kl = next((name for name in ("rkl", "fkl") if terms.get(name)), "none")
    beta = -terms[kl] / terms.get("reward", 1.0) if kl != "none" else 0.0
    return Subject(getattr(loss, "__name__", "loss"), "callable", loss, None, beta, kl, per_token)
