"""What the loss of somebody's configuration follows, in sentences."""

import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from rpg.auditing.configured_losses import INSTALLED, READERS, described
from rpg.auditing.diagnosis import aggregation, diagnose
from rpg.auditing.foreign_settings import ForeignSettings, read_settings
from rpg.auditing.measure import BY_NAME, Settings, measure
from rpg.auditing.objectives import Objective
from rpg.auditing.pinned import trainers
from rpg.auditing.studies import aggregation_study
from rpg.auditing.subjects import Subject
from rpg.errors import UserError, install_command

DRIFTS = (0.1, 0.4)  # at which a loss is measured off-policy, in standard deviations of a logit


def lint(file: Path) -> list[str]:
    """Sentences about the loss of another trainer's configuration. Raises UserError where it cannot
    be read or measured."""
    given = read_settings(file)
    trainer = trainers()[given.trainer]
    try:
        source, defaults = described(trainer)
    except ImportError:
        why = f"{given.trainer}, which is not installed: {install_command('peers')}"
        raise UserError(f"{file} is for {why}") from None
    for key in filter(trainer.loss_keys.match, given.values):
        if expected := _expected(given.values[key], defaults.get(key)):
            raise UserError(f"{file}: {key}: {given.values[key]!r}; expected {expected}")
    settings = defaults | given.values | {key: defaults.get(key) for key in given.unresolved}
    try:
        subject, remarks = READERS[trainer.name](source, settings, trainer)
        changed = (key for key in settings if settings[key] != defaults.get(key))
        unmeasured = filter(trainer.unmeasured.match, changed)
        remarks += [
            f"{key} ({settings[key]}) is not part of this measurement." for key in unmeasured
        ]
        sentences = [*remarks, *_lengths(subject), *_measured(subject)]
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        why = f"{type(error).__name__}: {error}"
        raise UserError(f"{file}: {source} refuses its loss settings ({why})") from None
    return [*sentences, *_not_read(file, source, given, defaults, trainer.loss_keys)]


def _expected(value: Any, default: Any) -> str:
    """What a setting should have been, if its default is of another kind; a text may stand for
    other kinds, too."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, int | float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if is_number and isfinite(value) else "a finite number"
    return ""


def _not_read(
    file: Path,
    source: str,
    given: ForeignSettings,
    defaults: dict[str, Any],
    loss_keys: re.Pattern[str],
) -> Iterator[str]:
    of_the_loss = sorted(key for key in given.unresolved if loss_keys.match(key))
    for key in of_the_loss:
        why = given.unresolved[key]
        yield f"{file}: {key} could not be resolved ({why}); measured with {source}'s default, {defaults.get(key)!r}."
    if others := sorted(set(given.unresolved) - set(of_the_loss)):
        yield f"{file}: could not be resolved, and does not enter the loss: {', '.join(others)}."
    unknown = sorted(set(given.values) - set(defaults))
    if named := [key for key in unknown if given.trainer in INSTALLED or loss_keys.match(key)]:
        yield f"{file}: {source} has no such keys: {', '.join(named)}."
    if unchecked := len(unknown) - len(named):
        yield f"{file}: {unchecked} keys that do not look like the loss's were not checked."
    yield from (f"{file}: {remark}." for remark in given.remarks)
    if given.trainer == "verl" and given.program.split(".")[0] not in ("", "verl"):
        yield (
            f"{file} starts {given.program}, which can replace {given.trainer}'s losses; the figures are for {source}'s own."
        )


def _lengths(subject: Subject) -> Iterator[str]:
    """What a response's gradient is divided by."""
    mode = aggregation(subject)
    bias = next((result.bias for result in aggregation_study() if result.name == mode), 0.0)
    if mode == "token-mean":
        yield "Lengths: every token of a batch counts the same, whatever the length of its response."
    elif mode:
        favours = "short right answers and long wrong ones"
        off = f"the step is {bias:.1%} off for responses of up to 4 tokens"
        yield f"Lengths: each token counts by 1/length of its response, which favours {favours}; {off}."
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
            f"Where the policy is {point.kl / Settings.length:.3f} nats per token from the one that drew the samples (drift "
            f"{drift:g}), the step is {off:.1%} off the gradient of {asked}{clip}; noise {point.noise:.1f}."
        )
