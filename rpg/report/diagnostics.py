"""Rules that detect trainings that learn nothing and tables that show too little: pure functions of
measurements.

Each finding has its evidence and advice. The thresholds are rules of thumb, far from the values of
healthy runs: a finding deserves attention, but its absence guarantees nothing.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rpg.errors import see
from rpg.metrics import BELOW_ROUNDING, METRICS, is_below_rounding
from rpg.report import format as written

Rows = Sequence[Mapping[str, Any]]
"""Metrics of one run: a mapping per step, in ascending order."""

WINDOW = 8
"""The number of steps that a rule considers; with fewer it does not apply."""
OFTEN = 3
"""The number of these steps in which something must occur to be more than chance."""
KL_LARGE = 0.5
"""Nats per token between the policy and the one that sampled: the update has left the region that
its data cover."""
REFERENCE_KL_LARGE = 10.0
"""Nats per token between the policy and the reference."""
RATIO_LARGE = 1e3
GAP = 0.25
"""The share of what an update moves the policy from which on a gap between the policy's roundings
is no longer small beside it."""
COLLAPSED = 0.05
"""The fraction of its initial entropy below which a policy has stopped exploring."""
SOLVED = 0.9
"""Accuracy of the sampled responses above which a low entropy is fine: the policy is sure because
it is right."""
STILL_VARIED = 1.0
"""Entropy of a whole response, nats, from which the responses to a prompt still differ, however low
it is per token."""
SILENT = 0.9
"""Share of responses in which no answer can be found."""
REPEATED = 0.8
"""Share of responses with the same answer, whatever was asked."""
UNREAD = 0.02
"""Share of responses whose answer can be found but not read."""
FALLEN = 0.05
"""How far held-out accuracy is below its best from which on a rising reward is suspicious."""
SURE = 3.0
"""Standard errors of a difference from which on it is unlikely to be chance."""


NEEDS = {
    "not finite": ("loss", "grad_norm", "reward"),
    "reward constant": ("reward",),
    "all truncated": ("truncation_rate",),
    "no groups left": ("groups_kept",),
    "KL exploding": ("kl_policy_to_old", "kl_policy_to_ref"),
    "ratio exploding": ("ratio_max",),
    "entropy collapsed": ("entropy",),
    "apart": ("kl_old_to_new", "kl_sampler_to_policy"),
    "below rounding": ("kl_rounding",),
}
"""Rule of a training -> the metrics without which it, or a part of it, says nothing."""
OF_SAMPLES = ("no answers", "one answer", "unread", "reward apart")
"""The rules of evaluations."""


class Mean(NamedTuple):
    """A mean with its standard error."""

    value: float
    error: float


class Finding(NamedTuple):
    """A problem that a rule has detected."""

    rule: str
    evidence: str
    advice: str

    def __str__(self) -> str:
        return f"{self.evidence}: {self.advice}"


def of_training(rows: Rows) -> list[Finding]:
    """Findings from the metrics of a run. `rows`: at least its last steps, preferably preceded by
    its first ones."""
    last = rows[-WINDOW:]
    findings = list(_not_finite(last))[:1]
    if len(last) >= WINDOW:
        before, now = _means(rows, "accuracy")
        findings += [] if now >= SOLVED > before else _starved(last)
        findings += [*_exploding(last), *_entropy_collapsed(rows)]
    return [*findings, *_apart(last), *_below_rounding(last)]


def not_measured(rows: Rows, with_samples: bool) -> list[Finding]:
    """What no rule can say of a log of another trainer: a finding that names each rule with the
    columns that the log lacks. `with_samples`: whether its evaluations have their samples."""
    if not rows:
        return []
    known = {name for row in rows for name, value in row.items() if value is not None}
    lacking = {rule: [name for name in names if name not in known] for rule, names in NEEDS.items()}
    sentences = []
    for rule, names in lacking.items():
        if names:
            columns = "column" if len(names) == 1 else "columns"
            sentences.append(f"{rule} needs {columns} {' and '.join(names)}")
    if not with_samples:
        sentences.append(f"{', '.join(OF_SAMPLES)} need the samples of an evaluation")
    if not sentences:
        return []
    advice = (
        "if the log has them under other names, give these with --map, for example --map "
        "ratio_max=COLUMN; rpg evaluate --join adds samples"
    )
    # Logs that lack other columns are told apart where findings of a rule are put together.
    evidence = f"not measured: {'; '.join(sentences)}"
    return [Finding(evidence, evidence, advice)]


def of_answers(
    benchmark: str, step: int, missing: float, answer: str | None, repeated: float, accuracy: float
) -> Iterator[Finding]:
    """Findings from an evaluation's share of responses without an answer, its most frequent answer
    and that one's share."""
    where = f"of the responses to {benchmark} at step {step}"
    if missing >= SILENT:
        yield Finding(
            f"no answers: {benchmark}",
            f"no answer is found in {written.percent(missing)} {where}",
            "does the template ask for the form that the verifier looks "
            f"for{see('grading')}, and is there room for it "
            "within rollout.max_response_tokens?",
        )
    if repeated >= REPEATED and accuracy < SOLVED:
        yield Finding(
            f"one on {benchmark}",
            f"{written.percent(repeated)} {where} answer {answer!r}, which earns an accuracy of "
            f"{written.accuracy(accuracy)}",
            "a gain may be this answer's alone, however small its p-value; look at samples "
            "(dashboard, Problems), and at "
            "how often the training problems have this answer",
        )


def of_unread(
    benchmark: str,
    step: int,
    share: float,
    forms: Mapping[str, int],
    accuracies: tuple[float, float | None],
) -> Iterator[Finding]:
    """Findings from answers that could not be read: their `share` of the responses, why and how
    often (`forms`), and the accuracy without and with what a second reader made of them (None: it
    read none)."""
    if share <= UNREAD:
        return
    accuracy, second = accuracies
    most = sorted(forms.items(), key=lambda item: (-item[1], item[0]))[:10]
    evidence = (
        f"{written.percent(share)} of the answers to {benchmark} at step {step} could not be read "
        "and count as wrong"
    )
    if second is not None:
        evidence += (
            f" (with a second reader mean@k is {written.accuracy(second)} instead of "
            f"{written.accuracy(accuracy)})"
        )
    yield Finding(
        f"unread: {benchmark}", evidence, "; ".join(f"{form} ({count})" for form, count in most)
    )


def of_held_out(
    benchmark: str,
    steps: tuple[int, int],
    reward: tuple[Mean, Mean],
    accuracy: tuple[Mean, Mean],
) -> Iterator[Finding]:
    """Findings from the training reward and the held-out accuracy at the step of the best
    evaluation and at that of the last one."""
    best, last = accuracy
    before, after = reward
    fallen = best.value - last.value
    risen = after.value - before.value
    has_fallen = fallen >= FALLEN and fallen > SURE * math.hypot(best.error, last.error)
    has_risen = risen > SURE * math.hypot(before.error, after.error)
    if not (has_fallen and has_risen):  # also where an error is unknown (NaN)
        return
    yield Finding(
        f"reward apart: {benchmark}",
        f"from step {steps[0]} to {steps[1]} the training reward rose from "
        f"{written.reward(before.value)} to {written.reward(after.value)} "
        f"and the accuracy on {benchmark} fell from "
        f"{written.accuracy(best.value)} to {written.accuracy(last.value)}",
        "the reward pays for something else than right answers, or the training problems are "
        "learnt by heart; read the responses with the highest rewards (dashboard, Run)",
    )


def identical(variants: Sequence[str]) -> Finding:
    """Variants that agree in every number of every step and evaluation."""
    return Finding(
        "identical",
        f"{', '.join(variants)}: identical in every step and evaluation",
        "what differs between them has no effect here; a larger beta, more drift or another "
        "axis would tell them apart",
    )


# --- rules over the last steps of a run
# ----------------------------------------------------------------


def _values(rows: Rows, name: str) -> list[float]:
    return [
        float(row[name])
        for row in rows
        if isinstance(row.get(name), int | float) and _finite(row[name])
    ]


def _all(rows: Rows, name: str, holds: Callable[[float], bool]) -> bool:
    values = _values(rows, name)
    return len(values) == len(rows) and all(map(holds, values))


def _starved(rows: Rows) -> Iterator[Finding]:
    """There is nothing to learn from; expected once a policy has learnt the task."""
    rewards = _values(rows, "reward")
    constant = len(rewards) == len(rows) and max(rewards) - min(rewards) <= 1e-9
    # With so few responses that their mean repeats itself, they differ from each other.
    if constant and len({*_values(rows, "accuracy")} - {0.0, 1.0}) != 1:
        advice = (
            "a constant reward teaches nothing; look at samples (dashboard, Run) and at the reward"
        )
        if _all(rows, "accuracy", lambda share: share == 0):
            advice = (
                "no response was ever right; look at samples (dashboard, Run), and at the "
                "gold answers, the template and "
                "the limits (rpg doctor FILE)"
            )
        elif _all(rows, "accuracy", lambda share: share == 1):
            advice = "every response is right: the problems are too easy to learn from"
        same = written.reward(rewards[-1])
        evidence = f"the reward was {same} in each of the last {len(rows)} steps"
        yield Finding("reward constant", evidence, advice)
    if _all(rows, "truncation_rate", lambda share: share >= 0.999):
        yield Finding(
            "all truncated",
            f"every response of the last {len(rows)} steps was cut off at the limit",
            "raise rollout.max_response_tokens, or check whether the model ever ends a "
            "response (chat template, end token)",
        )
    if _all(rows, "groups_kept", lambda groups: groups == 0):
        yield Finding(
            "no groups left",
            f"no group was left to learn from in the last {len(rows)} steps: all right or "
            "all wrong",
            "easier or harder problems, a larger rollout.group_size, or more rollout.max_refills",
        )


def _exploding(rows: Rows) -> Iterator[Finding]:
    """At most one finding of each rule."""
    smaller = "a smaller learning rate, fewer updates on a rollout, "
    high = "the estimate of KL(policy || {}) was above {:g} nats per token"
    kl = "KL exploding", high, f"{smaller}clipping, or a larger beta"
    ratio = "ratio exploding", "{} was above {:g}", f"{smaller}or clipping"
    findings: dict[str, Finding] = {}
    for name, what, limit, (rule, words, advice) in (
        ("kl_policy_to_old", "the policy that sampled", KL_LARGE, kl),
        ("kl_policy_to_ref", "the reference", REFERENCE_KL_LARGE, kl),
        ("ratio_max", "an importance ratio", RATIO_LARGE, ratio),
    ):
        above = [value for value in _values(rows, name) if value > limit]
        if len(above) >= OFTEN:
            often = f"in {len(above)} of the last {len(rows)} steps, {max(above):.3g} at most"
            findings.setdefault(rule, Finding(rule, f"{words.format(what, limit)} {often}", advice))
    yield from findings.values()


def _apart(rows: Rows) -> Iterator[Finding]:
    """The policy that samples or is exported is not the one that is trained."""
    moved = _values(rows, "kl_old_to_new")
    if not moved:
        return
    update = sum(moved) / len(moved)
    fresh = [row for row in rows if not row.get("sampler_age")]
    for name, where, advice in (
        (
            "kl_sampler_to_policy",
            "the policy that samples",
            "in bfloat16 two passes never agree; algorithm.rollout_correction weights the "
            "samples, and model.dtype "
            "float32 removes the gap. If the gap grows, the sampler has other weights: "
            "adapters merged in bfloat16, or "
            "those of an earlier update",
        ),
        (
            "kl_trained_to_exported",
            "the policy that is exported",
            "evaluated and published weights lack part of what was learnt; model.dtype "
            "float32 exports all of it",
        ),
        (
            "kl_trained_to_evaluated",
            "the policy that is evaluated",
            "evaluation multiplies in bfloat16: if that matters here, raise the learning rate, or "
            "evaluate and train in float32 (model.dtype)",
        ),
        (
            "kl_trained_to_wide_base",
            "the policy of the adapters beside their base in full precision",
            "load the adapters beside the base in nf4 (transformers' BitsAndBytesConfig), or take "
            "the merged weights of the checkpoint",
        ),
    ):
        gaps = _values(fresh, name)
        errors = _values(fresh, f"{name}_error")
        if not gaps:
            continue
        gap = sum(gaps) / len(gaps)
        error = sum(errors) / len(errors) / math.sqrt(len(errors)) if errors else 0.0
        if gap > max(GAP * update, 2 * error):
            yield Finding(
                f"apart: {name}",
                f"{where} is {gap:.2g} nats per token (k3) away from the one that is trained; an "
                f"update moves the trained one by {update:.2g}",
                advice,
            )


def _below_rounding(rows: Rows) -> Iterator[Finding]:
    """KLs that are smaller than what rounding alone makes of equal weights."""
    for name, words in (
        ("kl_old_to_new", "KL(before || after the updates)"),
        ("kl_policy_to_ref", "KL(policy || reference)"),
    ):
        floors = _values(rows, METRICS[name].noise)
        values = _values(rows, name)
        if not floors or not values:
            continue
        floor = sum(floors) / len(floors)
        mean = sum(values) / len(values)
        if is_below_rounding(mean, floor):
            yield Finding(
                f"{BELOW_ROUNDING}: {name}",
                f"{words} is {mean:.2g} nats per token, below the "
                f"{floor:.2g} (k3) that rounding alone makes of equal weights",
                "it is small, and its size is not known; model.dtype float32 would show it",
            )


def _means(rows: Rows, name: str) -> tuple[float, float]:
    """Of the first steps and of the last ones; NaN where nothing is known."""
    first = _values([row for row in rows if row.get("step", math.inf) <= OFTEN], name)
    last = _values(rows[-WINDOW:], name)
    before, now = (sum(values) / len(values) if values else math.nan for values in (first, last))
    return before, now


def _entropy_collapsed(rows: Rows) -> Iterator[Finding]:
    before, now = _means(rows, "entropy")
    worse, better = _means(rows, "reward")
    right = _means(rows, "accuracy")[1]
    sure = better > worse if math.isnan(right) else right >= SOLVED  # because it is right
    varied = now * _means(rows, "response_length")[1] >= STILL_VARIED
    if now < COLLAPSED * before and not sure and not varied:
        yield Finding(
            "entropy collapsed",
            f"the entropy fell from {before:.3g} to {now:.3g} nats, "
            f"{written.percent(now / before)} of it",
            "the policy has stopped trying anything else; a larger beta, a wider upper "
            "clip, or a smaller learning rate",
        )


def _not_finite(rows: Rows) -> Iterator[Finding]:
    for row in rows:
        names = [name for name in ("loss", "grad_norm", "reward") if not _finite(row.get(name))]
        if names:
            yield Finding(
                "not finite",
                f"{', '.join(names)} is not a finite number at step {row.get('step')}",
                "a smaller learning rate or clipping; the previous checkpoint is intact",
            )


def _finite(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))
