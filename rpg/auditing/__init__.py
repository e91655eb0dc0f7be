"""The audit: which objective a loss follows, exactly, by enumeration in float64.

In: an algorithm of the catalogue, a loss of anybody's, or another trainer's settings. Out: a report
of what the loss's expected gradient is made of, its bias and its variance. `audit(loss)` measures
one; `audit_catalogue()` the catalogue, ratio levels, advantage estimators, aggregation modes,
corrections for another sampler and the installed peers. Read first: worlds.py, then measure.py.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from rpg.auditing import peers as _peers
from rpg.auditing.audit_report import Report
from rpg.auditing.diagnosis import diagnose, unmeasurable
from rpg.auditing.measure import EXACT, RANDOM_CALLS, Result, Settings, measure
from rpg.auditing.moments import Averaged, LossFunction, draws_random_numbers
from rpg.auditing.shipped import field
from rpg.auditing.studies import advantage_study, aggregation_study, correction_study
from rpg.auditing.subjects import Subject, catalogue, from_algorithm, ratio_levels
from rpg.catalogue import Algorithm
from rpg.catalogue.lookup import normalised

__all__ = ["EXACT", "Report", "Result", "Settings", "audit", "audit_catalogue", "audit_field"]


@contextmanager
def _one_thread() -> Iterator[None]:
    """In the small worlds of an audit more threads only wait for each other: two take six times the
    processor time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def audit(
    loss: Algorithm | LossFunction,
    *,
    beta: float | None = None,
    divergence: str = "rkl",
    per_token: bool = True,
    name: str | None = None,
    vocabulary: int = 3,
    length: int = 3,
    seeds: tuple[int, ...] = (0, 1),
    drifts: tuple[float, ...] = Settings.drifts,
) -> Report:
    """Audit one loss.

    loss: an Algorithm, or a callable taking log_prob, old_log_prob, advantages, response_mask and
    ref_log_prob (all (N, T) float64, ref_log_prob None where the reference is old) by keyword and
    returning a scalar. beta: strength of the KL. It replaces an algorithm's own where that has a
    KL, 0.3 by default: at 1e-4 an error of the KL would not show. For a callable it is the beta its
    KL has (default 0, no KL), `divergence` (a name of rpg.catalogue.DIVERGENCES) is the KL it is
    meant to have, and `per_token` says that its mean runs over tokens (False: over responses,
    summed over tokens). vocabulary, length: size of the enumerated worlds, drawn from `seeds`.
    drifts: distances between old and the trained policy, in standard deviations of a logit. Raises
    AlgorithmError for an unknown divergence.
    """
    if isinstance(loss, Algorithm):
        beta = Settings.beta if beta is None else beta
        subject = from_algorithm(loss, beta, name)
    else:
        beta = beta or 0.0
        label = name or str(getattr(loss, "__name__", "callable"))
        kl = normalised(divergence) if beta else "none"
        subject = Subject(label, "callable", loss, None, beta, kl, per_token)
    settings = Settings(vocabulary, length, tuple(seeds), tuple(sorted({0.0, *drifts})), beta)
    start = time.perf_counter()
    first = settings.scenes(subject)[0]
    has_gradient = unmeasurable(subject.loss, [first]) is None
    if has_gradient and draws_random_numbers(subject.loss, first.inputs):
        subject = replace(subject, loss=Averaged(subject.loss, RANDOM_CALLS))
    sentences, is_measurable = diagnose(subject, settings)
    if is_measurable:
        result = replace(measure(subject, settings), diagnosis=sentences)
        if "ignores response_mask" in sentences or "advantages are moved" in sentences:
            result = replace(result, exact_on_policy=(), exact_off_policy=())
    else:
        result = Result(subject.name, subject.source, beta, subject.divergence, note=sentences)
    return Report((result,), settings=settings, seconds=time.perf_counter() - start)


@_one_thread()
def audit_catalogue(*, peers: bool = True, settings: Settings | None = None) -> Report:
    """Audit everything: catalogue, ratio levels, advantages, aggregation and the installed
    peers."""
    settings = settings or Settings()
    start = time.perf_counter()
    others, absent = _peers.installed(settings.beta) if peers else ([], {})
    subjects = list(catalogue(settings.beta))
    subjects += others
    losses = tuple(measure(subject, settings) for subject in subjects)
    levels = tuple(measure(subject, settings) for subject in ratio_levels(settings.beta))
    studies = advantage_study() + aggregation_study() + correction_study()
    seconds = time.perf_counter() - start
    return Report(losses, levels, tuple(studies), absent, settings, seconds)


audit_field = _one_thread()(field)
