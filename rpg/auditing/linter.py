"""What the loss of somebody's configuration follows, in sentences."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from rpg.auditing.configured_losses import INSTALLED, READERS, described
from rpg.auditing.diagnosis import aggregation, diagnose
from rpg.auditing.foreign_settings import ForeignSettings, read_settings
from rpg.auditing.measure import BY_NAME, Settings, measure
from rpg.auditing.objectives import Objective
from rpg.auditing.pinned import Trainer, refuse_older, trainers
from rpg.auditing.studies import aggregation_study
from rpg.auditing.subjects import Subject
from rpg.errors import UserError, install_command

_LIKE_A_LOSS = re.compile(
    r"loss|clip|\bkl|_kl|adv_|beta\b|ratio|entropy|epsilon|delta\b|\bis_|\brs_|_rs\b|_is\b"
)
_OF_AN_ENGINE = re.compile(r"\.(engine_kwargs|override_transformer_config|override_config)\.")
DRIFTS = (0.1, 0.4)  # at which a loss is measured off-policy, in standard deviations of a logit


@dataclass(frozen=True)
class Reading:
    """The loss that a file of settings describes, and what is to be said of how it was read.

    source: the trainer with its version. subject: its loss. remarks: what the loss does. missing:
    settings of the loss that are not known, and unknown settings that look like its; they stand at
    the top. others: what else was not read.
    """

    source: str
    subject: Subject
    remarks: list[str]
    missing: list[str]
    others: list[str]


def lint(file: Path) -> list[str]:
    """Sentences about the loss of another trainer's configuration. Raises UserError where it cannot
    be read or measured."""
    given = read_settings(file)
    reading = read_loss(file, given)
    try:
        measured = list(_lengths(reading.subject))
        measured.extend(_measured(reading.subject))
    except _REFUSALS as error:
        raise _refusal(file, reading.source, error) from None
    evidence = f"{file} is read as {reading.source}: {given.evidence}."
    return [evidence, *reading.missing, *reading.remarks, *measured, *reading.others]


def read_loss(file: Path, given: ForeignSettings) -> Reading:
    """The loss of another trainer's settings. Raises UserError where it cannot be measured."""
    trainer = trainers()[given.trainer]
    refuse_older(file, given, trainer)
    try:
        source, defaults = described(trainer, given.configuration)
    except ImportError:
        why = f"{given.trainer}, which is not installed: {install_command('peers')}"
        raise UserError(f"{file} is for {why}") from None
    for key in filter(trainer.loss_keys.match, given.values):
        expected = _expected(given.values[key], defaults.get(key))
        if expected:
            raise UserError(f"{file}: {key}: {given.values[key]!r}; expected {expected}")
    settings = defaults | given.values | {key: defaults.get(key) for key in given.unresolved}
    try:
        subject, remarks = READERS[trainer.name](source, settings, trainer)
    except _REFUSALS as error:
        raise _refusal(file, source, error) from None
    changed = (key for key in settings if settings[key] != defaults.get(key))
    remarks += [
        f"{key} ({settings[key]}) is not part of this measurement."
        for key in filter(trainer.unmeasured.match, changed)
    ]
    missing = list(_missing(file, source, given, defaults, trainer))
    others = list(_not_read(file, source, given, defaults, trainer))
    return Reading(source, subject, remarks, missing, others)


_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What the code of other projects raises for settings that it does not accept."""


def _refusal(file: Path, source: str, error: Exception) -> UserError:
    why = f"{type(error).__name__}: {error}"
    return UserError(f"{file}: {source} refuses its loss settings ({why})")


def _expected(value: Any, default: Any) -> str:
    """What a setting should have been, if its default is of another kind; a text may stand for
    other kinds, too."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, int | float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if is_number and isfinite(value) else "a finite number"
    return ""


def _missing(
    file: Path, source: str, given: ForeignSettings, defaults: dict[str, Any], trainer: Trainer
) -> Iterator[str]:
    """What is not known of the loss, which comes first."""
    for key in sorted(filter(trainer.loss_keys.match, given.unresolved)):
        why = given.unresolved[key]
        yield (
            f"{file}: {key} could not be resolved ({why}); measured with {source}'s default, "
            f"{defaults.get(key)!r}."
        )
    yield from (f"{file}: {warning}." for warning in given.warnings)
    unknown = _unknown(given, defaults, trainer, like_a_loss=True)
    if unknown:
        yield f"{file}: {source} has no such keys: {', '.join(unknown)}. They look like the loss's."
    package = re.split(r"[./]", given.program.removeprefix("./"))[0]
    if given.trainer == "verl" and package not in ("", "verl"):
        yield (
            f"{file} starts {given.program}, which can replace {given.trainer}'s losses; the "
            f"figures are for {source}'s own."
        )


def _unknown(
    given: ForeignSettings, defaults: dict[str, Any], trainer: Trainer, *, like_a_loss: bool
) -> list[str]:
    """Keys that the trainer does not have, or whose name was not looked up."""
    unknown = sorted(set(given.values) - set(defaults) - set(trainer.older))
    return [
        key
        for key in unknown
        if like_a_loss == bool(trainer.loss_keys.match(key) or _looks_like_a_loss(key))
    ]


def _looks_like_a_loss(key: str) -> bool:
    """Whether an unknown key's name is like those of a loss; keys that are handed on to an engine
    are its own."""
    return bool(_LIKE_A_LOSS.search(key)) and not _OF_AN_ENGINE.search(key)


def _not_read(
    file: Path, source: str, given: ForeignSettings, defaults: dict[str, Any], trainer: Trainer
) -> Iterator[str]:
    unresolved = sorted(key for key in given.unresolved if not trainer.loss_keys.match(key))
    if unresolved:
        listed = ", ".join(unresolved)
        yield f"{file}: could not be resolved, and does not enter the loss: {listed}."
    unknown = _unknown(given, defaults, trainer, like_a_loss=False)
    if unknown and given.trainer in INSTALLED:
        yield f"{file}: {source} has no such keys: {', '.join(unknown)}."
    elif unknown:
        yield f"{file}: {len(unknown)} keys that do not look like the loss's were not checked."
    yield from (f"{file}: {remark}." for remark in given.remarks)


def _lengths(subject: Subject) -> Iterator[str]:
    """What a response's gradient is divided by."""
    mode = aggregation(subject)
    bias = next((result.bias for result in aggregation_study() if result.name == mode), 0.0)
    if mode == "token-mean":
        yield (
            "Lengths: every token of a batch counts the same, whatever the length of its response."
        )
    elif mode:
        favours = "short right answers and long wrong ones"
        off = f"the step is {bias:.1%} off for responses of up to 4 tokens"
        yield (
            f"Lengths: each token counts by 1/length of its response, which favours {favours}; "
            f"{off}."
        )
    elif mode is not None:  # (as of a distillation that replaces the advantages)
        yield "Lengths: tokens count neither the same nor by 1/length of their response."


def _measured(subject: Subject) -> Iterator[str]:
    """The audit's sentence, and how far the loss is off where the policy has moved away from its
    samples."""
    yield diagnose(subject, Settings(beta=subject.beta))[0]
    result = measure(subject, Settings(drifts=(0.0, *DRIFTS), beta=subject.beta))
    if result.note:
        yield f"It could not be measured off-policy ({result.note})."
        return
    reached = (BY_NAME[name] for name in result.exact_on_policy)
    default = Objective("token", subject.divergence)
    target = next((o for o in reached if o.divergence == subject.divergence), default)
    asked = target.short if subject.rewarded else target.short.replace("R−", "−", 1)
    for drift in DRIFTS:
        bare, clipped = (result.point(drift, clipped) for clipped in (False, True))
        point = clipped or bare
        if point is None:  # of losses whose responses affect each other, only one drift is measured
            continue
        off, without = (p.bias[str(target)] if p else 0.0 for p in (point, bare))
        acts = clipped and abs(off - without) > 5e-4
        clip = f" with its clip or mask, {without:.1%} without" if acts else ""
        yield (
            f"Where the policy is {point.kl / Settings.length:.3f} nats per token from the "
            "one that drew the samples (drift "
            f"{drift:g}), the step is {off:.1%} off the gradient of {asked}{clip}; noise "
            f"{point.noise:.1f}."
        )
