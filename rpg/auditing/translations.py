"""Whether an algorithm of the catalogue has the gradient of another trainer's loss.

Compared are expected steps, with and without the clip, where the policy is the one that drew the
samples and where it has moved away, and how tokens of responses of different lengths are averaged.
Advantages are not part of a loss: their estimators are
compared by name.
"""

from math import isnan

from rpg.auditing import pinned
from rpg.auditing.diagnosis import aggregation
from rpg.auditing.measure import Settings
from rpg.auditing.moments import is_coupled, relative
from rpg.auditing.subjects import Subject
from rpg.catalogue import Algorithm, override

DRIFTS = (0.0, 0.1, 0.4)
AGREES = 1e-6
"""Relative difference of two expected steps up to which they count as the same."""


def _ours(algo: Algorithm) -> Subject:
    """What is measured of a proposed algorithm: with a KL in the reward, whose baseline is its
    expectation in both."""
    without_kl = algo.beta == 0 and algo.kl.type != "none"
    compared = override(algo, kl="none") if without_kl else algo
    return pinned.subject(algo.name, "rpg", compared, Settings.beta)


def difference(theirs: Subject, algo: Algorithm) -> float:
    """The largest relative difference between the expected steps of both, for responses of one
    length."""
    ours = _ours(algo)
    settings = Settings(drifts=DRIFTS, beta=Settings.beta)
    scenes = settings.scenes(theirs)
    if any(is_coupled(loss, scene.inputs) for loss in theirs.losses for scene in scenes[:1]):
        settings = settings.coupled()
        scenes = settings.scenes(theirs)
    largest = 0.0
    for scene, our_scene in zip(scenes, settings.scenes(ours), strict=True):
        for loss, our_loss in (
            (theirs.losses[0], ours.losses[0]),
            (theirs.losses[-1], ours.losses[-1]),
        ):
            step = scene.moments(loss, settings.batch).mean
            our_step = our_scene.moments(our_loss, settings.batch).mean
            apart = float(relative(our_step, step))
            largest = float("inf") if isnan(apart) else max(largest, apart)
    return largest


def checked(source: str, theirs: Subject, algo: Algorithm) -> str:
    """A sentence about the comparison. Raises ValueError: the gradients differ."""
    average = aggregation(theirs)
    our_average = aggregation(_ours(algo))
    if average != our_average:
        raise ValueError(
            f"{algo.name} as proposed averages over tokens as {our_average or 'neither mean'}, "
            f"{source} as {average or 'neither mean'}"
        )
    apart = difference(theirs, algo)
    drifts = ", ".join(f"{drift:g}" for drift in DRIFTS)
    if apart > AGREES:
        raise ValueError(
            f"the gradient of {algo.name} as proposed is {apart:.2g} off that of {source} "
            f"(drifts {drifts}, clip included)"
        )
    return (
        f"checked: the gradient equals that of {source}, at drifts {drifts}, clip included "
        f"(largest relative difference {apart:.1g})"
    )
